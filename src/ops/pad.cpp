#include "ops/builder.hpp"
#include "ops/checks.hpp"

#include <tenon/ops/pad.hpp>
#include <tenon/ops/slice.hpp>

#include <vector>
namespace tenon {

TENON_DEFINE_OP(pad, Pad);

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
  Shape result = in[0];
  for (std::size_t i = 0; i < rank; ++i) {
    if (before[i] < 0 || after[i] < 0) refuse(Errc::bad_attribute, "a negative entry");  // C2
    const int axis = static_cast<int>(i);
    const std::int64_t added = checked_add(before[i], after[i]);  // C4
    if (added == 0) continue;
    result = result.with_dim(
        axis, is_static(result[axis]) ? checked_add(result[axis], added) : unknown_dim);
  }
  return result;
}

void Pad::reference(std::span<const HostView> in, const HostView& out) const {
  const DType dtype = out.shape.dtype();
  for_each_index(out.shape, [&](std::span<const std::int64_t> index) {
    store_double(dtype, out.at(index), value);
  });
  if (in[0].shape.elements() > 0)
    copy_elements(in[0], {out.at(before.span()), in[0].shape, out.strides});
}

std::vector<Tensor> Pad::gradient(const Backward& at) const {
  Tensor inner = at.upstream;
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (before[i] == 0 && after[i] == 0) continue;
    const auto axis = static_cast<std::int64_t>(i);
    inner = slice(inner, axis, before[i], inner.dim(axis) - after[i]);
  }
  return {inner};
}

Tensor pad(const Tensor& x, const IntList& before, const IntList& after, double value,
           const std::source_location& where) {
  return record(Pad{.before = before, .after = after, .value = value}, {x}, where);
}

Tensor pad(const Tensor& x, const AxisRef& axis, std::int64_t before, std::int64_t after,
           double value, const std::source_location& where) {
  const auto at = static_cast<std::size_t>(axis_of(x, axis, Pad::name, where));
  Pad op{.before = {}, .after = {}, .value = value};
  for (std::size_t i = 0; i < static_cast<std::size_t>(x.rank(where)); ++i) {
    op.before.push_back(i == at ? before : 0);
    op.after.push_back(i == at ? after : 0);
  }
  return record(op, {x}, where);
}

}  // namespace tenon
