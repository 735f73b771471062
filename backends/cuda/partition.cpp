#include "partition.hpp"

#include <tenon/error.hpp>
#include <tenon/prepare_progress.hpp>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tenon::cuda {
namespace {

/// The loops around `steps`, by depth.
using Enclosing = std::array<const Step*, max_loop_depth>;
bool find_loops(std::span<const Step> among, std::span<const Step> steps, Enclosing& loops) {
  if (!steps.empty() && steps.data() >= among.data() &&
      steps.data() < among.data() + among.size()) {
    return true;
  }
  for (const Step& step : among) {
    if (step.kind != Step::Kind::loop) continue;
    loops[static_cast<std::size_t>(step.depth)] = &step;
    if (find_loops(step.body, steps, loops)) return true;
    loops[static_cast<std::size_t>(step.depth)] = nullptr;
  }
  return false;
}

/// What steps use of their program.
class Uses {
 public:
  Uses(const Lowered& program, std::span<const Step> steps) : constants(program.constants.size()) {
    Enclosing loops{};
    find_loops(program.steps, steps, loops);
    for (const Step* loop : loops) {
      if (loop != nullptr) enter(*loop);
    }
    walk(steps);
  }

  std::vector<bool> constants;    ///< by index: whether any iteration reads it
  std::int64_t loop_indices = 0;  ///< loop indices that are read are below

 private:
  void enter(const Step& loop) {
    counts_[static_cast<std::size_t>(loop.depth)] = loop.count;
    end_[static_cast<std::size_t>(loop.depth)] = loop.first + loop.count;
  }
  void walk(std::span<const Step> steps) {
    for (const Step& step : steps) {
      if (step.kind == Step::Kind::loop) {
        const LoopSteps counts = counts_;
        enter(step);
        walk(step.body);
        counts_ = counts;
        continue;
      }
      for (const Operand& input : step.inputs) note(input.place);
    }
  }
  void note(const Place& place) {
    if (place.kind == Place::Kind::loop_index) {
      loop_indices = std::max(loop_indices, end_[place.index]);
    }
    if (place.kind != Place::Kind::constant) return;
    LoopSteps at{}, different{1, 1};
    for (std::size_t d = 0; d < max_loop_depth; ++d) {
      if (place.entry_step[d] != 0) different[d] = counts_[d];
    }
    for (at[0] = 0; at[0] < different[0]; ++at[0]) {
      for (at[1] = 0; at[1] < different[1]; ++at[1]) constants[place.entry_in(at)] = true;
    }
  }

  LoopSteps counts_{1, 1}, end_{};
};

struct CompiledSteps {
  LaunchPlan plan;
  std::vector<bool> constants;
  Source loop_indices;  ///< a table of i64: 0, 1, ...
};

/// What one run needs for itself.
class RunMemory {
 public:
  RunMemory(std::shared_ptr<CudaDevice> device, std::int64_t scratch_bytes)
      : device_(std::move(device)) {
    MemRegion& region = device_->default_mem_region();
    status_ = region.malloc(sizeof(Status));
    if (scratch_bytes > 0) scratch_ = region.malloc(static_cast<std::uint64_t>(scratch_bytes));
    stream_ = device_->driver()->create_stream();
  }
  ~RunMemory() { device_->driver()->destroy(stream_); }
  RunMemory(const RunMemory&) = delete;
  RunMemory& operator=(const RunMemory&) = delete;

  StreamId stream() const noexcept { return stream_; }
  Address status() const { return status_.begin().addr(); }
  Address scratch() const { return scratch_ ? scratch_.begin().addr() : 0; }

 private:
  std::shared_ptr<CudaDevice> device_;
  MemChunk status_, scratch_;
  StreamId stream_{};
};

/// Memory of runs that ended, for the next ones: sessions that share a partition may run at once.
class RunMemories {
 public:
  RunMemories(std::shared_ptr<CudaDevice> device, std::int64_t scratch_bytes)
      : device_(std::move(device)), scratch_bytes_(scratch_bytes) {
    free_.push_back(make());
  }
  std::unique_ptr<RunMemory> take() {
    {
      const std::scoped_lock lock(mutex_);
      if (!free_.empty()) {
        auto memory = std::move(free_.back());
        free_.pop_back();
        return memory;
      }
    }
    return make();
  }
  void give_back(std::unique_ptr<RunMemory> memory) {
    const std::scoped_lock lock(mutex_);
    free_.push_back(std::move(memory));
  }

