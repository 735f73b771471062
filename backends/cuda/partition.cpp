#include "partition.hpp"

#include "generated_kernels.hpp"
#include "lower/point_groups.hpp"
#include "plan/activations.hpp"
#include "plan/heads.hpp"
#include "plan/points.hpp"
#include "run_graph.hpp"
#include "run_memory.hpp"

#include <tenon/error.hpp>
#include <tenon/log.hpp>
#include <tenon/prepare_progress.hpp>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tenon::cuda {
namespace {

/// The loops around `steps`, by depth; null where there are none.
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

Enclosing loops_around(const Lowered& program, std::span<const Step> steps) {
  Enclosing loops{};
  find_loops(program.steps, steps, loops);
  return loops;
}

/// One more than the largest loop index that steps read; 0 where they read none.
class LoopIndices {
 public:
  LoopIndices(const Enclosing& around, std::span<const Step> steps) {
    for (const Step* loop : around) {
      if (loop != nullptr) enter(*loop);
    }
    walk(steps);
  }
  std::int64_t end() const noexcept { return end_; }

 private:
  void enter(const Step& loop) {
    ends_[static_cast<std::size_t>(loop.depth)] = loop.first + loop.count;
  }
  void walk(std::span<const Step> steps) {
    for (const Step& step : steps) {
      if (step.kind == Step::Kind::loop) {
        enter(step);
        walk(step.body);
        continue;
      }
      for (const Operand& input : step.inputs) {
        if (input.place.kind != Place::Kind::loop_index) continue;
        end_ = std::max(end_, ends_[input.place.index]);
      }
    }
  }

  LoopSteps ends_{};
  std::int64_t end_ = 0;
};

std::string first_line(std::string_view text) {
  return std::string(text.substr(0, text.find('\n')));
}

/// What the addresses of a run's inputs and outputs must be multiples of: the size of an element,
/// and what libraries need.
class Alignments {
 public:
  Alignments(const Lowered& program, std::span<const Step> steps, const LaunchPlan& plan)
      : inputs_(program.inputs.size(), 1), outputs_(program.outputs.size(), 1) {
    find_elements(steps);
    find_routines(plan.instructions);
  }

  /// Errc::bad_argument.
  void check(const DeviceFrame& frame) const {
    check("input", frame.inputs, inputs_);
    check("output", frame.outputs, outputs_);
  }

 private:
  static Address of_element(DType dtype) {
    const auto bytes = static_cast<Address>(block_bytes(dtype));
    return is_block(dtype) ? 2 - bytes % 2 : bytes;  // blocks hold numbers of 8 and 16 bits
  }
  void find_elements(std::span<const Step> steps) {
    for (const Step& step : steps) {
      find_elements(step.body);
      if (step.kind == Step::Kind::loop) continue;
      for (const Operand& input : step.inputs) raise(input.place, of_element(input.shape.dtype()));
      raise(step.output.place, of_element(step.output.shape.dtype()));
    }
  }
  void find_routines(const std::vector<Instruction>& instructions) {
    for (const Instruction& instruction : instructions) {
      if (const auto* loop = std::get_if<Loop>(&instruction)) {
        find_routines(loop->body);
        continue;
      }
      const auto& launch = std::get<Launch>(instruction);
      if (launch.routine == Routine::none) continue;
      for (const Patch& patch : launch.patches) {
        if (patch.source.kind != Source::Kind::operand) continue;
        raise(patch.source.place, routine_alignment);
      }
    }
  }
  void raise(const Place& place, Address multiple) {
    auto* const known = place.kind == Place::Kind::input    ? &inputs_
                        : place.kind == Place::Kind::output ? &outputs_
                                                            : nullptr;
    if (known == nullptr) return;
    Address& own = (*known)[place.index];
    own = std::max(own, multiple);
  }
  static void check(const char* what, std::span<const MemPtr> arrays,
                    const std::vector<Address>& multiples) {
    for (std::size_t i = 0; i < multiples.size(); ++i) {
      if (multiples[i] == 1 || !arrays[i].has_addr()) continue;
      if (arrays[i].addr() % multiples[i] == 0) continue;
      throw Error(
          Errc::bad_argument, "cuda",
          fmt::format("{} {} at {:#x}, and {} needs a multiple of {}", what, i, arrays[i].addr(),
                      multiples[i] == routine_alignment ? "a library" : "an element",
                      multiples[i]));
    }
  }

