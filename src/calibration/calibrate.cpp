#include "session/constants.hpp"

#include <tenon/calibration.hpp>
#include <tenon/error.hpp>
#include <tenon/lowered.hpp>
#include <tenon/ops/linear.hpp>
#include <tenon/session.hpp>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <utility>

#include <fmt/format.h>

namespace tenon::quant {
namespace {

/// Runs lowered steps on their reference kernels and reports every result.
class Interpreter {
 public:
  Interpreter(const Lowered& lowered, Calibration& calibration, HostFrame& frame)
      : lowered_(lowered), calibration_(calibration), frame_(frame) {}

  void run() { run(lowered_.steps); }

 private:
  void run(std::span<const Step> steps) {
    for (const Step& step : steps) {
      if (step.kind != Step::Kind::loop) {
        run(step);
        continue;
      }
      const auto depth = static_cast<std::size_t>(step.depth);
      for (std::int64_t i = 0; i < step.count; ++i) {
        const Operand* const condition = step.condition();
        if (condition != nullptr &&
            !*reinterpret_cast<const bool*>(frame_.address(condition->place))) {
          break;
        }
        frame_.iteration[depth] = i;
        frame_.loop_index[depth] = step.first + i;
        run(step.body);
      }
      frame_.iteration[depth] = 0;
    }
  }

  void run(const Step& step) {
    // A reference kernel may still read after its first write: operands that share the output's
    // memory are copied first, except one that the op updates in place.
    const HostView output = frame_.view(step.output);
    std::vector<HostView> inputs;
    std::vector<HostBuffer> copies;
    for (std::size_t i = 0; i < step.inputs.size(); ++i) {
      HostView view = frame_.view(step.inputs[i]);
      const bool updated =
          step.kind == Step::Kind::op && step.op.def()->traits.updates_input == static_cast<int>(i);
      if (view.data == output.data && !updated) {
        copies.push_back(HostBuffer::uninitialized(view.shape));
        copy_elements(view, copies.back().view());
        view = copies.back().view();
      }
      inputs.push_back(view);
    }
    if (step.kind == Step::Kind::copy) {
      copy_elements(inputs[0], output);
    } else {
      try {
        step.op.def()->reference(step.op.attributes(), inputs, output);
      } catch (const Error& error) {
        throw Error(error.code(), fmt::format("{}: {}", step.value, error.where()),
                    error.message());
      }
    }
    const std::string name = value_name(step);
    calibration_.observe(name, output);
    if (const auto* linear = step.op.as<Linear>(); linear != nullptr && linear->has_residual) {
      observe_product(name, output, inputs.back());
    }
  }

  void observe_product(const std::string& value, const HostView& sum, const HostView& residual) {
    if (sum.shape.dtype() != DType::f32) return;
    HostBuffer product = HostBuffer::uninitialized(sum.shape);
    for_each_index(sum.shape, [&](std::span<const std::int64_t> index) {
      const auto at = [&](const HostView& view) {
        return reinterpret_cast<float*>(view.at(index));
      };
      *at(product.view()) = *at(sum) - *at(residual);
    });
    calibration_.observe(product_name(value), product.view());
  }

  const Lowered& lowered_;
  Calibration& calibration_;
  HostFrame& frame_;
};

void run_sample(const Program& program, const WeightSet& weights,
                const std::vector<HostBuffer>& sample, Calibration& calibration) {
  std::vector<Shape> shapes;
  for (const HostBuffer& input : sample) shapes.push_back(input.shape().without_tags());
  const Lowered lowered =
      lower(unroll(program), shapes, sessions::constant_types(program, &weights));

  std::vector<HostBuffer> kept;  // owns what the frame points to
  std::vector<const std::byte*> constants;
  for (const ConstantSlot& slot : lowered.constants) {
    kept.push_back(sessions::constant_array(program, weights, slot, true).to_host());
    constants.push_back(kept.back().bytes());
  }
  std::vector<std::byte*> inputs;
  for (std::size_t i = 0; i < sample.size(); ++i) {
    calibration.observe(lowered.inputs[i].name, sample[i].view());
    kept.push_back(HostBuffer::uninitialized(sample[i].shape()));  // a step may update it
    copy_elements(sample[i].view(), kept.back().view());
    inputs.push_back(kept.back().view().data);
  }
  std::vector<std::byte*> outputs;
  for (const OutputSlot& slot : lowered.outputs) {
    if (slot.from_input) {
      outputs.push_back(inputs[*slot.from_input]);
      continue;
    }
    kept.push_back(HostBuffer::zeros(slot.shape));
    outputs.push_back(kept.back().view().data);
  }
  const HostBuffer slab = HostBuffer::uninitialized(Shape({lowered.slab_bytes}, u8));

  HostFrame frame;
  frame.inputs = inputs;
  frame.outputs = outputs;
  frame.constants = constants;
  frame.slab = slab.view().data;
  Interpreter(lowered, calibration, frame).run();
}

}  // namespace

CalibrationTable calibrate(const Program& program, const WeightSet& weights,
                           std::span<const std::vector<HostBuffer>> samples,
                           const CalibrationOptions& options) {
  if (samples.empty()) {
    throw Error(Errc::bad_argument, "quant::calibrate", "no samples to calibrate on");
  }
  Calibration calibration(options);
  for (const std::vector<HostBuffer>& sample : samples) {
    run_sample(program, weights, sample, calibration);
  }
  return calibration.table();
}

CalibrationTable calibrate(Session session, std::span<const std::vector<HostBuffer>> samples,
                           const CalibrationOptions& options) {
  if (samples.empty()) {
    throw Error(Errc::bad_argument, "quant::calibrate", "no samples to calibrate on");
  }
  Calibration calibration(options);
  session = session.fork();  // the callback, which ends with this call, is the fork's alone
  session.set_merge(false);  // report every value
  session.set_post_callback([&](const StepEvent& event) {
    calibration.observe(value_name(event.function, event.values.back()),
                        event.outputs.back().to_host().view());
  });
  const Function& entry = session.program().main();
  for (const std::vector<HostBuffer>& sample : samples) {
    std::vector<Buffer> buffers;
    for (std::size_t i = 0; i < sample.size(); ++i) {
      if (i < entry.parameter_count) calibration.observe(entry.values[i].name, sample[i].view());
      buffers.push_back(sample[i].to_device(cpu_device()));
    }
    session.forward(std::move(buffers));
  }
  return calibration.table();
}

}  // namespace tenon::quant
