#include "array/size_text.hpp"
#include "ops/builder.hpp"
#include "ops/checks.hpp"
#include "ops/pointwise.hpp"
#include "ops/support.hpp"

#include <tenon/ops/axes.hpp>
#include <tenon/ops/broadcast_to.hpp>
#include <tenon/ops/cast.hpp>
#include <tenon/ops/compare.hpp>
#include <tenon/ops/fill.hpp>

#include <vector>

namespace tenon {

TENON_DEFINE_OP(full, Full);
TENON_DEFINE_OP(iota, Iota);

Shape Full::infer(std::span<const Shape>) const {
  for (const std::int64_t dim : dims) {
    if (dim < 0) {  // C1
      fail(Errc::bad_shape, name,
           fmt::format("sizes {}: they must be known", sizes_text(dims.span())));
    }
  }
  if (is_block(dtype)) {  // C2
    fail(Errc::unsupported_dtype, name, fmt::format("makes no {}", tenon::name(dtype)));
  }
  std::byte element[8];
  store_double(dtype, element, value);
  const bool rounds = is_floating(dtype) || (is_stored(dtype) && dtype != u64);
  if (!rounds && load_as_double(dtype, element) != value) {  // C3
    fail(Errc::bad_attribute, name, fmt::format("{} cannot hold {}", tenon::name(dtype), value));
  }
  return {dims.span(), dtype};
}

void Full::reference(std::span<const HostView>, const HostView& out) const {
  for_each_index(out.shape, [&](std::span<const std::int64_t> index) {
    store_double(dtype, out.at(index), value);
  });
}

Shape Iota::infer(std::span<const Shape> in) const {
  if (size < 0) {  // C1
    fail(Errc::bad_shape, name,
         fmt::format("size {}: it must be known; iota(x, axis) takes that of an axis",
                     size_text(size)));
  }
  if (!is_integer(dtype) && !is_floating(dtype)) {  // C2
    fail(Errc::unsupported_dtype, name, fmt::format("makes no {}", tenon::name(dtype)));
  }
  if (in.empty() ? axis != 0 : size != 0) {  // C5
    fail(Errc::bad_attribute, name,
         fmt::format("size {} and axis {}: an axis goes with an array, a size stands alone", size,
                     axis));
  }
  const Axis made = in.empty() ? Axis(size) : in[0].axis_at(checked_axis(name, axis, in[0]));  // C4
  if (!is_static(made.size)) return {{made}, dtype};
  std::int64_t last = start;
  const bool overflows = made.size > 0 && (__builtin_mul_overflow(made.size - 1, step, &last) ||
                                           __builtin_add_overflow(last, start, &last));
  const bool fits = is_floating(dtype) || made.size == 0 ||
                    (wrap_to(dtype, start) == start && wrap_to(dtype, last) == last);
  if (overflows || !fits) {  // C3
    fail(Errc::bad_attribute, name,
         fmt::format("{} cannot hold {} values from {} in steps of {}", tenon::name(dtype),
                     made.size, start, step));
  }
  return {{made}, dtype};
}

void Iota::reference(std::span<const HostView>, const HostView& out) const {
  for (std::int64_t i = 0; i < out.shape[0]; ++i)
    store_int64(dtype, out.data + i * out.strides[0], start + i * step);
}

Tensor full(double value, const Shape& shape, const std::source_location& where) {
  const Tensor made =
      record(Full{.value = value, .dims = IntList(shape.dims()), .dtype = shape.dtype()},
             std::span<const Tensor>(), where);
  std::vector<Axis> axes;
  for (int i = 0; i < shape.rank(); ++i) axes.push_back(shape.axis_at(i));
  return tagged(made, axes, Full::name, where);
}

Tensor iota(std::int64_t size, DType dtype, std::int64_t start, std::int64_t step,
            const std::source_location& where) {
  return record(Iota{.size = size, .start = start, .step = step, .dtype = dtype},
                std::span<const Tensor>(), where);
}

Tensor iota(const Tensor& x, const AxisRef& axis, DType dtype, std::int64_t start,
            std::int64_t step, const std::source_location& where) {
  const Iota op{
      .axis = axis_of(x, axis, Iota::name, where), .start = start, .step = step, .dtype = dtype};
  return record(op, {x}, where);
}

Tensor scalar_like(const Tensor& x, double value, const std::source_location& where) {
  const Full op{.value = value, .dims = {}, .dtype = x.dtype(where)};
  return record_beside(x, op_def<Full>(), &op, where);
}

Tensor full_like(const Tensor& x, double value, const std::source_location& where) {
  std::vector<Axis> axes;
  for (int i = 0; i < x.rank(where); ++i) axes.push_back(x.shape(where).axis_at(i));
  if (!x.shape(where).is_static()) {
    return tagged(broadcast_like(scalar_like(x, value, where), x, where), axes, Full::name, where);
  }
  const Full op{.value = value, .dims = IntList(x.shape(where).dims()), .dtype = x.dtype(where)};
  return tagged(record_beside(x, op_def<Full>(), &op, where), axes, Full::name, where);
}

Tensor one_hot(const Tensor& ids, std::int64_t classes, DType dtype,
               const std::source_location& where) {
  const Iota op{.size = classes, .dtype = ids.dtype(where)};
  const Tensor positions = record_beside(ids, op_def<Iota>(), &op, where);
  return cast(eq(unsqueeze(ids, -1, {}, where), positions, where), dtype, where);
}

}  // namespace tenon
