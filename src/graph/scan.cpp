// The steps of a scan, whose number may be known only when a program runs.
#include <tenon/error.hpp>
#include <tenon/ops/axes.hpp>
#include <tenon/ops/binary.hpp>
#include <tenon/ops/cast.hpp>
#include <tenon/ops/compare.hpp>
#include <tenon/ops/fill.hpp>
#include <tenon/ops/reduce.hpp>
#include <tenon/ops/select.hpp>
#include <tenon/ops/where.hpp>
#include <tenon/repeat.hpp>

#include <algorithm>
#include <string>

#include <fmt/format.h>

namespace tenon::detail {
namespace {

Tensor number(const Tensor& beside, double value, const std::source_location& where) {
  const Full op{.value = value, .dims = {}, .dtype = i64};
  return record_beside(beside, op_def<Full>(), &op, where);
}

}  // namespace

std::int64_t steps_of(std::span<const Tensor> stacks, const std::source_location& where) {
  const auto first_size = [&](const Tensor& stack) {
    return stack.rank(where) > 0 ? stack.dim(0, where) : unknown_dim;
  };
  const auto is_first_size = [&](const Tensor& stack) {
    return stack.rank(where) > 0 && first_size(stack) == first_size(stacks[0]);
  };
  // Sizes that nothing names may differ: one input alone may have such a one.
  const bool fits = !stacks.empty() && std::ranges::all_of(stacks, is_first_size) &&
                    (stacks.size() == 1 || first_size(stacks[0]) != unknown_dim);
  if (fits) return first_size(stacks[0]);
  std::string types;
  for (const Tensor& stack : stacks) {
    types += fmt::format("{}{}", types.empty() ? "" : ", ", to_string(stack.shape(where)));
  }
  throw Error(Errc::bad_argument, where,
              fmt::format("scan: the first axes of its inputs ({}) are not of one size",
                          types.empty() ? "none" : types));
}

Tensor count_slices(const Tensor& stack, const std::source_location& where) {
  const Tensor count = sum(iota(stack, 0, i64, 1, 0, where), {}, false, where);
  // An index that is refused where there are more.
  const Tensor beyond = cast(gt(count, number(stack, max_iterations, where), where), i64, where);
  const Tensor one = unsqueeze(number(stack, 0, where), 0, {}, where);
  return add(count, select(one, beyond, where), where);
}

Tensor zeros_for_slices(const Tensor& stack, const Tensor& row, const std::source_location& where) {
  Tensor along = iota(stack, 0, i64, 0, 0, where);
  for (int i = 0; i < row.rank(where); ++i) along = unsqueeze(along, -1, {}, where);
  const Tensor zeros = zeros_of_type(row, std::nullopt, where);
  // A value of its own, not a view: steps update it.
  return tenon::where(ne(along, number(stack, 0, where), where), zeros, zeros, where);
}

Tensor before_first_index(const Tensor& beside, const std::source_location& where) {
  return number(beside, -1, where);
}

Tensor has_next(const Tensor& index, const Tensor& count, const std::source_location& where) {
  return lt(add(index, number(index, 1, where), where), count, where);
}

}  // namespace tenon::detail
