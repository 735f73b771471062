#include <tenon/axis_list.hpp>
#include <tenon/error.hpp>

#include <fmt/format.h>

namespace tenon {

IntList AxisList::resolve(const Shape& shape) const {
  IntList resolved;
  if (all_) {
    for (int i = 0; i < shape.rank(); ++i) resolved.push_back(i);
  }
  for (const AxisRef& axis : axes_) {
    if (resolved.size() == max_rank) {
      throw Error(Errc::bad_argument, "AxisList",
                  fmt::format("{} axes for {}", axes_.size(), to_string(shape)));
    }
    resolved.push_back(shape.axis(axis));
  }
  return resolved;
}

}  // namespace tenon
