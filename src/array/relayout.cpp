#include <tenon/error.hpp>
#include <tenon/host_buffer.hpp>
#include <tenon/layout.hpp>

#include <algorithm>
#include <cstring>
#include <vector>

#include <fmt/format.h>

namespace tenon {
namespace {

/// One logical axis, which may be blocked in memory.
struct ValueAxis {
  char letter;  // '\0': one of those that "*" stands for
  std::int64_t size;
};

void require_same_axes(const Layout& from, const Layout& to) {
  std::string a(from.letters()), b(to.letters());
  std::ranges::sort(a);
  std::ranges::sort(b);
  if (a != b || from.has_star() != to.has_star()) {
    throw Error(Errc::bad_argument, "relayout",
                fmt::format("{} and {} do not have the same axes", to_string(from), to_string(to)));
  }
}

/// The axes of the values in the order of `from`'s letters.
std::vector<ValueAxis> value_axes(const Shape& shape, const Layout& from, std::int64_t extent) {
  from.check(shape);
  const int block = from.is_blocked() ? 1 : 0;
  const int unnamed = shape.rank() - block - static_cast<int>(from.letters().size());
  std::vector<ValueAxis> axes;
  for (int i = 0; i < shape.rank() - block; ++i) {
    const char letter = i < unnamed ? '\0' : from.letters()[static_cast<std::size_t>(i - unnamed)];
    std::int64_t size = shape[i];
    if (block == 1 && letter == from.block_axis()) {
      const std::int64_t blocks = size;
      size = checked_multiply(blocks, from.block_size());
      if (extent != 0) {
        if (extent < 0 || extent > size || extent <= size - from.block_size()) {
          throw Error(
              Errc::bad_shape, "relayout",
              fmt::format("{} blocks of {} for an axis of {}", blocks, from.block_size(), extent));
        }
        size = extent;
      }
    }
    axes.push_back({letter, size});
  }
  if (block == 0 && extent != 0) {
    throw Error(
        Errc::bad_argument, "relayout",
        fmt::format("an extent of {} for {}, which has no blocks", extent, to_string(from)));
  }
  return axes;
}

/// The axes of the values in the order of another layout's letters.
std::vector<ValueAxis> reorder(std::vector<ValueAxis> axes, const Layout& to) {
  const auto named =
      std::ranges::find_if(axes, [](const ValueAxis& a) { return a.letter != '\0'; });
  std::ranges::sort(named, axes.end(), {},
                    [&](const ValueAxis& axis) { return to.letters().find(axis.letter); });
  return axes;
}

Shape memory_shape(const std::vector<ValueAxis>& axes, const Layout& layout, DType dtype) {
  std::vector<std::int64_t> sizes;
  for (const ValueAxis& axis : axes) {
    const std::int64_t block =
        layout.is_blocked() && axis.letter == layout.block_axis() ? layout.block_size() : 1;
    sizes.push_back(axis.size / block + (axis.size % block != 0 ? 1 : 0));
  }
  if (layout.is_blocked()) sizes.push_back(layout.block_size());
  return Shape(sizes, dtype).with_layout(Name(to_string(layout)));
}

/// For one axis of memory: the step in the other memory for each index, or -1 past the end.
using Steps = std::vector<std::int64_t>;

/// Where in memory of shape and strides each index of a value axis lies.
Steps value_steps(const ValueAxis& axis, int position, const HostBuffer& array,
                  const Layout& layout) {
  const auto stride = [&](int i) { return array.strides()[static_cast<std::size_t>(i)]; };
  Steps steps(static_cast<std::size_t>(axis.size));
  const bool blocked = layout.is_blocked() && axis.letter == layout.block_axis();
  const std::int64_t block = blocked ? layout.block_size() : 1;
  const std::int64_t lane = blocked ? stride(array.shape().rank() - 1) : 0;
  for (std::int64_t i = 0; i < axis.size; ++i) {
    steps[static_cast<std::size_t>(i)] = i / block * stride(position) + i % block * lane;
  }
  return steps;
}

void copy_element(const std::byte* from, std::byte* to, std::int64_t size) {
  switch (size) {  // constant sizes become single moves
    case 1:
      *to = *from;
      break;
    case 2:
      std::memcpy(to, from, 2);
      break;
    case 4:
      std::memcpy(to, from, 4);
      break;
    default:
      std::memcpy(to, from, static_cast<std::size_t>(size));
  }
}

}  // namespace

Shape relayout(const Shape& shape, const Layout& from, const Layout& to, std::int64_t extent) {
  require_same_axes(from, to);
  if (to.is_pattern()) {
    throw Error(Errc::bad_argument, "relayout",
                fmt::format("{} leaves the block's size open", to_string(to)));
  }
  return memory_shape(reorder(value_axes(shape, from, extent), to), to, shape.dtype());
}

HostBuffer relayout(const HostBuffer& array, const Layout& from, const Layout& to,
                    std::int64_t extent) {
  if (array.is_empty()) throw Error(Errc::call_order, "relayout", "there is no array");
  const Shape& source = array.shape();
  if (is_block(source.dtype())) {
    throw Error(Errc::unsupported_dtype, "relayout",
                fmt::format("{} cannot be cut into single values", to_string(source)));
  }
  const Shape target = relayout(source, from, to, extent);
  HostBuffer result = HostBuffer::zeros(target);
  if (target.elements() == 0) return result;
  if (target.rank() == 0) return array.contiguous();

  // Steps of the values in the source, brought into the order of the target's axes.
  const std::vector<ValueAxis> axes = value_axes(source, from, extent);
  std::vector<Steps> by_axis;
  for (const ValueAxis& axis : reorder(axes, to)) {
    const int unnamed = static_cast<int>(by_axis.size());
    const int position =
        axis.letter == '\0' ? unnamed : *from.find_axis(axis.letter, source.rank());
    by_axis.push_back(value_steps(axis, position, array, from));
  }

  // Along the innermost axis of the target, lanes of a block or single values.
  const int outer_rank = target.rank() - 1;
  const std::int64_t inner = target[outer_rank];
  const std::int64_t size = block_bytes(target.dtype());
  std::optional<std::size_t> blocked;
  if (to.is_blocked())
    blocked = static_cast<std::size_t>(*to.find_axis(to.block_axis(), target.rank()));
  const std::byte* const from_bytes = array.bytes();
  std::byte* out = result.view().data;
  const Shape outer(target.dims().first(static_cast<std::size_t>(outer_rank)), target.dtype());
  for_each_index(outer, [&](std::span<const std::int64_t> index) {
    std::int64_t base = 0;
    for (std::size_t i = 0; i < index.size(); ++i) {
      if (i != blocked) base += by_axis[i][static_cast<std::size_t>(index[i])];
    }
    const Steps& steps = blocked ? by_axis[*blocked] : by_axis.back();
    const std::int64_t first = blocked ? index[*blocked] * inner : 0;
    const std::int64_t count = std::min(inner, std::ssize(steps) - first);
    for (std::int64_t i = 0; i < count; ++i) {
      copy_element(from_bytes + base + steps[static_cast<std::size_t>(first + i)], out + i * size,
                   size);
    }
    out += inner * size;
  });
  return result;
}

}  // namespace tenon
