// The reference backend on a device that the CPU cannot address: what it is not given, it does not
// have.
#pragma once

#include "support/fake_device.hpp"

#include <tenon/backend.hpp>
#include <tenon/backends/reference.hpp>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tenon::testing {

class RemoteBackend final : public Backend {
 public:
  using Refuses = std::function<std::optional<std::string>(const Step& step)>;

  explicit RemoteBackend(std::shared_ptr<FakeDevice> device, Refuses refuses = {},
                         bool unrolled = false)
      : device_(std::move(device)), refuses_(std::move(refuses)), unrolled_(unrolled) {
    register_reference_backend();
    inner_ = make_backend("reference");
  }

  std::string_view name() const noexcept override { return "remote"; }
  MemRegion& region() const override { return device_->dram(); }
  bool wants_unrolled() const noexcept override { return unrolled_; }
  std::optional<std::string> refuses(const Step& step) const override {
    return refuses_ ? refuses_(step) : std::nullopt;
  }
  std::unique_ptr<Partition> compile(const Lowered& program,
                                     std::span<const Step> steps) const override {
    ++compiled;
    return std::make_unique<Remote>(*this, program, steps);
  }
  std::unique_ptr<Partition> restore(const Lowered& program, std::span<const Step> steps,
                                     std::span<const std::byte> saved) const override {
    if (!std::ranges::equal(saved, saved_bytes(steps.size()))) {
      throw Error(Errc::incompatible, "remote", "saved by another remote backend");
    }
    ++restored;
    return std::make_unique<Remote>(*this, program, steps);
  }

  mutable std::atomic<int> runs = 0;
  mutable std::atomic<int> compiled = 0;  ///< partitions
  mutable std::atomic<int> restored = 0;  ///< partitions, from what was saved
  /// Tells backends apart that cannot restore each other's partitions.
  char kind = 'r';

 private:
  std::vector<std::byte> saved_bytes(std::size_t steps) const {
    return {static_cast<std::byte>(kind), static_cast<std::byte>(steps)};
  }

  /// Works on CPU copies, filled with what the range of steps reads and nothing else.
  class Remote final : public Partition, public BoundPartition {
   public:
    Remote(const RemoteBackend& owner, const Lowered& program, std::span<const Step> steps)
        : owner_(owner), program_(program), steps_(steps), edges_(edges(program, steps)) {
      inner_ = owner.inner_->compile(program, steps);
    }
    std::unique_ptr<BoundPartition> bind(const BoundConstants& constants) const override {
      auto bound = std::make_unique<Remote>(owner_, program_, steps_);
      for (const Buffer& buffer : constants.buffers) {
        bound->kept_.push_back(buffer.has_data() ? buffer.to_host() : HostBuffer());
        bound->constants_.push_back(buffer.has_data() ? bound->kept_.back().bytes() : nullptr);
      }
      bound->bound_ = inner_->bind(constants);
      return bound;
    }

    SavedPartition save() const override { return {owner_.saved_bytes(steps_.size())}; }

    void run_on_device(DeviceFrame& frame) const override {
      ++owner_.runs;
      std::vector<std::vector<std::byte>> inputs, outputs;
      for (const InputSlot& slot : program_.inputs) inputs.push_back(poisoned(slot.shape.bytes()));
      for (const OutputSlot& slot : program_.outputs) {
        outputs.push_back(poisoned(slot.shape.bytes()));
      }
      std::vector<std::byte> slab = poisoned(program_.slab_bytes);
      std::vector<std::byte*> input_bytes, output_bytes;
      for (auto& bytes : inputs) input_bytes.push_back(bytes.data());
      for (auto& bytes : outputs) output_bytes.push_back(bytes.data());
      HostFrame host;
      host.inputs = input_bytes;
      host.outputs = output_bytes;
      host.constants = constants_;
      host.slab = slab.data();
      host.iteration = frame.iteration;
      host.loop_index = frame.loop_index;

      // What lies between written elements is the session's, and goes back as it came.
      for (const Operand& write : edges_.writes) transfer(frame, host, write, true);
      for (const Operand& read : edges_.reads) transfer(frame, host, read, true);
      bound_->run(host);
      for (const Operand& write : edges_.writes) transfer(frame, host, write, false);
      frame.device_time = std::chrono::microseconds(5);
    }

   private:
    static std::vector<std::byte> poisoned(std::int64_t bytes) {
      return std::vector<std::byte>(static_cast<std::size_t>(bytes), std::byte{0x7f});
    }
    void transfer(const DeviceFrame& frame, const HostFrame& host, const Operand& operand,
                  bool in) const {
      Operand origin = operand;
      origin.place.offset = 0;
      origin.place.byte_step = {};
      const bool moves = operand.place.byte_step != LoopSteps{};
      const ByteRange range =
          moves && has_loop() ? whole(operand) : byte_range(operand, frame.iteration);
      if (range.is_empty()) return;
      const MemPtr far = frame.address(origin.place) + range.begin;
      std::byte* near = host.address(origin.place) + range.begin;
      const auto bytes = static_cast<std::uint64_t>(range.size());
      MemRegion& region = owner_.region();
      in ? region.read(near, far, bytes) : region.write(far, near, bytes);
    }
    bool has_loop() const {
      return std::ranges::any_of(steps_, [](const Step& s) { return s.kind == Step::Kind::loop; });
    }
    ByteRange whole(const Operand& operand) const {
      switch (operand.place.kind) {
        case Place::Kind::input:
          return {0, program_.inputs[operand.place.index].shape.bytes()};
        case Place::Kind::output:
          return {0, program_.outputs[operand.place.index].shape.bytes()};
        default:
          return {0, program_.slab_bytes};
      }
    }

    const RemoteBackend& owner_;
    const Lowered& program_;
    std::span<const Step> steps_;
    StepEdges edges_;
    std::unique_ptr<Partition> inner_;
    std::vector<HostBuffer> kept_;
    std::vector<const std::byte*> constants_;
    std::unique_ptr<BoundPartition> bound_;
  };

  std::shared_ptr<FakeDevice> device_;
  Refuses refuses_;
  bool unrolled_;
  BackendPtr inner_;
};

}  // namespace tenon::testing