 private:
  std::unique_ptr<RunMemory> make() const {
    return std::make_unique<RunMemory>(device_, scratch_bytes_);
  }
  std::shared_ptr<CudaDevice> device_;
  std::int64_t scratch_bytes_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<RunMemory>> free_;
};

class Bound final : public BoundPartition {
 public:
  Bound(std::shared_ptr<CudaDevice> device, std::shared_ptr<const CompiledSteps> compiled,
        std::vector<Buffer> constants)
      : device_(std::move(device)),
        compiled_(std::move(compiled)),
        constants_(std::move(constants)),
        memories_(device_, compiled_->plan.scratch_bytes) {
    const std::vector<std::byte>& data = compiled_->plan.data;
    if (data.empty()) return;
    data_ = device_->default_mem_region().malloc(data.size());
    data_.write(data.data(), 0, data.size());
  }

  void run_on_device(DeviceFrame& frame) const override {
    const auto begin = std::chrono::steady_clock::now();
    std::unique_ptr<RunMemory> memory = memories_.take();
    Driver& driver = *device_->driver();
    driver.fill(memory->stream(), memory->status(), 0, sizeof(Status));
    run_all(compiled_->plan.instructions, frame, *memory);
    Status status{};
    driver.read(memory->stream(), &status, memory->status(), sizeof(Status));
    driver.synchronize(memory->stream());
    memories_.give_back(std::move(memory));
    frame.device_time = std::chrono::steady_clock::now() - begin;
    if (status.claimed != 0) throw_reported(status);
  }

 private:
  void run_all(const std::vector<Instruction>& instructions, DeviceFrame& frame,
               const RunMemory& memory) const {
    if (frame.interrupt != nullptr) frame.interrupt->check("cuda");
    for (const Instruction& instruction : instructions) {
      if (const auto* launch = std::get_if<Launch>(&instruction)) {
        run_launch(*launch, frame, memory);
      } else {
        run_loop(std::get<Loop>(instruction), frame, memory);
      }
    }
  }

  void run_loop(const Loop& loop, DeviceFrame& frame, const RunMemory& memory) const {
    const auto depth = static_cast<std::size_t>(loop.step->depth);
    for (std::int64_t i = 0; i < loop.step->count && goes_on(*loop.step, frame, memory); ++i) {
      frame.iteration[depth] = i;
      frame.loop_index[depth] = loop.step->first + i;
      run_all(loop.body, frame, memory);
    }
    frame.iteration[depth] = 0;
  }

  bool goes_on(const Step& loop, const DeviceFrame& frame, const RunMemory& memory) const {
    if (loop.condition() == nullptr) return true;
    std::uint8_t value = 0;
    const Source source{Source::Kind::operand, loop.condition()->place, 0};
    Driver& driver = *device_->driver();
    driver.read(memory.stream(), &value, address_of(source, frame, memory), 1);
    driver.synchronize(memory.stream());
    return value != 0;
  }

  void run_launch(const Launch& launch, const DeviceFrame& frame, const RunMemory& memory) const {
    std::array<std::byte, max_args_bytes> args;
    std::memcpy(args.data(), launch.args.data(), launch.args.size());
    for (const Patch& patch : launch.patches) {
      const Address address = address_of(patch.source, frame, memory);
      std::memcpy(args.data() + patch.at, &address, sizeof address);
    }
    device_->driver()->launch(memory.stream(), launch.kernel, launch.grid, args.data());
  }