  std::vector<Address> inputs_, outputs_;
};

struct CompiledSteps {
  std::vector<Step> steps;  ///< to which the plan refers
  std::vector<std::unique_ptr<const ConvolutionPair>> pairs;
  std::vector<std::unique_ptr<const lowering::PointGroup>> groups;
  std::vector<std::unique_ptr<const HeadSteps>> heads;
  std::string fusion;  ///< how many there are, or why none
  LaunchPlan plan;
  std::vector<UnrolledLaunch> graph;  ///< of the plan; none: launches are made one by one
  std::vector<bool> constants;
  std::optional<Alignments> alignments;
  Source loop_indices;  ///< a table of i64: 0, 1, ...
};

class Bound final : public BoundPartition {
 public:
  Bound(std::shared_ptr<CudaDevice> device, std::shared_ptr<const CompiledSteps> compiled,
        std::vector<Buffer> constants, LoadedKernels generated)
      : device_(std::move(device)),
        compiled_(std::move(compiled)),
        constants_(std::move(constants)),
        generated_(std::move(generated)),
        memories_(device_, {compiled_->plan.scratch_bytes, compiled_->plan.ticket_bytes}) {
    const std::vector<std::byte>& data = compiled_->plan.data;
    if (data.empty()) return;
    data_ = device_->default_mem_region().malloc(data.size());
    data_.write(data.data(), 0, data.size());
  }

  void run_on_device(DeviceFrame& frame) const override {
    const auto begin = std::chrono::steady_clock::now();
    compiled_->alignments->check(frame);
    std::unique_ptr<RunMemory> memory = memories_.take();
    Driver& driver = *device_->driver();
    // A shape that does not come again is not worth a graph.
    if (!compiled_->graph.empty() && memory->runs++ > 0) {
      run_graph(frame, *memory);
    } else {
      run_all(compiled_->plan.instructions, frame, *memory);
    }
    Status status{};
    driver.read(memory->stream(), &status, memory->status(), sizeof(Status));
    driver.synchronize(memory->stream());
    if (status.claimed != 0) memory->clear();
    memories_.give_back(std::move(memory));
    frame.device_time = std::chrono::steady_clock::now() - begin;
    if (status.claimed != 0) throw_reported(status);
  }

 private:
  void run_graph(DeviceFrame& frame, RunMemory& memory) const {
    if (frame.interrupt != nullptr) frame.interrupt->check("cuda");
    if (memory.graph == nullptr) {
      memory.graph = std::make_unique<RunGraph>(device_->driver(), compiled_->graph,
                                                device_->options().overlap);
    }
    memory.graph->launch(memory.stream(), frame,
                         [&](const UnrolledLaunch& launch, std::span<std::byte> args) {
                           frame.iteration = launch.iteration;
                           frame.loop_index = launch.loop_index;
                           return filled(*launch.launch, frame, memory, args);
                         });
    frame.iteration = frame.loop_index = {};
    device_->count_graph_launch();
  }

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

  /// What a kernel has reported ends a loop with a condition, which may depend on it.
  bool goes_on(const Step& loop, const DeviceFrame& frame, const RunMemory& memory) const {
    if (loop.condition() == nullptr) return true;
    std::uint8_t value = 0;
    Status status{};
    const Source source{Source::Kind::operand, loop.condition()->place, 0};
    Driver& driver = *device_->driver();
    driver.read(memory.stream(), &value, address_of(source, frame, memory), 1);
    driver.read(memory.stream(), &status, memory.status(), sizeof(Status));
    driver.synchronize(memory.stream());
    return value != 0 && status.claimed == 0;
  }

  void run_launch(const Launch& launch, const DeviceFrame& frame, const RunMemory& memory) const {
    std::array<std::byte, max_args_bytes> args;
    device_->driver()->launch(memory.stream(), filled(launch, frame, memory, args));
  }

  /// A launch whose arguments are in `args`.
  Work filled(const Launch& launch, const DeviceFrame& frame, const RunMemory& memory,
              std::span<std::byte> args) const {
    std::memcpy(args.data(), launch.args.data(), launch.args.size());
    for (const Patch& patch : launch.patches) {
      const Address address = address_of(patch.source, frame, memory);
      std::memcpy(args.data() + patch.at, &address, sizeof address);
    }
    return {launch.kernel, launch.grid, args.data(), launch.routine,
            launch.generated ? generated_[*launch.generated].get() : nullptr};
  }

