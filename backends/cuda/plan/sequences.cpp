// Recurrences over the steps of a sequence, and Fourier transforms.
#include "plan/planners.hpp"

#include <tenon/ops.hpp>

#include <cmath>
#include <numbers>
#include <vector>

namespace tenon::cuda {
namespace {

/// `state`: the place of the state among the operands; lengths are behind it.
Refusal emit_recurrence(const Step& step, std::size_t state, Kernel kernel, Emitter* out) {
  for (std::size_t i = 0; i <= state; ++i) {
    if (step.inputs[i].shape.dtype() != f32) return unsupported(step.inputs[i].shape.dtype());
  }
  if (out == nullptr) return std::nullopt;
  const Shape& states = step.inputs[state].shape;  // [rows, states, heads, channels]
  Draft<RecurrenceArgs> draft;
  RecurrenceArgs& args = draft.args;
  for (std::size_t i = 0; i <= state; ++i) set_array(draft, args.in[i], step.inputs[i]);
  set_array(draft, args.y, step.output);
  if (step.inputs.size() > state + 1) {
    draft.address(args.lengths, step.inputs[state + 1]);
    args.lengths_step = step.inputs[state + 1].strides[0];
    draft.reporter(args.reporter, out->reporter());
  }
  args.axes = axes_of(Shape({states[0], states[2], states[3]}, f32));
  args.states = static_cast<std::uint32_t>(states[1]);
  args.steps = static_cast<std::uint32_t>(step.inputs[0].shape[1]);
  if (const auto* op = step.op.as<Wkv7>()) args.every_state = op->every_state;
  if (step.op.as<SelectiveScan>() != nullptr) {
    args.heads_of_group = static_cast<std::uint32_t>(states[2] / step.inputs[3].shape[2]);
    args.has_one_decay = step.inputs[2].shape[1] == 1;
  }
  out->launch(kernel, grid_of(args.axes.count), draft);
  return std::nullopt;
}

/// Factors of 4, then prime ones; {1} of 1.
std::vector<std::uint32_t> factors_of(std::uint32_t n) {
  std::vector<std::uint32_t> factors;
  for (; n % 4 == 0; n /= 4) factors.push_back(4);
  for (std::uint32_t p = 2; p * p <= n; ++p) {
    for (; n % p == 0; n /= p) factors.push_back(p);
  }
  if (n > 1 || factors.empty()) factors.push_back(n);
  return factors;
}

std::vector<float> roots_of_unity(std::uint32_t n) {
  std::vector<float> roots;
  roots.reserve(2 * std::size_t{n});
  for (std::uint32_t k = 0; k < n; ++k) {
    const double angle = -2 * std::numbers::pi * k / n;
    roots.push_back(static_cast<float>(std::cos(angle)));
    roots.push_back(static_cast<float>(std::sin(angle)));
  }
  return roots;
}

/// One side of a pass: lanes of numbers, dense ones in scratch memory or an operand's.
struct Lanes {
  Source source;
  Strides strides{};  ///< along the axes of the lanes
  std::int64_t step = 0, part = 0;
};

struct Transform {
  std::size_t axis = 0;
  std::uint32_t n = 0;
  bool is_inverse = false, from_real = false, to_real = false;
};

Transform transform_of(const Step& step) {
  const auto size = [](const Operand& operand, std::int64_t axis) {
    return static_cast<std::uint32_t>(operand.shape[static_cast<int>(axis)]);
  };
  if (const auto* op = step.op.as<Fft>()) {
    return {static_cast<std::size_t>(op->axis), size(step.output, op->axis), op->inverse};
  }
  if (const auto* op = step.op.as<Rfft>()) {
    return {.axis = static_cast<std::size_t>(op->axis),
            .n = size(step.inputs[0], op->axis),
            .from_real = true};
  }
  const auto* const op = step.op.as<Irfft>();
  return {.axis = static_cast<std::size_t>(op->axis),
          .n = static_cast<std::uint32_t>(op->size),
          .is_inverse = true,
          .to_real = true};
}

/// Of the operand without the axis that is transformed, and without that of parts.
std::vector<std::int64_t> lane_sizes(const Shape& shape, std::size_t axis, bool is_real) {
  std::vector<std::int64_t> sizes(shape.dims().begin(), shape.dims().end());
  if (!is_real) sizes.pop_back();
  sizes.erase(sizes.begin() + static_cast<std::ptrdiff_t>(axis));
  return sizes;
}

Lanes lanes_of(const Operand& operand, std::size_t axis, bool is_real) {
  Lanes lanes;
  lanes.source = source_of(operand);
  std::size_t count = 0;
  const auto rank = static_cast<std::size_t>(operand.shape.rank());
  for (std::size_t i = 0; i < rank - (is_real ? 0 : 1); ++i) {
    if (i != axis) lanes.strides[count++] = operand.strides[i];
  }
  lanes.step = operand.strides[axis];
  lanes.part = is_real ? 0 : operand.strides[rank - 1];
  return lanes;
}

Lanes dense_lanes(const std::vector<std::int64_t>& sizes, std::uint32_t n, Emitter& out) {
  constexpr std::int64_t bytes = 2 * sizeof(float);
  Lanes lanes;
  lanes.step = bytes;
  lanes.part = sizeof(float);
  std::int64_t stride = bytes * n;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    lanes.strides[i] = stride;
    stride *= sizes[i];
  }
  lanes.source = out.scratch(stride);
  return lanes;
}

void set_side(Draft<FourierArgs>& draft, Array& array, const Lanes& lanes) {
  draft.address(array.data, lanes.source);
  std::ranges::copy(lanes.strides, array.steps.bytes);
  array.dtype = f32;
}

}  // namespace

