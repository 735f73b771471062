#include "ops/builder.hpp"
#include "ops/checks.hpp"
#include "ops/filled.hpp"
#include "ops/gradient.hpp"

#include <tenon/ops/pad.hpp>
#include <tenon/ops/scatter.hpp>
#include <tenon/ops/slice.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

namespace tenon {

TENON_DEFINE_OP(pad, Pad);

namespace {
constexpr std::array<std::string_view, 4> mode_words{"constant", "edge", "reflect", "circular"};
}

Pad::Mode Pad::padding() const {
  if (mode.empty()) return Mode::constant;
  for (std::size_t i = 0; i < mode_words.size(); ++i) {
    if (mode_words[i] == mode.text()) return static_cast<Mode>(i);
  }
  fail(Errc::bad_attribute, name,
       fmt::format("mode '{}' is none of constant, edge, reflect, circular", mode.text()));  // C5
}

std::int64_t Pad::source_of(Mode mode, std::int64_t place, std::int64_t size) noexcept {
  if (place >= 0 && place < size) return place;
  switch (mode) {
    case Mode::reflect:
      return place < 0 ? -place : 2 * (size - 1) - place;
    case Mode::circular:
      return place < 0 ? place + size : place - size;
    default:
      return place < 0 ? 0 : size - 1;
  }
}

Shape Pad::infer(std::span<const Shape> in) const {
  const auto rank = static_cast<std::size_t>(in[0].rank());
  const auto refuse = [&](Errc code, std::string_view why) {
    fail(code, name,
         fmt::format("[{}] before and [{}] after {}: {}", fmt::join(before.span(), ", "),
                     fmt::join(after.span(), ", "), to_string(in[0]), why));
  };
  if (before.size() != rank || after.size() != rank)
    refuse(Errc::bad_argument, "not one entry per axis");  // C1
  require_plain(name, in[0]);                              // C3
  const Mode kind = padding();
  Shape result = in[0];
  for (std::size_t i = 0; i < rank; ++i) {
    if (before[i] < 0 || after[i] < 0) refuse(Errc::bad_attribute, "a negative entry");  // C2
    const int axis = static_cast<int>(i);
    const std::int64_t added = checked_add(before[i], after[i]);  // C4
    if (added == 0) continue;
    const std::int64_t size = in[0][axis], largest = std::max(before[i], after[i]);
    if (kind != Mode::constant && is_static(size) &&
        (size == 0 || (kind == Mode::reflect && largest >= size) ||
         (kind == Mode::circular && largest > size))) {  // C6
      refuse(Errc::out_of_range, fmt::format("axis {} has too few elements", axis));
    }
    result = result.with_dim(
        axis, is_static(result[axis]) ? checked_add(result[axis], added) : unknown_dim);
  }
  return result;
}

void Pad::reference(std::span<const HostView> in, const HostView& out) const {
  const DType dtype = out.shape.dtype();
  const Mode kind = padding();
  if (kind != Mode::constant) {
    const auto bytes = static_cast<std::size_t>(block_bytes(dtype));
    std::array<std::int64_t, max_rank> from{};
    for_each_index(out.shape, [&](std::span<const std::int64_t> index) {
      for (std::size_t i = 0; i < index.size(); ++i)
        from[i] = source_of(kind, index[i] - before[i], in[0].shape[static_cast<int>(i)]);
      std::memcpy(out.at(index), in[0].at({from.data(), index.size()}), bytes);
    });
    return;
  }
  for_each_index(out.shape, [&](std::span<const std::int64_t> index) {
    store_double(dtype, out.at(index), value);
  });
  if (in[0].shape.elements() > 0)
    copy_elements(in[0], {out.at(before.span()), in[0].shape, out.strides});
}

namespace {

/// As `unpadded` below, of an axis whose size is not known: each element goes back to the place that
/// it was read from.
Tensor unpadded_open(const Tensor& g, Pad::Mode mode, int axis, std::int64_t before,
                     std::int64_t after) {
  const Tensor inner = slice(g, axis, before, after == 0 ? to_end : -after);
  if (mode == Pad::Mode::constant) return inner;
  const Pad op{
      .before = {before}, .after = {after}, .mode = mode_words[static_cast<std::size_t>(mode)]};
  const Tensor places = record(op, {iota(inner, axis, i64)}, std::source_location::current());
  return index_add(filled_like(inner, 0), places, g, axis);
}

/// The gradient of padding one axis: what stood for an element goes back to it.
Tensor unpadded(const Tensor& g, Pad::Mode mode, int axis, std::int64_t before,
                std::int64_t after) {
  if (!is_static(g.dim(axis))) return unpadded_open(g, mode, axis, before, after);
  const std::int64_t size = g.dim(axis) - before - after;
  const auto part = [&](std::int64_t begin, std::int64_t count) {
    return slice(g, axis, begin, begin + count);
  };
  Tensor result = part(before, size);
  // Adds `what`, which stands for elements from `first` on.
  const auto give_back = [&](const Tensor& what, std::int64_t first) {
    const std::int64_t count = what.dim(axis);
    result = result + pad(what, axis, first, size - first - count);
  };
  if (mode == Pad::Mode::constant) return result;
  const Tensor head = part(0, before), tail = part(before + size, after);
  if (before > 0) {
    if (mode == Pad::Mode::edge) give_back(sum(head, axis, true), 0);
    if (mode == Pad::Mode::reflect) give_back(flip(head, axis), 1);
    if (mode == Pad::Mode::circular) give_back(head, size - before);
  }
  if (after > 0) {
    if (mode == Pad::Mode::edge) give_back(sum(tail, axis, true), size - 1);
    if (mode == Pad::Mode::reflect) give_back(flip(tail, axis), size - 1 - after);
    if (mode == Pad::Mode::circular) give_back(tail, 0);
  }
  return result;
}

}  // namespace

std::vector<Tensor> Pad::gradient(const Backward& at) const {
  Tensor inner = at.upstream;
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (before[i] == 0 && after[i] == 0) continue;
    inner = unpadded(inner, padding(), static_cast<int>(i), before[i], after[i]);
  }
  return {inner};
}