  Address address_of(const Source& source, const DeviceFrame& frame,
                     const RunMemory& memory) const {
    switch (source.kind) {
      case Source::Kind::status:
        return memory.status();
      case Source::Kind::tickets:
        return memory.tickets() + static_cast<Address>(source.offset);
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
  LoadedKernels generated_;
  MemChunk data_;
  mutable RunMemories memories_;
};

class CudaPartition final : public Partition {
 public:
  CudaPartition(std::shared_ptr<CudaDevice> device, const Lowered& program,
                std::span<const Step> steps, bool is_exact)
      : device_(std::move(device)),
        program_(program),
        steps_(steps),
        around_(loops_around(program, steps)),
        is_exact_(is_exact) {
    compiled_ = compiled(device_->options().fusion);
  }

  std::unique_ptr<BoundPartition> bind(const BoundConstants& constants) const override {
    std::shared_ptr<const CompiledSteps> steps = current();
    std::vector<Buffer> on_device(constants.buffers.size());
    for (std::size_t i = 0; i < on_device.size(); ++i) {
      if (steps->constants[i]) on_device[i] = placed(i, constants);
    }
    LoadedKernels kernels;
    try {
      kernels = load_generated(device_->driver(), steps->plan.generated, constants.prepared);
    } catch (const Error& error) {
      if (error.code() != Errc::internal && error.code() != Errc::corrupt) throw;
      log(LogLevel::warning,
          fmt::format("cuda: a kernel for each element-wise step: {}", error.what()));
      steps = stop_fusing(first_line(error.what()));
    }
    return std::make_unique<Bound>(device_, std::move(steps), std::move(on_device),
                                   std::move(kernels));
  }

  std::vector<std::string> notes() const override {
    const std::shared_ptr<const CompiledSteps> steps = current();
    std::vector<std::string> notes{fmt::format("{} launches, {} bytes of scratch memory",
                                               steps->plan.launches, steps->plan.scratch_bytes),
                                   graph_note(*steps)};
    if (!device_->options().fusion) {
      notes.emplace_back("a kernel for each element-wise step: fusion=off");
    } else if (!steps->fusion.empty()) {
      notes.push_back(steps->fusion);
    }
    if (!device_->options().libraries) {
      notes.emplace_back("no libraries: libraries=off");
      return notes;
    }
    for (const Routine routine : {Routine::gemm, Routine::convolution}) {
      const std::int64_t calls = steps->plan.calls[static_cast<std::size_t>(routine)];
      if (calls > 0) {
        notes.push_back(fmt::format("{} calls of {}", calls, device_->driver()->about(routine)));
      }
    }
    if (steps->plan.activations > 0) {
      notes.push_back(fmt::format("{} of the convolutions with their activation in the call",
                                  steps->plan.activations));
    }
    const std::string& refusal = steps->plan.library_refusal;
    if (!refusal.empty()) notes.push_back("kernels instead of a library: " + refusal);
    return notes;
  }

  std::optional<ConstantUse> constant_use() const override {
    const std::shared_ptr<const CompiledSteps> steps = current();
    ConstantUse use;
    for (std::size_t i = 0; i < steps->constants.size(); ++i) {
      if (steps->constants[i]) use.read.push_back(i);
    }
    for (const GeneratedText& generated : steps->plan.generated) {
      use.made.push_back(kept_key(*device_->driver()->kernel_compiler().compiler, generated));
    }
    return use;
  }

 private:
  std::shared_ptr<const CompiledSteps> current() const {
    const std::scoped_lock lock(mutex_);
    return compiled_;
  }
  /// From now on there are no generated kernels: they do not compile, or do not load.
  std::shared_ptr<const CompiledSteps> stop_fusing(const std::string& why) const {
    std::shared_ptr<CompiledSteps> single = compiled(false);
    single->fusion = "a kernel for each element-wise step: " + why;
    const std::scoped_lock lock(mutex_);
    return compiled_ = std::move(single);
  }

  std::shared_ptr<CompiledSteps> compiled(bool fuses) const {
    auto result = std::make_shared<CompiledSteps>();
    result->steps.assign(steps_.begin(), steps_.end());
    const DeviceOptions& device = device_->options();
    const PlanOptions options{.libraries = device.libraries ? device_->driver().get() : nullptr,
                              .is_exact = is_exact_,
                              .allows_tf32 = device.tf32 && !is_exact_,
                              .multiplies_digits = device.digits};
    result->pairs = pair_activations(program_, steps_, result->steps, options);
    if (fuses) fuse(*result);
    result->heads = merge_heads(program_, steps_, result->steps);
    Emitter emitter(result->plan, options);
    emitter.steps(result->steps);
    result->alignments.emplace(program_, steps_, result->plan);
    result->constants.resize(program_.constants.size());
    for (const std::size_t i : constants_read(program_, steps_)) result->constants[i] = true;
    if (const std::int64_t end = LoopIndices(around_, steps_).end(); end > 0) {
      std::vector<std::int64_t> indices(static_cast<std::size_t>(end));
      for (std::size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<std::int64_t>(i);
      result->loop_indices = emitter.data_of(indices);
    }
    if (device.graphs && !is_in_loop()) result->graph = unrolled(result->plan);
    return result;
  }

  /// Whether the session repeats the steps: their addresses then differ from one run to the next,
  /// and a graph does not pay.
  bool is_in_loop() const { return around_.front() != nullptr; }

  /// Merges element-wise steps, if there are any in a row, and a compiler for them.
  void fuse(CompiledSteps& compiled) const {
    std::vector<Step> merged = compiled.steps;
    auto groups = lowering::group_points(program_, steps_, merged,
                                         {.is_taken = can_be_fused, .is_stored = can_be_fused});
    if (groups.empty()) return;
    const FoundCompiler& found = device_->driver()->kernel_compiler();
    if (found.compiler == nullptr) {
      compiled.fusion = "a kernel for each element-wise step: " + found.about;
      return;
    }
    std::size_t members = 0;
    for (const auto& group : groups) members += group->members.size();
    compiled.fusion =
        fmt::format("{} element-wise steps in {} launches of generated kernels, by {}", members,
                    groups.size(), found.about);
    compiled.steps = std::move(merged);
    compiled.groups = std::move(groups);
  }

  std::string graph_note(const CompiledSteps& steps) const {
    if (!device_->options().graphs) return "no CUDA graph: graphs=off";
    if (is_in_loop()) return "no CUDA graph: in a loop that has steps elsewhere";
    const std::size_t nodes = steps.graph.size();
    if (nodes > 0) return fmt::format("one CUDA graph of {} nodes, from the second run on", nodes);
    return "no CUDA graph: a loop with a condition, or too few or too many launches";
  }

  /// A constant in the device's memory: where it is, or a copy that the plans of a binding share,
  /// also of one that begins where kernels or libraries cannot read it.
  Buffer placed(std::size_t index, const BoundConstants& constants) const {
    const Buffer& given = constants.buffers[index];
    MemRegion& region = device_->default_mem_region();
    if (given.is_on(region) && given.data().addr() % routine_alignment == 0) {
      given.wait();
      return given;
    }
    const ConstantSlot& slot = program_.constants[index];
    const std::string key =
        fmt::format("cuda {} {}", static_cast<const void*>(&region), constants.key(index));
    const auto kept = constants.prepared.get(key, [&] {
      auto made = std::make_shared<const Buffer>(copied(given, region));
      made->wait();
      PrepareProgress::advance(slot.name, static_cast<std::uint64_t>(slot.shape.bytes()));
      return made;
    });
    return *static_cast<const Buffer*>(kept.get());
  }

  static Buffer copied(const Buffer& given, MemRegion& region) {
    if (!given.is_on(region)) return given.to(region);
    given.wait();
    Buffer copy = Buffer::allocate(given.shape(), region);
    region.copy(copy.data(), given.data(), static_cast<std::uint64_t>(given.shape().bytes()));
    return copy;
  }

  std::shared_ptr<CudaDevice> device_;
  const Lowered& program_;
  std::span<const Step> steps_;  ///< of the program
  Enclosing around_;
  bool is_exact_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const CompiledSteps> compiled_;  ///< under the mutex
};

}  // namespace

std::unique_ptr<Partition> make_partition(std::shared_ptr<CudaDevice> device,
                                          const Lowered& program, std::span<const Step> steps,
                                          bool is_exact) {
  return std::make_unique<CudaPartition>(std::move(device), program, steps, is_exact);
}

}  // namespace tenon::cuda
