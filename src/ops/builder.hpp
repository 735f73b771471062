// What builders share: their own checks name the user's line, as record() does.
#pragma once

#include <tenon/axis_list.hpp>
#include <tenon/error.hpp>
#include <tenon/tensor.hpp>

#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

namespace tenon {

/// Runs `check`; an error it throws comes from `op` on the user's line.
template <class Check>
auto located(const std::source_location& where, std::string_view op, Check&& check) {
  try {
    return check();
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", to_string(where), op), error.message());
  }
}

[[noreturn]] inline void fail_at(const std::source_location& where, Errc code, std::string_view op,
                                 std::string_view message) {
  throw Error(code, fmt::format("{}: {}", to_string(where), op), std::string(message));
}

inline int axis_of(const Tensor& x, const AxisRef& axis, std::string_view op,
                   const std::source_location& where) {
  return located(where, op, [&] { return x.shape().axis(axis); });
}

inline IntList axes_of(const Tensor& x, const AxisList& axes, std::string_view op,
                       const std::source_location& where) {
  return located(where, op, [&] { return axes.resolve(x.shape()); });
}

/// `x` under the tags that its author wrote beside the sizes; x itself when there are none.
inline Tensor tagged(const Tensor& x, std::span<const Axis> axes, std::string_view op,
                     const std::source_location& where) {
  std::vector<Name> tags;
  bool any_tag = false;
  for (const Axis& axis : axes) {
    tags.push_back(axis.tag);
    any_tag = any_tag || !axis.tag.empty();
  }
  if (!any_tag) return x;
  return located(where, op, [&] { return x.with_tags(std::span<const Name>(tags)); });
}

}  // namespace tenon
