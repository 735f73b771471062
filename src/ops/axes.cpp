#include "array/size_text.hpp"
#include "ops/builder.hpp"
#include "ops/checks.hpp"
#include "ops/support.hpp"
#include "ops/view.hpp"

#include <tenon/ops/axes.hpp>
#include <tenon/ops/reshape.hpp>

#include <algorithm>
#include <vector>

namespace tenon {

TENON_DEFINE_OP(split_axis, SplitAxis);
TENON_DEFINE_OP(merge_axes, MergeAxes);
TENON_DEFINE_OP(unsqueeze, Unsqueeze);
TENON_DEFINE_OP(squeeze, Squeeze);

namespace {

std::vector<Axis> axes_of_shape(const Shape& shape) {
  std::vector<Axis> axes;
  for (int i = 0; i < shape.rank(); ++i) axes.push_back(shape.axis_at(i));
  return axes;
}

/// Blocks are along the innermost axis: refuses ops that would cut or join them.
void keep_blocks(std::string_view op, const Shape& in, bool touches_innermost) {
  if (is_block(in.dtype()) && touches_innermost) {
    fail(Errc::unsupported_dtype, op,
         fmt::format("blocks of {} run along its innermost axis", to_string(in)));
  }
}

void check_rank(std::string_view op, const Shape& in, std::size_t rank) {
  if (rank > static_cast<std::size_t>(max_rank)) {
    fail(Errc::bad_shape, op,
         fmt::format("{} would have rank {}, above {}", to_string(in), rank, max_rank));
  }
}

/// Strides of `in` with one axis more or less.
Strides shift_strides(const Strides& in, std::int64_t axis, int by) {
  Strides strides{};
  for (std::size_t i = 0; i < strides.size(); ++i) {
    const std::int64_t at = static_cast<std::int64_t>(i);
    const std::int64_t from = at < axis ? at : at - by;
    if (from >= 0 && from < max_rank) strides[i] = in[static_cast<std::size_t>(from)];
  }
  return strides;
}

}  // namespace

Shape SplitAxis::infer(std::span<const Shape> in) const {
  const int at = checked_axis(name, axis, in[0]);  // C1
  const std::string list = sizes_text(sizes.span());
  const std::int64_t whole = in[0][at];
  std::int64_t others = 1;
  int deduced = 0;
  for (const std::int64_t size : sizes) {
    if (size < -1) deduced = 2;
    if (size == -1) ++deduced;
    if (size >= 0) others = checked_multiply(others, size);
  }
  if (sizes.empty() || deduced > 1) {  // C2
    fail(Errc::bad_shape, name,
         fmt::format("axis {} of {} into {}: sizes are known and at least 0, and at most one is -1",
                     axis, to_string(in[0]), list));
  }
  if (deduced == 1 && others == 0) {  // C4
    fail(Errc::bad_shape, name,
         fmt::format("axis {} of {} into {}: -1 beside a size of 0 can be anything", axis,
                     to_string(in[0]), list));
  }
  if (is_static(whole) && (deduced == 1 ? whole % others != 0 : whole != others)) {  // C3
    fail(Errc::bad_shape, name,
         fmt::format("axis {} of {} does not split into {}", axis, to_string(in[0]), list));
  }
  check_rank(name, in[0], static_cast<std::size_t>(in[0].rank()) - 1 + sizes.size());  // C5
  keep_blocks(name, in[0], at == in[0].rank() - 1 && !(sizes.size() == 1));            // C6
  std::vector<Axis> axes = axes_of_shape(in[0]);
  const auto place = axes.erase(axes.begin() + at);
  std::int64_t rest = others == 1 ? whole : unknown_dim;
  if (deduced == 1 && is_static(whole)) rest = whole / others;
  std::vector<Axis> parts;
  for (const std::int64_t size : sizes) parts.emplace_back(size == -1 ? rest : size);
  axes.insert(place, parts.begin(), parts.end());
  return {std::span<const Axis>(axes), in[0].dtype()};
}

void SplitAxis::reference(std::span<const HostView> in, const HostView& out) const {
  copy_through_view(*this, in[0], out);
}

bool SplitAxis::view(const HostView& in, const Shape& out, ViewPlacement& placement) const {
  const auto parts = static_cast<std::int64_t>(sizes.size());
  placement = {0, shift_strides(in.strides, axis, static_cast<int>(parts) - 1)};
  std::int64_t step = in.strides[static_cast<std::size_t>(axis)];
  for (std::int64_t i = axis + parts - 1; i >= axis; --i) {
    placement.strides[static_cast<std::size_t>(i)] = step;
    step *= out[static_cast<int>(i)];
  }
  return true;
}

Shape MergeAxes::infer(std::span<const Shape> in) const {
  if (count < 1)
    fail(Errc::bad_attribute, name,
         fmt::format("merges {} axes of {}", count, to_string(in[0])));  // C2
  const int first = checked_axis(name, axis, in[0]);                     // C1
  if (count > in[0].rank() - first) {
    fail(Errc::axis_out_of_range, name,
         fmt::format("{} axes from axis {} on out of range for {}", count, axis, to_string(in[0])));
  }
  const int end = first + static_cast<int>(count);
  keep_blocks(name, in[0], end == in[0].rank() && count > 1);  // C3
  std::int64_t known = 1, open = 0;
  for (int i = first; i < end; ++i) {
    if (is_static(in[0][i])) {
      known = checked_multiply(known, in[0][i]);
    } else {
      open = open == 0 ? in[0][i] : unknown_dim;
    }
  }
  std::vector<Axis> axes = axes_of_shape(in[0]);
  axes.erase(axes.begin() + first + 1, axes.begin() + end);
  const std::int64_t size = open == 0 ? known : known == 1 ? open : known == 0 ? 0 : unknown_dim;
  axes[static_cast<std::size_t>(first)] = count == 1 ? in[0].axis_at(first) : Axis(size);
  return {std::span<const Axis>(axes), in[0].dtype()};
}

void MergeAxes::reference(std::span<const HostView> in, const HostView& out) const {
  copy_reshaped(in[0], out);
}

bool MergeAxes::view(const HostView& in, const Shape& out, ViewPlacement& placement) const {
  return place_reshaped(in, out, placement);
}

Shape Unsqueeze::infer(std::span<const Shape> in) const {
  if (axis < 0 || axis > in[0].rank()) {  // C1
    fail(Errc::axis_out_of_range, name,
         fmt::format("axis {} out of range for {}", axis, to_string(in[0])));
  }
  check_rank(name, in[0], static_cast<std::size_t>(in[0].rank()) + 1);  // C2
  keep_blocks(name, in[0], axis == in[0].rank());                       // C3
  return in[0].with_axis(static_cast<int>(axis), Axis(1));
}

void Unsqueeze::reference(std::span<const HostView> in, const HostView& out) const {
  copy_reshaped(in[0], out);
}

bool Unsqueeze::view(const HostView& in, const Shape& out, ViewPlacement& placement) const {
  placement = {0, shift_strides(in.strides, axis, 1)};
  placement.strides[static_cast<std::size_t>(axis)] = block_bytes(out.dtype());
  return true;
}

Shape Squeeze::infer(std::span<const Shape> in) const {
  const int at = checked_axis(name, axis, in[0]);  // C1
  if (!sizes_agree(in[0][at], 1)) {                // C2; a block type's innermost axis is never 1
    fail(Errc::bad_shape, name,
         fmt::format("axis {} of {} has not size 1", axis, to_string(in[0])));
  }
  return in[0].without_axis(at);
}

void Squeeze::reference(std::span<const HostView> in, const HostView& out) const {
  copy_reshaped(in[0], out);
}

bool Squeeze::view(const HostView& in, const Shape&, ViewPlacement& placement) const {
  placement = {0, shift_strides(in.strides, axis, -1)};
  return true;
}

std::vector<Tensor> SplitAxis::gradient(const Backward& at) const {
  const auto last = axis + static_cast<std::int64_t>(sizes.size()) - 1;
  return {merge_axes(at.upstream, axis, last)};
}

std::vector<Tensor> MergeAxes::gradient(const Backward& at) const {
  const Tensor& x = at.inputs[0];
  SplitAxis op{.axis = axis, .sizes = {}};
  for (std::int64_t i = axis; i < axis + count; ++i) op.sizes.push_back(x.dim(i));
  if (!std::ranges::all_of(op.sizes, is_static)) return {reshape_like(at.upstream, x)};
  return {record(op, {at.upstream}, std::source_location::current())};
}

std::vector<Tensor> Unsqueeze::gradient(const Backward& at) const {
  return {squeeze(at.upstream, axis)};
}

std::vector<Tensor> Squeeze::gradient(const Backward& at) const {
  return {unsqueeze(at.upstream, axis)};
}

Tensor split_axis(const Tensor& x, const AxisRef& axis, std::initializer_list<Axis> sizes,
                  const std::source_location& where) {
  SplitAxis op{.axis = axis_of(x, axis, SplitAxis::name, where), .sizes = {}};
  std::vector<Axis> axes = axes_of_shape(x.shape(where));
  const auto place = axes.erase(axes.begin() + op.axis);
  axes.insert(place, sizes.begin(), sizes.end());
  located(where, SplitAxis::name, [&] {
    for (const Axis& size : sizes) op.sizes.push_back(size.size);
  });
  return tagged(record(op, {x}, where), axes, SplitAxis::name, where);
}

Tensor merge_axes(const Tensor& x, const AxisRef& first, const AxisRef& last, Name tag,
                  const std::source_location& where) {
  const int from = axis_of(x, first, MergeAxes::name, where);
  const int to = axis_of(x, last, MergeAxes::name, where);
  const Tensor merged = record(MergeAxes{.axis = from, .count = to - from + 1}, {x}, where);
  if (tag.empty()) return merged;
  return located(where, MergeAxes::name, [&] { return merged.rename(from, tag); });
}

Tensor flatten(const Tensor& x, const AxisRef& first, const AxisRef& last,
               const std::source_location& where) {
  return x.rank(where) == 0 ? unsqueeze(x, 0, {}, where) : merge_axes(x, first, last, {}, where);
}

Tensor unsqueeze(const Tensor& x, std::int64_t axis, Name tag, const std::source_location& where) {
  const std::int64_t at = axis < 0 ? axis + x.rank(where) + 1 : axis;
  const Tensor result = record(Unsqueeze{.axis = at}, {x}, where);
  if (tag.empty()) return result;
  return located(where, Unsqueeze::name, [&] { return result.rename(at, tag); });
}

Tensor squeeze(const Tensor& x, const AxisRef& axis, const std::source_location& where) {
  return record(Squeeze{.axis = axis_of(x, axis, Squeeze::name, where)}, {x}, where);
}

}  // namespace tenon
