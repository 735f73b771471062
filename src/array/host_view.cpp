#include "array/element.hpp"
#include "array/reversed.hpp"
#include "array/transpose.hpp"

#include <tenon/host_view.hpp>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <type_traits>

namespace tenon {
namespace {

/// The axes of a copy, merged into as few as possible, outermost first.
struct CopyPlan {
  int rank = 0;
  std::array<std::int64_t, max_rank> dims{};
  Strides from{};
  Strides to{};
};

/// Sizes in units of `unit` bytes; drops axes of size 1 and merges adjacent axes with compatible
/// strides.
CopyPlan plan_copy(const HostView& from, const HostView& to, std::int64_t block) {
  CopyPlan plan;
  const int rank = from.shape.rank();
  for (int i = 0; i < rank; ++i) {
    const auto axis = static_cast<std::size_t>(i);
    const std::int64_t size = i == rank - 1 ? from.shape[i] / block : from.shape[i];
    if (size == 1) continue;
    if (plan.rank > 0) {
      const auto outer = static_cast<std::size_t>(plan.rank - 1);
      if (plan.from[outer] == size * from.strides[axis] &&
          plan.to[outer] == size * to.strides[axis]) {
        plan.dims[outer] *= size;
        plan.from[outer] = from.strides[axis];
        plan.to[outer] = to.strides[axis];
        continue;
      }
    }
    const auto next = static_cast<std::size_t>(plan.rank++);
    plan.dims[next] = size;
    plan.from[next] = from.strides[axis];
    plan.to[next] = to.strides[axis];
  }
  return plan;
}

bool is_small(std::int64_t unit) noexcept {
  return unit == 1 || unit == 2 || unit == 4 || unit == 8;
}

template <std::size_t size>
void copy_row_of(const std::byte* from, std::int64_t from_step, std::byte* to, std::int64_t to_step,
                 std::int64_t count) noexcept {
  for (std::int64_t i = 0; i < count; ++i) {
    std::memcpy(to + i * to_step, from + i * from_step, size);
  }
}

void copy_row(const std::byte* from, std::int64_t from_step, std::byte* to, std::int64_t to_step,
              std::int64_t count, std::int64_t unit) noexcept {
  if (from_step == unit && to_step == unit) {
    std::memcpy(to, from, static_cast<std::size_t>(count * unit));
    return;
  }
  if (from_step == -unit && to_step == unit && is_small(unit)) {
    return copy_reversed(from, to, count, unit);
  }
  switch (unit) {
    case 1:
      return copy_row_of<1>(from, from_step, to, to_step, count);
    case 2:
      return copy_row_of<2>(from, from_step, to, to_step, count);
    case 4:
      return copy_row_of<4>(from, from_step, to, to_step, count);
    case 8:
      return copy_row_of<8>(from, from_step, to, to_step, count);
    default:
      for (std::int64_t i = 0; i < count; ++i) {
        std::memcpy(to + i * to_step, from + i * from_step, static_cast<std::size_t>(unit));
      }
  }
}

/// `bytes` of at most 64, inline: a call of memcpy takes longer. Moves may overlap in `to`.
[[gnu::always_inline]] inline void copy_short(const std::byte* from, std::byte* to,
                                              std::int64_t bytes) noexcept {
  const auto move = [&]<std::size_t size>(std::integral_constant<std::size_t, size>) {
    std::byte first[size], last[size];
    const std::int64_t end = bytes - static_cast<std::int64_t>(size);
    std::memcpy(first, from, size);
    std::memcpy(last, from + end, size);
    std::memcpy(to, first, size);
    std::memcpy(to + end, last, size);
  };
  if (bytes > 32) {
    for (std::int64_t i = 0; i < 32; i += 16) std::memcpy(to + i, from + i, 16);
    from += 32;
    to += 32;
    bytes -= 32;
    if (bytes < 16) {  // over what has been copied
      std::memcpy(to + bytes - 16, from + bytes - 16, 16);
      return;
    }
  }
  if (bytes >= 16) return move(std::integral_constant<std::size_t, 16>{});
  if (bytes >= 8) return move(std::integral_constant<std::size_t, 8>{});
  if (bytes >= 4) return move(std::integral_constant<std::size_t, 4>{});
  for (std::int64_t i = 0; i < bytes; ++i) to[i] = from[i];
}

/// Rows of a plan's last two axes.
void copy_rows(const CopyPlan& plan, const std::byte* from, std::byte* to,
               std::int64_t unit) noexcept {
  constexpr std::int64_t short_row = 64;
  const auto inner = static_cast<std::size_t>(plan.rank - 1);
  const std::size_t outer = inner - 1;
  const std::int64_t rows = plan.dims[outer], count = plan.dims[inner], bytes = count * unit;
  const std::int64_t from_step = plan.from[inner], to_step = plan.to[inner];
  const std::int64_t from_row = plan.from[outer], to_row = plan.to[outer];
  if (to_step == unit && from_step == -unit && is_small(unit)) {
    return copy_reversed_rows(from, from_row, to, to_row, rows, count, unit);
  }
  if (to_step == unit && from_step == unit && bytes <= short_row) {
    for (std::int64_t r = 0; r < rows; ++r) {
      copy_short(from + r * from_row, to + r * to_row, bytes);
    }
    return;
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    copy_row(from + r * from_row, from_step, to + r * to_row, to_step, count, unit);
  }
}

/// Rows of `to` are columns of `from`: copies in square tiles, so that the cache lines of both stay
/// in cache.
void copy_crossed(const CopyPlan& plan, const std::byte* from, std::byte* to,
                  std::int64_t unit) noexcept {
  constexpr std::int64_t side = 32;
  const auto inner = static_cast<std::size_t>(plan.rank - 1);
  const std::size_t outer = inner - 1;
  if (is_small(unit) && plan.from[outer] == unit && plan.to[inner] == unit) {
    return transpose(from, plan.from[inner], to, plan.to[outer], plan.dims[outer], plan.dims[inner],
                     unit);
  }
  for (std::int64_t i = 0; i < plan.dims[outer]; i += side) {
    const std::int64_t rows = std::min(side, plan.dims[outer] - i);
    for (std::int64_t j = 0; j < plan.dims[inner]; j += side) {
      const std::int64_t columns = std::min(side, plan.dims[inner] - j);
      for (std::int64_t row = i; row < i + rows; ++row) {
        copy_row(from + row * plan.from[outer] + j * plan.from[inner], plan.from[inner],
                 to + row * plan.to[outer] + j * plan.to[inner], plan.to[inner], columns, unit);
      }
    }
  }
}

/// Moves the axis with the smallest step of `from` next to the innermost one. Returns whether the
/// two are worth copying in tiles.
bool cross_axes(CopyPlan& plan) noexcept {
  if (plan.rank < 2) return false;
  const auto fineness = [&](int axis) {
    return std::abs(plan.from[static_cast<std::size_t>(axis)]);
  };
  int finest = plan.rank - 1;
  for (int axis = plan.rank - 2; axis >= 0; --axis) {
    if (fineness(axis) < fineness(finest)) finest = axis;
  }
  if (finest == plan.rank - 1) return false;
  const auto move_in = [&](auto& list) {
    std::rotate(list.begin() + finest, list.begin() + finest + 1, list.begin() + plan.rank - 1);
  };
  move_in(plan.dims);
  move_in(plan.from);
  move_in(plan.to);
  return true;
}

void copy_axes(const CopyPlan& plan, bool crossed, int axis, const std::byte* from, std::byte* to,
               std::int64_t unit) noexcept {
  const auto i = static_cast<std::size_t>(axis);
  if (axis == plan.rank - 1) {
    return copy_row(from, plan.from[i], to, plan.to[i], plan.dims[i], unit);
  }
  if (axis == plan.rank - 2) {
    return crossed ? copy_crossed(plan, from, to, unit) : copy_rows(plan, from, to, unit);
  }
  for (std::int64_t n = 0; n < plan.dims[i]; ++n) {
    copy_axes(plan, crossed, axis + 1, from + n * plan.from[i], to + n * plan.to[i], unit);
  }
}

}  // namespace

Strides dense_strides(const Shape& shape) {
  static_cast<void>(shape.elements());  // refuses shapes that are not static
  Strides strides{};
  std::int64_t step = block_bytes(shape.dtype());
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[static_cast<std::size_t>(i)] = step;
    const std::int64_t block = i == shape.rank() - 1 ? block_size(shape.dtype()) : 1;
    step = checked_multiply(step, std::max<std::int64_t>(shape[i] / block, 1));
  }
  return strides;
}

