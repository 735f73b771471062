#include "watched_backend.hpp"

#include <tenon/interrupt.hpp>
#include <tenon/memory.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <span>
#include <stop_token>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tenon::testkit {

/// The first fault since it was asked for.
struct WatchedBackend::Faults {
  void add(std::string what) {
    const std::scoped_lock lock(mutex);
    if (!first) first = std::move(what);
  }
  std::mutex mutex;
  std::optional<std::string> first;
};

namespace {

/// Bytes of a program's outputs, by index, that steps write.
using WrittenOutputs = std::map<std::size_t, std::uint64_t>;

void find_written(const Lowered& program, std::span<const Step> steps, WrittenOutputs& written) {
  for (const Step& step : steps) {
    find_written(program, step.body, written);
    if (step.kind == Step::Kind::loop || step.output.place.kind != Place::Kind::output) continue;
    const OutputSlot& slot = program.outputs[step.output.place.index];
    const auto bytes = static_cast<std::uint64_t>(slot.shape.bytes());
    if (!slot.from_input && bytes > 0) written.emplace(step.output.place.index, bytes);
  }
}

MemPtr begin_of(std::byte* pointer) { return MemPtr(static_cast<void*>(pointer)); }
MemPtr begin_of(const MemPtr& pointer) { return pointer; }
void set(std::byte*& pointer, const MemPtr& begin) { pointer = begin.cptr(); }
void set(MemPtr& pointer, const MemPtr& begin) { pointer = begin; }

/// One output that lies in a larger chunk for the time of a run, between painted bytes.
class Framed {
 public:
  Framed(MemRegion& region, std::size_t output, const MemPtr& own, std::uint64_t bytes,
         bool on_host)
      : output_(output),
        own_(own),
        bytes_(bytes),
        on_host_(on_host),
        chunk_(region.malloc(bytes + 2 * margin)) {
    Margin paint;
    paint.fill(painted);
    chunk_.write(paint.data(), 0, margin);
    chunk_.write(paint.data(), margin + bytes, margin);
    copy(begin(), own_);  // other partitions may have written a part of it
  }

  std::size_t output() const noexcept { return output_; }
  MemPtr begin() const { return chunk_.begin() + static_cast<std::int64_t>(margin); }

  void bring_back() const { copy(own_, begin()); }
  /// What was written beside it.
  std::optional<std::string> fault() const {
    for (const auto& [offset, where] :
         {std::pair{std::uint64_t{0}, "before"}, std::pair{margin + bytes_, "behind"}}) {
      Margin now;
      chunk_.read(now.data(), offset, margin);
      const auto touched = std::ranges::count_if(now, [](std::byte b) { return b != painted; });
      if (touched == 0) continue;
      return fmt::format("it writes {} bytes {} result {}, which has {}", touched, where, output_,
                         bytes_);
    }
    return std::nullopt;
  }

 private:
  static constexpr std::uint64_t margin = 64;  // keeps the alignment
  static constexpr std::byte painted{0xA5};
  using Margin = std::array<std::byte, margin>;

  void copy(const MemPtr& to, const MemPtr& from) const {
    if (on_host_) {
      std::memcpy(to.cptr(), from.cptr(), bytes_);
    } else {
      chunk_.region().copy(to, from, bytes_);
    }
  }

  std::size_t output_;
  MemPtr own_;
  std::uint64_t bytes_;
  bool on_host_;
  MemChunk chunk_;
};

}  // namespace

class WatchedBackend::Bound final : public BoundPartition {
 public:
  Bound(std::unique_ptr<BoundPartition> bound, BackendPtr backend, Watch watch,
        std::shared_ptr<Faults> faults, WrittenOutputs written, std::size_t steps)
      : bound_(std::move(bound)),
        backend_(std::move(backend)),
        watch_(watch),
        faults_(std::move(faults)),
        written_(std::move(written)),
        steps_(steps) {}