Refusal plan_selective_scan(const Step& step, Emitter* out) {
  return emit_recurrence(step, 5, Kernel::selective_scan, out);
}

Refusal plan_wkv7(const Step& step, Emitter* out) {
  return emit_recurrence(step, 6, Kernel::wkv7, out);
}

Refusal plan_fft(const Step& step, Emitter* out) {
  const Operand &x = step.inputs[0], &y = step.output;
  if (x.shape.dtype() != f32) return unsupported(x.shape.dtype());
  if (out == nullptr) return std::nullopt;
  const Transform transform = transform_of(step);
  const std::vector<std::int64_t> sizes = lane_sizes(y.shape, transform.axis, transform.to_real);
  const std::vector<std::uint32_t> factors = factors_of(transform.n);
  const Source roots = out->data_of(roots_of_unity(transform.n));
  Lanes buffers[2];
  for (std::size_t i = 0; i < 2 && i + 1 < factors.size(); ++i) {
    buffers[i] = dense_lanes(sizes, transform.n, *out);
  }
  std::uint32_t done = 1;
  for (std::size_t pass = 0; pass < factors.size(); ++pass) {
    const bool is_first = pass == 0, is_last = pass + 1 == factors.size();
    const Lanes from =
        is_first ? lanes_of(x, transform.axis, transform.from_real) : buffers[(pass + 1) % 2];
    const Lanes to = is_last ? lanes_of(y, transform.axis, transform.to_real) : buffers[pass % 2];
    Draft<FourierArgs> draft;
    FourierArgs& args = draft.args;
    args.lanes = axes_of(Shape(std::span<const std::int64_t>(sizes), f32));
    set_side(draft, args.x, from);
    set_side(draft, args.y, to);
    args.x_step = from.step;
    args.y_step = to.step;
    args.x_part = from.part;
    args.y_part = to.part;
    draft.address(args.roots, roots);
    args.n = transform.n;
    args.done = done;
    args.radix = factors[pass];
    args.stored = is_last && transform.from_real ? transform.n / 2 + 1 : transform.n;
    args.is_half = is_first && transform.to_real;
    args.is_inverse = transform.is_inverse;
    args.scale = is_last && transform.is_inverse ? 1.0f / static_cast<float>(transform.n) : 1.0f;
    out->launch(Kernel::fourier, grid_of(std::uint64_t{args.lanes.count} * args.stored), draft);
    done *= factors[pass];
  }
  return std::nullopt;
}

}  // namespace tenon::cuda
