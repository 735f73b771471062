#include <tenon/backend.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/error.hpp>
#include <tenon/memory_errors.hpp>

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

namespace tenon {
namespace {

class ReferencePartition final : public Partition, public BoundPartition {
 public:
  explicit ReferencePartition(std::span<const Step> steps) : steps_(steps) {}

  std::unique_ptr<BoundPartition> bind(const BoundConstants&) const override {
    return std::make_unique<ReferencePartition>(steps_);
  }

  void run(HostFrame& frame) const override {
    run_steps(steps_, {}, frame);
    mark({}, {}, frame);
  }

 private:
  /// A step by itself needs no marks: its time is the partition's.
  bool is_one_step() const { return steps_.size() == 1 && steps_.front().kind != Step::Kind::loop; }

  void mark(std::string_view function, std::span<const std::string> values,
            HostFrame& frame) const {
    if (frame.marks == nullptr || is_one_step()) return;
    frame.marks->push_back({function, values, std::chrono::steady_clock::now()});
  }

  /// `function`: the one that repeats, of the steps of a loop.
  void run_steps(std::span<const Step> steps, std::string_view function, HostFrame& frame) const {
    for (const Step& step : steps) {
      if (frame.interrupt != nullptr) frame.interrupt->check("reference");
      if (step.kind == Step::Kind::loop) {
        run_loop(step, frame);
      } else {
        mark(function, {&step.value, 1}, frame);
        run_step(step, frame);
      }
    }
  }

  void run_loop(const Step& loop, HostFrame& frame) const {
    const auto depth = static_cast<std::size_t>(loop.depth);
    for (std::int64_t i = 0; i < loop.count; ++i) {
      if (loop.condition() != nullptr &&
          !*reinterpret_cast<const bool*>(frame.address(loop.condition()->place))) {
        break;
      }
      frame.iteration[depth] = i;
      frame.loop_index[depth] = loop.first + i;
      run_steps(loop.body, loop.value, frame);
    }
    frame.iteration[depth] = 0;
  }

  static void run_step(const Step& step, const HostFrame& frame) {
    std::vector<HostView> inputs;
    for (const Operand& input : step.inputs) inputs.push_back(frame.view(input));
    const HostView output = frame.view(step.output);
    if (step.kind == Step::Kind::copy) {
      copy_elements(inputs[0], output);
      return;
    }
    // A reference kernel reads its inputs after it has begun to write: where the plan shares their
    // memory, it gets a copy. An updated input is meant to share.
    std::vector<HostBuffer> copies;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (static_cast<int>(i) == step.op.def()->traits.updates_input) continue;
      if (inputs[i].data != output.data) continue;
      copies.push_back(HostBuffer::uninitialized(inputs[i].shape));
      copy_elements(inputs[i], copies.back().view());
      inputs[i] = copies.back().view();
    }
    try {
      step.op.def()->reference(step.op.attributes(), inputs, output);
    } catch (const Error& error) {
      throw Error(error.code(), fmt::format("{}: {}", step.value, error.where()), error.message());
    }
  }

  std::span<const Step> steps_;
};

class ReferenceBackend final : public Backend {
 public:
  std::string_view name() const noexcept override { return "reference"; }
  MemRegion& region() const override { return cpu_device()->default_mem_region(); }
  std::optional<std::string> refuses(const Step& step) const override {
    if (step.kind == Step::Kind::op && step.op.def()->reference == nullptr) {
      return fmt::format("{} has no reference kernel", step.op.def()->name);
    }
    return std::nullopt;
  }
  std::unique_ptr<Partition> compile(const Lowered&, std::span<const Step> steps) const override {
    return std::make_unique<ReferencePartition>(steps);
  }
};

}  // namespace

BackendPtr make_reference_backend(const BackendOptions&) {
  return with_memory_errors("reference", [] { return std::make_shared<const ReferenceBackend>(); });
}

void register_reference_backend() { register_backend("reference", make_reference_backend); }

}  // namespace tenon
