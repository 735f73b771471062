#include <tenon/error.hpp>
#include <tenon/host_buffer.hpp>

#include <fmt/format.h>

namespace tenon {

HostBuffer HostBuffer::reshape(std::span<const std::int64_t> dims) const {
  require_array();
  const Shape target(dims, shape().dtype());
  if (target.elements() != shape().elements()) {
    throw Error(Errc::bad_shape, "reshape",
                fmt::format("{} cannot become {}", to_string(shape()), to_string(target)));
  }
  if (!is_contiguous()) {
    throw Error(Errc::bad_argument, "reshape",
                fmt::format("the array {} is strided: copy it with contiguous() first",
                            to_string(shape())));
  }
  return {storage_, HostView(view_.data, target)};
}

HostBuffer HostBuffer::permute(std::span<const int> order) const {
  require_array();
  const int rank = shape().rank();
  const auto refuse = [&](std::string_view why) {
    throw Error(
        Errc::bad_argument, "permute",
        fmt::format("order [{}] for {}: {}", fmt::join(order, ", "), to_string(shape()), why));
  };
  if (std::cmp_not_equal(order.size(), rank)) refuse("one entry per axis is needed");
  std::array<Axis, max_rank> axes{0, 0, 0, 0, 0, 0, 0, 0};
  Strides strides{};
  std::array<bool, max_rank> seen{};
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (order[i] < 0 || order[i] >= rank) refuse("an axis is out of range");
    const auto from = static_cast<std::size_t>(order[i]);
    if (seen[from]) refuse("an axis is named twice");
    seen[from] = true;
    axes[i] = shape().axis_at(order[i]);
    strides[i] = view_.strides[from];
  }
  if (is_block(shape().dtype()) && order.back() != rank - 1) {
    refuse("the blocks lie along the innermost axis, which must stay");
  }
  const Shape permuted(std::span<const Axis>(axes.data(), order.size()), shape().dtype());
  return {storage_, HostView(view_.data, permuted, strides)};
}

HostBuffer HostBuffer::view_as_real() const {
  require_array();
  if (!is_complex(shape().dtype())) {
    throw Error(Errc::unsupported_dtype, "view_as_real",
                fmt::format("{} is not complex", to_string(shape())));
  }
  const int rank = shape().rank();
  const Shape parts = shape().with_dtype(f32).with_axis(rank, Axis(2));
  Strides strides = view_.strides;
  strides[static_cast<std::size_t>(rank)] = block_bytes(f32);
  return {storage_, HostView(view_.data, parts, strides)};
}

HostBuffer HostBuffer::slice(const AxisRef& axis, std::int64_t begin, std::int64_t end) const {
  require_array();
  const int i = shape().axis(axis);
  if (begin < 0 || begin > end || end > shape()[i]) {
    throw Error(Errc::out_of_range, "slice",
                fmt::format("[{}, {}) of axis {} of {}", begin, end, i, to_string(shape())));
  }
  const std::int64_t block = i == shape().rank() - 1 ? block_size(shape().dtype()) : 1;
  if (begin % block != 0 || end % block != 0) {
    throw Error(
        Errc::bad_argument, "slice",
        fmt::format("[{}, {}) cuts blocks of {} of {}", begin, end, block, to_string(shape())));
  }
  const Shape part = shape().with_dim(i, end - begin);
  // An empty slice keeps the address: it may lie one past the end, and nothing is read there.
  const std::int64_t offset =
      part.elements() == 0 ? 0 : begin / block * view_.strides[static_cast<std::size_t>(i)];
  return {storage_, HostView(view_.data + offset, part, view_.strides)};
}

HostBuffer HostBuffer::with_shape(const Shape& same_dims) const {
  require_array();
  if (!(same_dims == shape())) {
    throw Error(Errc::shape_mismatch, "HostBuffer",
                fmt::format("{} cannot be called {}", to_string(shape()), to_string(same_dims)));
  }
  return {storage_, HostView(view_.data, same_dims, view_.strides)};
}

}  // namespace tenon
