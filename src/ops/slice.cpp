#include "ops/builder.hpp"
#include "ops/checks.hpp"
#include "ops/filled.hpp"
#include "ops/support.hpp"
#include "ops/view.hpp"

#include <tenon/ops/axes.hpp>
#include <tenon/ops/concat.hpp>
#include <tenon/ops/pad.hpp>
#include <tenon/ops/scatter.hpp>
#include <tenon/ops/slice.hpp>

#include <algorithm>
#include <cstdlib>

namespace tenon {

TENON_DEFINE_OP(slice, Slice);

namespace {

std::string range_text(const Slice& op) {
  const std::string end = op.end == to_end ? "" : fmt::format("{}", op.end);
  return op.step == 1 ? fmt::format("[{}:{}]", op.begin, end)
                      : fmt::format("[{}:{}:{}]", op.begin, end, op.step);
}

struct Range {
  std::int64_t begin, end;
  std::int64_t count(std::int64_t step) const noexcept {
    if (step < 0) return begin > end ? (begin - end - 1) / -step + 1 : 0;
    return end > begin ? (end - begin - 1) / step + 1 : 0;
  }
  bool is_within(std::int64_t size, std::int64_t step) const noexcept {
    if (step < 0) return -1 <= end && end <= begin && begin < size;
    return 0 <= begin && begin <= end && end <= size;
  }
};

Range resolve(const Slice& op, std::int64_t size) noexcept {
  const auto from_end = [size](std::int64_t index) { return index < 0 ? index + size : index; };
  const std::int64_t last = op.step < 0 ? -1 : size;
  return {from_end(op.begin), op.end == to_end ? last : from_end(op.end)};
}

/// Whether an index has been made of a symbol.
bool is_open(std::int64_t index) { return is_symbol(index) || (index > 0 && is_symbol(-index)); }

/// The size of a slice of a symbolic axis: known when both ends count from the same side.
std::int64_t open_size(const Slice& op, std::int64_t size) {
  const auto refuse = [&] {  // C2
    fail(Errc::out_of_range, Slice::name, fmt::format("{} is no range", range_text(op)));
  };
  if (op.begin == to_end) refuse();
  if (op.step < 0) {
    if (op.begin == -1 && op.end == to_end) return op.step == -1 ? size : unknown_dim;
    if (op.end == to_end) return op.begin < 0 ? unknown_dim : Range{op.begin, -1}.count(op.step);
    if ((op.begin < 0) != (op.end < 0)) return unknown_dim;
    if (op.begin < op.end) refuse();
    return Range{op.begin, op.end}.count(op.step);
  }
  if (op.begin == 0 && op.end == to_end) return op.step == 1 ? size : unknown_dim;
  const bool begins_from_end = op.begin < 0;
  const bool ends_from_end = op.end < 0 || op.end == to_end;
  if (begins_from_end != ends_from_end) return unknown_dim;
  const std::int64_t end = op.end == to_end ? 0 : op.end;
  if (op.begin < -to_end || end < op.begin) refuse();
  return Range{op.begin, end}.count(op.step);
}

}  // namespace

Shape Slice::infer(std::span<const Shape> in) const {
  const int at = checked_axis(name, axis, in[0]);  // C1
  if (step == 0 || step < -to_end) {               // C3
    fail(Errc::bad_attribute, name,
         fmt::format("step {} along axis {} of {}", step, axis, to_string(in[0])));
  }
  if (is_open(begin) || is_open(end)) {  // C2
    fail(Errc::out_of_range, name,
         fmt::format("axis {} of {} from or to a size that is not known", axis, to_string(in[0])));
  }
  const std::int64_t size = in[0][at];
  const std::int64_t block = at == in[0].rank() - 1 ? block_size(in[0].dtype()) : 1;
  if (!is_static(size)) {
    if (block > 1 && !(begin == 0 && end == to_end && step == 1)) {  // C4
      fail(Errc::unsupported_dtype, name,
           fmt::format("{} of blocks of {}", range_text(*this), to_string(in[0])));
    }
    return in[0].with_dim(at, open_size(*this, size));
  }
  const Range range = resolve(*this, size);
  if (!range.is_within(size, step)) {  // C2
    fail(Errc::out_of_range, name,
         fmt::format("{} out of range for axis {} of {}", range_text(*this), axis,
                     to_string(in[0])));
  }
  if (block > 1 && (step != 1 || range.begin % block != 0 || range.end % block != 0)) {  // C4
    fail(Errc::unsupported_dtype, name,
         fmt::format("{} cuts blocks of {} along axis {} of {}", range_text(*this), block, axis,
                     to_string(in[0])));
  }
  return in[0].with_dim(at, range.count(step));
}

void Slice::reference(std::span<const HostView> in, const HostView& out) const {
  copy_through_view(*this, in[0], out);
}

bool Slice::view(const HostView& in, const Shape& out, ViewPlacement& placement) const {
  const auto at = static_cast<std::size_t>(axis);
  const bool innermost = axis == in.shape.rank() - 1;
  placement = {0, in.strides};
  const std::int64_t count = out[static_cast<int>(axis)];
  if (count > 1) placement.strides[at] *= step;  // a step past the only element may be any number
  const std::int64_t begins = resolve(*this, in.shape[static_cast<int>(axis)]).begin;
  if (count > 0) {  // an empty slice may begin past the last element
    placement.offset_bytes = begins / (innermost ? block_size(out.dtype()) : 1) * in.strides[at];
  }
  return true;
}

namespace {

/// The gradient of a slice of an axis whose size is not known.
Tensor put_back(const Slice& op, const Tensor& x, const Tensor& upstream) {
  const Tensor places = slice(iota(x, op.axis, i64), 0, op.begin, op.end, op.step);
  return index_add(filled_like(x, 0), places, upstream, op.axis);
}

}  // namespace

std::vector<Tensor> Slice::gradient(const Backward& at) const {
  if (!is_static(at.inputs[0].dim(axis))) return {put_back(*this, at.inputs[0], at.upstream)};
  const std::int64_t size = at.inputs[0].dim(axis), taken = at.upstream.dim(axis);
  std::int64_t first = resolve(*this, size).begin;
  if (taken == 0) return {filled_like(at.inputs[0], 0)};
  Tensor spread = at.upstream;
  if (step < 0) {
    spread = flip(spread, axis);
    first += (taken - 1) * step;
  }
  const std::int64_t apart = taken == 1 ? 1 : std::abs(step);  // a step past the axis is any number
  if (apart > 1) {  // apart - 1 zeros behind each element
    spread = merge_axes(pad(unsqueeze(spread, axis + 1), axis + 1, 0, apart - 1), axis, axis + 1);
    spread = slice(spread, axis, 0, (taken - 1) * apart + 1);
  }
  return {pad(spread, axis, first, size - first - spread.dim(axis))};
}

Tensor slice(const Tensor& x, const AxisRef& axis, std::int64_t begin, std::int64_t end,
             std::int64_t step, const std::source_location& where) {
  return record(
      Slice{.axis = axis_of(x, axis, Slice::name, where), .begin = begin, .end = end, .step = step},
      {x}, where);
}

Tensor flip(const Tensor& x, const AxisList& axes, const std::source_location& where) {
  Tensor result = x;
  const IntList resolved = axes_of(x, axes, "flip", where);
  for (std::size_t i = 0; i < resolved.size(); ++i) {
    if (std::count(resolved.begin(), resolved.end(), resolved[i]) > 1) {
      fail_at(where, Errc::bad_argument, "flip",
              fmt::format("axis {} of {} twice", resolved[i], to_string(x.shape(where))));
    }
    result = slice(result, resolved[i], -1, to_end, -1, where);
  }
  return result;
}

Tensor roll(const Tensor& x, std::int64_t shift, const AxisRef& axis,
            const std::source_location& where) {
  const int at = axis_of(x, axis, "roll", where);
  const std::int64_t size = x.shape(where)[at];
  if (!is_static(size)) {
    fail_at(where, Errc::bad_argument, "roll",
            fmt::format("size of axis {} of {} is not known", at, to_string(x.shape(where))));
  }
  const std::int64_t first = size == 0 ? 0 : ((-shift % size) + size) % size;  // comes to 0
  if (first == 0) return x;
  return concat({slice(x, at, first, to_end, 1, where), slice(x, at, 0, first, 1, where)}, at,
                where);
}

std::vector<Tensor> split(const Tensor& x, std::initializer_list<std::int64_t> sizes,
                          const AxisRef& axis, const std::source_location& where) {
  return split(x, std::span<const std::int64_t>(sizes.begin(), sizes.size()), axis, where);
}

std::vector<Tensor> split(const Tensor& x, std::span<const std::int64_t> sizes, const AxisRef& axis,
                          const std::source_location& where) {
  const int at = axis_of(x, axis, "split", where);
  std::int64_t total = 0;
  bool whole = !sizes.empty();
  for (const std::int64_t size : sizes) {
    whole = whole && size >= 0;
    if (whole) total = located(where, "split", [&] { return checked_add(total, size); });
  }
  if (!whole || !sizes_agree(total, x.shape(where)[at])) {
    fail_at(where, Errc::bad_argument, "split",
            fmt::format("axis {} of {} into sizes [{}]", at, to_string(x.shape(where)),
                        fmt::join(sizes, ", ")));
  }
  std::vector<Tensor> parts;
  std::int64_t begin = 0;
  for (const std::int64_t size : sizes) {
    parts.push_back(slice(x, at, begin, begin + size, 1, where));
    begin += size;
  }
  return parts;
}

std::vector<Tensor> chunk(const Tensor& x, std::int64_t parts, const AxisRef& axis,
                          const std::source_location& where) {
  const int at = axis_of(x, axis, "chunk", where);
  const std::int64_t size = x.shape(where)[at];
  if (parts < 1 || !is_static(size)) {
    fail_at(where, Errc::bad_argument, "chunk",
            fmt::format("axis {} of {} into {} parts: needs a known size, and at least one{}", at,
                        to_string(x.shape(where)), parts, advice_on_symbols(x.shape(where))));
  }
  const std::int64_t each = std::max<std::int64_t>(1, size / parts + (size % parts != 0 ? 1 : 0));
  std::vector<std::int64_t> sizes;
  for (std::int64_t begin = 0; begin < size; begin += each)
    sizes.push_back(std::min(each, size - begin));
  if (sizes.empty()) sizes.push_back(0);
  return split(x, sizes, at, where);
}

}  // namespace tenon