  Address address_of(const Source& source, const DeviceFrame& frame,
                     const RunMemory& memory) const {
    switch (source.kind) {
      case Source::Kind::status:
        return memory.status();
      case Source::Kind::scratch:
        return memory.scratch() + static_cast<Address>(source.offset);
      case Source::Kind::data:
        return data_.begin().addr() + static_cast<Address>(source.offset);
      case Source::Kind::operand:
        break;
    }
    const Place& place = source.place;
    if (place.kind == Place::Kind::loop_index) {
      return address_of(compiled_->loop_indices, frame, memory) +
             sizeof(std::int64_t) * static_cast<Address>(frame.loop_index[place.index]);
    }
    if (place.kind == Place::Kind::constant) {
      return constants_[place.entry_in(frame.iteration)].data().addr() +
             static_cast<Address>(place.offset_in(frame.iteration));
    }
    return frame.address(place).addr();
  }

  [[noreturn]] void throw_reported(const Status& status) const {
    const Step& step = *compiled_->plan.reporters[static_cast<std::size_t>(status.step)];
    throw Error(Errc::out_of_range, fmt::format("{}: {}", step.value, step.op.def()->name),
                fmt::format("index {} outside [0, {})", status.value, status.limit));
  }

  /// What a launch may have of arguments, in CUDA.
  static constexpr std::size_t max_args_bytes = 4096;

  std::shared_ptr<CudaDevice> device_;
  std::shared_ptr<const CompiledSteps> compiled_;
  std::vector<Buffer> constants_;  ///< in the device's memory; without data where not used
  MemChunk data_;
  mutable RunMemories memories_;
};

class CudaPartition final : public Partition {
 public:
  CudaPartition(std::shared_ptr<CudaDevice> device, const Lowered& program,
                std::span<const Step> steps)
      : device_(std::move(device)), program_(program) {
    auto compiled = std::make_shared<CompiledSteps>();
    Emitter emitter(compiled->plan);
    emitter.steps(steps);
    Uses uses(program, steps);
    compiled->constants = std::move(uses.constants);
    if (uses.loop_indices > 0) {
      std::vector<std::int64_t> indices(static_cast<std::size_t>(uses.loop_indices));
      for (std::size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<std::int64_t>(i);
      compiled->loop_indices = emitter.data_of(indices);
    }
    compiled_ = std::move(compiled);
  }

  std::unique_ptr<BoundPartition> bind(const BoundConstants& constants) const override {
    std::vector<Buffer> on_device(constants.buffers.size());
    for (std::size_t i = 0; i < on_device.size(); ++i) {
      if (compiled_->constants[i]) on_device[i] = placed(i, constants);
    }
    return std::make_unique<Bound>(device_, compiled_, std::move(on_device));
  }

  std::vector<std::string> notes() const override {
    return {fmt::format("{} launches, {} bytes of scratch memory", compiled_->plan.launches,
                        compiled_->plan.scratch_bytes)};
  }

  std::optional<ConstantUse> constant_use() const override {
    ConstantUse use;
    for (std::size_t i = 0; i < compiled_->constants.size(); ++i) {
      if (compiled_->constants[i]) use.read.push_back(i);
    }
    return use;
  }

 private:
  /// A constant in the device's memory: where it is, or a copy that the plans of a binding share.
  Buffer placed(std::size_t index, const BoundConstants& constants) const {
    const Buffer& given = constants.buffers[index];
    MemRegion& region = device_->default_mem_region();
    if (given.is_on(region)) {
      given.wait();
      return given;
    }
    const ConstantSlot& slot = program_.constants[index];
    const auto copy = [&] {
      Buffer made = given.to(region);
      made.wait();
      PrepareProgress::advance(slot.name, static_cast<std::uint64_t>(slot.shape.bytes()));
      return made;
    };
    if (slot.folded) return copy();
    const std::string key = fmt::format("cuda {} {}", static_cast<const void*>(&region), slot.name);
    const auto kept =
        constants.prepared.get(key, [&] { return std::make_shared<const Buffer>(copy()); });
    return *static_cast<const Buffer*>(kept.get());
  }

  std::shared_ptr<CudaDevice> device_;
  const Lowered& program_;
  std::shared_ptr<const CompiledSteps> compiled_;
};

}  // namespace

std::unique_ptr<Partition> make_partition(std::shared_ptr<CudaDevice> device,
                                          const Lowered& program, std::span<const Step> steps) {
  return std::make_unique<CudaPartition>(std::move(device), program, steps);
}

}  // namespace tenon::cuda