  void run(HostFrame& frame) const override {
    watched(frame, std::vector<std::byte*>(frame.outputs.begin(), frame.outputs.end()), true,
            [&] { bound_->run(frame); });
  }
  void run_on_device(DeviceFrame& frame) const override {
    watched(frame, std::vector<MemPtr>(frame.outputs.begin(), frame.outputs.end()), false,
            [&] { bound_->run_on_device(frame); });
  }

 private:
  template <class Frame, class Pointer, class Run>
  void watched(Frame& frame, std::vector<Pointer> outputs, bool on_host, const Run& run) const {
    if (watch_ == Watch::results) {
      run_framed(frame, outputs, on_host, run);
    } else {
      run_interrupted(frame, run);
    }
  }

  template <class Frame, class Pointer, class Run>
  void run_framed(Frame& frame, std::vector<Pointer>& outputs, bool on_host, const Run& run) const {
    std::vector<Framed> framed;
    for (const auto& [output, bytes] : written_) {
      framed.emplace_back(backend_->region(), output, begin_of(outputs[output]), bytes, on_host);
      set(outputs[output], framed.back().begin());
    }
    const auto own = std::exchange(frame.outputs, outputs);
    try {
      run();
    } catch (...) {
      frame.outputs = own;
      throw;
    }
    frame.outputs = own;
    for (const Framed& one : framed) {
      one.bring_back();
      if (auto fault = one.fault()) faults_->add(std::move(*fault));
    }
  }

  template <class Frame, class Run>
  void run_interrupted(Frame& frame, const Run& run) const {
    if (steps_ < 2) return run();
    std::stop_source stop;
    stop.request_stop();
    const Interrupt due{.cancel = stop.get_token()};
    struct Restored {
      const Interrupt*& interrupt;
      const Interrupt* own;
      ~Restored() { interrupt = own; }
    };
    const Restored restored{frame.interrupt, std::exchange(frame.interrupt, &due)};
    run();  // throws
    faults_->add(
        fmt::format("a partition of {} steps runs to its end though its interrupt is due: "
                    "frame.interrupt->check() between steps ends it",
                    steps_));
  }

  std::unique_ptr<BoundPartition> bound_;
  BackendPtr backend_;
  Watch watch_;
  std::shared_ptr<Faults> faults_;
  WrittenOutputs written_;
  std::size_t steps_;
};

class WatchedBackend::Watched final : public Partition {
 public:
  Watched(std::unique_ptr<Partition> partition, const WatchedBackend& owner, WrittenOutputs written,
          std::size_t steps)
      : partition_(std::move(partition)),
        backend_(owner.backend_),
        watch_(owner.watch_),
        faults_(owner.faults_),
        written_(std::move(written)),
        steps_(steps) {}

  std::int64_t scratch_bytes() const override { return partition_->scratch_bytes(); }
  std::unique_ptr<BoundPartition> bind(const BoundConstants& constants) const override {
    return std::make_unique<Bound>(partition_->bind(constants), backend_, watch_, faults_, written_,
                                   steps_);
  }
  std::vector<std::string> notes() const override { return partition_->notes(); }
  std::optional<ConstantUse> constant_use() const override { return partition_->constant_use(); }

 private:
  std::unique_ptr<Partition> partition_;
  BackendPtr backend_;
  Watch watch_;
  std::shared_ptr<Faults> faults_;
  WrittenOutputs written_;
  std::size_t steps_;
};

WatchedBackend::WatchedBackend(BackendPtr backend, Watch watch)
    : backend_(std::move(backend)), watch_(watch), faults_(std::make_shared<Faults>()) {}

WatchedBackend::~WatchedBackend() = default;

std::unique_ptr<Partition> WatchedBackend::compile(const Lowered& program,
                                                   std::span<const Step> steps) const {
  WrittenOutputs written;
  find_written(program, steps, written);
  return std::make_unique<Watched>(backend_->compile(program, steps), *this, std::move(written),
                                   steps.size());
}

std::optional<std::string> WatchedBackend::take_fault() const {
  const std::scoped_lock lock(faults_->mutex);
  return std::exchange(faults_->first, std::nullopt);
}

}  // namespace tenon::testkit