namespace {

/// One spelling of the default.
Name pad_mode(Name mode) { return mode == Name("constant") ? Name() : mode; }

Pad pad_of_axis(const Tensor& x, const AxisRef& axis, std::int64_t before, std::int64_t after,
                const std::source_location& where) {
  const auto at = static_cast<std::size_t>(axis_of(x, axis, Pad::name, where));
  Pad op;
  for (std::size_t i = 0; i < static_cast<std::size_t>(x.rank(where)); ++i) {
    op.before.push_back(i == at ? before : 0);
    op.after.push_back(i == at ? after : 0);
  }
  return op;
}

}  // namespace

Tensor pad(const Tensor& x, const IntList& before, const IntList& after, double value,
           const std::source_location& where) {
  return record(Pad{.before = before, .after = after, .value = value}, {x}, where);
}

Tensor pad(const Tensor& x, const IntList& before, const IntList& after, Name mode,
           const std::source_location& where) {
  return record(Pad{.before = before, .after = after, .mode = pad_mode(mode)}, {x}, where);
}

Tensor pad(const Tensor& x, const AxisRef& axis, std::int64_t before, std::int64_t after,
           double value, const std::source_location& where) {
  Pad op = pad_of_axis(x, axis, before, after, where);
  op.value = value;
  return record(op, {x}, where);
}

Tensor pad(const Tensor& x, const AxisRef& axis, std::int64_t before, std::int64_t after, Name mode,
           const std::source_location& where) {
  Pad op = pad_of_axis(x, axis, before, after, where);
  op.mode = pad_mode(mode);
  return record(op, {x}, where);
}

}  // namespace tenon
