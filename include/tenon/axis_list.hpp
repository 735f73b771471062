#pragma once

#include <tenon/attributes.hpp>
#include <tenon/shape.hpp>

#include <concepts>
#include <initializer_list>
#include <span>
#include <vector>

namespace tenon {

/// A list of axes: all of them (the default), one, or several, each given by index or tag:
/// `sum(x)`, `sum(x, "seq")`, `sum(x, {0, -1})`.
class AxisList {
 public:
  AxisList() = default;
  template <std::integral Int>
    requires(!std::same_as<Int, bool>)                   // catches a flag passed by mistake
  AxisList(Int index) : AxisList(AxisRef(index)) {}      // NOLINT(google-explicit-constructor)
  AxisList(const char* tag) : AxisList(AxisRef(tag)) {}  // NOLINT(google-explicit-constructor)
  AxisList(Name tag) : AxisList(AxisRef(tag)) {}         // NOLINT(google-explicit-constructor)
  AxisList(const AxisRef& axis)
      : all_(false), axes_{axis} {}  // NOLINT(google-explicit-constructor)
  AxisList(std::initializer_list<AxisRef> axes) : all_(false), axes_(axes) {}
  explicit AxisList(std::span<const AxisRef> axes) : all_(false), axes_(axes.begin(), axes.end()) {}

  /// Indices in [0, rank), in the caller's order. Errc::axis_out_of_range names the shape.
  IntList resolve(const Shape& shape) const;

 private:
  bool all_ = true;
  std::vector<AxisRef> axes_;
};

}  // namespace tenon