bool is_contiguous(const Shape& shape, const Strides& strides) noexcept {
  std::int64_t step = block_bytes(shape.dtype());
  bool dense = true;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    if (shape[i] == 0) return true;
    const std::int64_t block = i == shape.rank() - 1 ? block_size(shape.dtype()) : 1;
    const std::int64_t size = shape[i] / block;
    if (size != 1 && strides[static_cast<std::size_t>(i)] != step) dense = false;
    step *= size;
  }
  return dense;
}

std::byte* HostView::at(std::span<const std::int64_t> index) const noexcept {
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < index.size(); ++i) offset += index[i] * strides[i];
  return data + offset;
}

double load_as_double(DType dtype, const std::byte* element) noexcept {
  return element::visit_plain(dtype, [&]<class T>(std::type_identity<T>) {
    return element::convert<double>(element::load<T>(element));
  });
}

std::int64_t load_as_int64(DType dtype, const std::byte* element) noexcept {
  return element::visit_plain(dtype, [&]<class T>(std::type_identity<T>) {
    return element::convert<std::int64_t>(element::load<T>(element));
  });
}

void store_double(DType dtype, std::byte* element, double value) noexcept {
  element::visit_plain(dtype, [&]<class T>(std::type_identity<T>) {
    element::store(element, element::convert<T>(value));
  });
}

void store_int64(DType dtype, std::byte* element, std::int64_t value) noexcept {
  element::visit_plain(dtype, [&]<class T>(std::type_identity<T>) {
    element::store(element, element::convert<T>(value));
  });
}

void copy_elements(const HostView& from, const HostView& to) noexcept {
  for (const std::int64_t dim : from.shape.dims()) {
    if (dim == 0) return;
  }
  const DType dtype = from.shape.dtype();
  CopyPlan plan = plan_copy(from, to, block_size(dtype));
  if (plan.rank == 0) {
    std::memcpy(to.data, from.data, static_cast<std::size_t>(block_bytes(dtype)));
  } else {
    const bool crossed = cross_axes(plan);
    copy_axes(plan, crossed, 0, from.data, to.data, block_bytes(dtype));
  }
}

}  // namespace tenon
