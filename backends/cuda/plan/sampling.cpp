// Images between their pixels, their gradients, and boxes on them.
#include "plan/planners.hpp"

#include <tenon/ops.hpp>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

namespace tenon::cuda {
namespace {

/// What each element of an axis is mixed from.
struct Mixture {
  struct Part {
    std::int64_t source;
    double weight;
  };
  std::vector<std::vector<Part>> elements;

  explicit Mixture(std::int64_t size) : elements(static_cast<std::size_t>(size)) {}
};

/// Of an axis of `outputs` elements; `is_backward`: of the `size` elements that it is made from.
Mixture mixture_of(const Resize& op, std::int64_t size, std::int64_t outputs, bool is_backward) {
  const ResizeTaps taps = resize_taps(op, size, outputs);
  Mixture mixture(is_backward ? size : outputs);
  for (std::int64_t i = 0; i < outputs; ++i) {
    for (std::int64_t k = 0; k < taps.taps; ++k) {
      const auto at = static_cast<std::size_t>(k * outputs + i);
      const std::int64_t input = taps.inputs[at];
      const auto to = static_cast<std::size_t>(is_backward ? input : i);
      mixture.elements[to].push_back({is_backward ? i : input, taps.weights[at]});
    }
  }
  return mixture;
}

void set_table(Draft<MixArgs>& draft, MixTable& table, const Mixture& mixture, Emitter& out) {
  std::vector<std::int32_t> begin{0}, sources;
  std::vector<float> weights;
  for (const auto& parts : mixture.elements) {
    for (const auto& part : parts) {
      sources.push_back(static_cast<std::int32_t>(part.source));
      weights.push_back(static_cast<float>(part.weight));
    }
    begin.push_back(static_cast<std::int32_t>(sources.size()));
  }
  draft.address(table.begin, out.data_of(begin));
  draft.address(table.sources, out.data_of(sources));
  draft.address(table.weights, out.data_of(weights));
}

/// `op`: that which makes `larger` of the other, whichever of them is computed.
void emit_mix(const Step& step, const Resize& op, bool is_backward, Emitter& out) {
  const Operand &x = step.inputs[0], &y = step.output;
  Draft<MixArgs> draft;
  MixArgs& args = draft.args;
  args.axes = axes_of(y.shape);
  set_array(draft, args.x, x);
  set_array(draft, args.y, y);
  args.mixed = static_cast<std::int32_t>(op.sizes.size());
  for (int i = 0; i < args.mixed; ++i) {
    const int axis = y.shape.rank() - args.mixed + i;
    const std::int64_t size = is_backward ? y.shape[axis] : x.shape[axis];
    const std::int64_t outputs = is_backward ? x.shape[axis] : y.shape[axis];
    set_table(draft, args.tables[i], mixture_of(op, size, outputs, is_backward), out);
  }
  out.launch(Kernel::mix, grid_of(args.axes.count), draft);
}

/// Zeros where sums for y are collected.
Located zeros_for(const Operand& y, Emitter& out) {
  const Located sums = sums_for(y, out);
  emit_fill(sums.operand, sums.source, {}, out);
  return sums;
}

/// Rounds sums to y where they lie elsewhere.
void emit_rounding(const Located& sums, const Operand& y, Emitter& out) {
  if (y.shape.dtype() != f32) emit_cast(sums, located(y), out);
}

template <class Op>
void set_words(GridArgs& args, const Op& op) {
  args.is_nearest = op.mode.text() == "nearest";
  args.holds = op.padding.text() == "border";
  args.reflects = op.padding.text() == "reflection";
  args.aligns_corners = op.align_corners;
}

/// The axes of [N, C, H] of an image, or [N, H', W'] of a grid.
Axes first_three(const Shape& shape) { return axes_of(Shape(shape.dims().first(3), f32)); }

Draft<GridArgs> grid_draft(const Step& step, Emitter& out) {
  const Operand &x = step.inputs[0], &grid = step.inputs[1];
  Draft<GridArgs> draft;
  GridArgs& args = draft.args;
  if (const auto* op = step.op.as<GridSample>()) set_words(args, *op);
  if (const auto* op = step.op.as<GridSampleBackward>()) set_words(args, *op);
  if (const auto* op = step.op.as<GridSampleGridBackward>()) set_words(args, *op);
  set_array(draft, args.x, x);
  set_array(draft, args.grid, grid);
  set_array(draft, args.y, step.output);
  if (step.inputs.size() > 2) set_array(draft, args.upstream, step.inputs[2]);
  args.channels = static_cast<std::uint32_t>(x.shape[1]);
  args.height = static_cast<std::uint32_t>(x.shape[2]);
  args.width = static_cast<std::uint32_t>(x.shape[3]);
  args.grid_height = static_cast<std::uint32_t>(grid.shape[1]);
  args.grid_width = static_cast<std::uint32_t>(grid.shape[2]);
  args.axes = first_three(grid.shape);
  if (args.axes.count > 0) {
    const auto bytes = static_cast<std::int64_t>(args.axes.count * sizeof(GridPlace));
    draft.address(args.places, out.scratch(bytes));
    out.launch(Kernel::grid_places, grid_of(args.axes.count), draft);
  }
  return draft;
}

template <class Op>
void emit_boxes(Draft<RoiArgs>& draft, const Step& step, const Op& op, Emitter& out) {
  const Operand& x = step.inputs[0];
  RoiArgs& args = draft.args;
  set_array(draft, args.x, x);
  set_array(draft, args.box, step.inputs[1]);
  set_array(draft, args.image, step.inputs[2]);
  args.scale = op.scale;
  args.sampling_ratio = op.sampling_ratio;
  args.count = static_cast<std::uint32_t>(step.inputs[1].shape[0]);
  args.images = static_cast<std::uint32_t>(x.shape[0]);
  args.height = static_cast<std::uint32_t>(x.shape[2]);
  args.width = static_cast<std::uint32_t>(x.shape[3]);
  for (std::size_t i = 0; i < 2; ++i) args.cells[i] = static_cast<std::uint32_t>(op.size[i]);
  args.is_aligned = op.aligned;
  if (args.count == 0) return;
  draft.reporter(args.reporter, out.reporter());
  draft.address(args.boxes, out.scratch(static_cast<std::int64_t>(args.count * sizeof(RoiBox))));
  out.launch(Kernel::roi_boxes, grid_of(args.count), draft);
}

}  // namespace

Refusal plan_resize(const Step& step, Emitter* out) {
  if (Refusal refusal = all_real(step)) return refusal;
  if (out != nullptr) emit_mix(step, *step.op.as<Resize>(), false, *out);
  return std::nullopt;
}

Refusal plan_resize_backward(const Step& step, Emitter* out) {
  if (Refusal refusal = all_real(step)) return refusal;
  if (out == nullptr) return std::nullopt;
  const auto* const op = step.op.as<ResizeBackward>();
  const Resize forward{.sizes = op->sizes,
                       .mode = op->mode,
                       .coordinates = op->coordinates,
                       .rounding = op->rounding,
                       .cubic_coefficient = op->cubic_coefficient};
  emit_mix(step, forward, true, *out);
  return std::nullopt;
}

Refusal plan_grid_sample(const Step& step, Emitter* out) {
  if (Refusal refusal = all_real(step)) return refusal;
  if (out == nullptr) return std::nullopt;
  const Operand& y = step.output;
  Draft<GridArgs> draft = grid_draft(step, *out);
  GridArgs& args = draft.args;
  if (step.op.as<GridSampleGridBackward>() != nullptr) {
    out->launch(Kernel::grid_sample_grid_backward, grid_of(args.axes.count), draft);
    return std::nullopt;
  }
  if (step.op.as<GridSample>() != nullptr) {
    args.axes = axes_of(y.shape);
    out->launch(Kernel::grid_sample, grid_of(args.axes.count), draft);
    return std::nullopt;
  }
  const Located sums = zeros_for(y, *out);
  set_located(draft, args.y, sums);
  args.axes = first_three(y.shape);
  if (step.inputs[2].shape.elements() > 0) {
    out->launch(Kernel::grid_sample_backward, grid_of(args.axes.count), draft);
  }
  emit_rounding(sums, y, *out);
  return std::nullopt;
}

Refusal plan_roi_align(const Step& step, Emitter* out) {
  if (Refusal refusal = all_real_but(step, 2)) return refusal;
  if (out == nullptr) return std::nullopt;
  Draft<RoiArgs> draft;
  emit_boxes(draft, step, *step.op.as<RoiAlign>(), *out);
  set_array(draft, draft.args.y, step.output);
  draft.args.axes = axes_of(step.output.shape);
  out->launch(Kernel::roi_align, grid_of(draft.args.axes.count), draft);
  return std::nullopt;
}

Refusal plan_roi_align_backward(const Step& step, Emitter* out) {
  if (Refusal refusal = all_real_but(step, 2)) return refusal;
  if (out == nullptr) return std::nullopt;
  const Operand& y = step.output;
  Draft<RoiArgs> draft;
  emit_boxes(draft, step, *step.op.as<RoiAlignBackward>(), *out);
  const Located sums = zeros_for(y, *out);
  set_located(draft, draft.args.y, sums);
  set_array(draft, draft.args.upstream, step.inputs[3]);
  draft.args.axes = first_three(y.shape);
  out->launch(Kernel::roi_align_backward, grid_of(draft.args.axes.count), draft);
  emit_rounding(sums, y, *out);
  return std::nullopt;
}

Refusal plan_non_max_suppression(const Step& step, Emitter* out) {
  if (Refusal refusal = all_real(step)) return refusal;
  if (out == nullptr) return std::nullopt;
  const auto* const op = step.op.as<NonMaxSuppression>();
  const Operand &boxes = step.inputs[0], &scores = step.inputs[1];
  Draft<BoxArgs> draft;
  BoxArgs& args = draft.args;
  set_array(draft, args.boxes, boxes);
  set_array(draft, args.scores, scores);
  set_array(draft, args.y, step.output);
  args.count = static_cast<std::uint32_t>(boxes.shape[1]);
  args.max_kept =
      static_cast<std::uint32_t>(std::min({boxes.shape[1], op->max_per_class, op->capacity}));
  args.capacity = op->capacity;
  args.iou_threshold = op->iou_threshold;
  args.score_threshold = op->score_threshold;
  args.is_centred = op->center_point_box;
  args.classes = axes_of(Shape(scores.shape.dims().first(2), f32));
  if (args.count == 0) args.classes.count = 0;
  if (args.classes.count > 0) {
    const auto classes = static_cast<std::int64_t>(args.classes.count);
    draft.address(args.picked, out->scratch(classes * args.max_kept * 4));
    draft.address(args.counts, out->scratch(classes * 4));
    draft.address(args.hidden, out->scratch(classes * args.count));
    out->launch(Kernel::pick_boxes, blocks_of(args.classes.count, args.count), draft);
  }
  out->launch(Kernel::list_boxes, grid_of(static_cast<std::uint64_t>(args.capacity)), draft);
  return std::nullopt;
}

}  // namespace tenon::cuda
