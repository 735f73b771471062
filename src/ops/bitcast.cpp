#include "ops/checks.hpp"
#include "ops/support.hpp"
#include "ops/view.hpp"

#include <tenon/ops/bitcast.hpp>

#include <vector>

namespace tenon {

TENON_DEFINE_OP(bitcast, Bitcast);

namespace {

void require_bits(DType dtype) {
  if (is_block(dtype) || dtype == DType::boolean) {
    fail(Errc::unsupported_dtype, Bitcast::name,
         fmt::format("{} is no type of single elements of any bits", tenon::name(dtype)));
  }
}

Strides with_stride(const HostView& view, std::int64_t stride) {
  Strides strides = view.strides;
  strides[static_cast<std::size_t>(view.shape.rank())] = stride;
  return strides;
}

}  // namespace

Shape Bitcast::infer(std::span<const Shape> in) const {
  const Shape& x = in[0];
  require_bits(x.dtype());  // C1
  require_bits(dtype);
  const std::int64_t from = block_bytes(x.dtype()), to = block_bytes(dtype);
  if (from == to) return x.with_dtype(dtype);
  const int last = x.rank() - 1;
  if (from < to) {
    if (last < 0 || !sizes_agree(x[last], to / from)) {  // C2
      fail(Errc::shape_mismatch, name,
           fmt::format("{} of {} needs an innermost axis of {}", tenon::name(dtype), to_string(x),
                       to / from));
    }
    return x.without_axis(last).with_dtype(dtype);
  }
  if (x.rank() == max_rank) {  // C3
    fail(
        Errc::bad_shape, name,
        fmt::format("{} as {} would have rank {}", to_string(x), tenon::name(dtype), max_rank + 1));
  }
  return x.with_dtype(dtype).with_axis(x.rank(), Axis(from / to));
}

void Bitcast::reference(std::span<const HostView> in, const HostView& out) const {
  const HostView& x = in[0];
  if (block_bytes(x.shape.dtype()) >= block_bytes(dtype)) return copy_through_view(*this, x, out);
  const HostView parts(out.data, x.shape, with_stride(out, block_bytes(x.shape.dtype())));
  copy_elements(x, parts);
}

bool Bitcast::view(const HostView& in, const Shape&, ViewPlacement& placement) const {
  const std::int64_t from = block_bytes(in.shape.dtype()), to = block_bytes(dtype);
  placement = {0, in.strides};
  if (from > to) placement.strides = with_stride(in, to);
  if (from >= to) return true;
  // What kernels compute with has to be aligned; c64 is only moved.
  return is_complex(dtype) && in.strides[static_cast<std::size_t>(in.shape.rank() - 1)] == from;
}

std::vector<Tensor> Bitcast::gradient(const Backward& at) const {
  const DType from = at.inputs[0].dtype();
  const bool is_exact =
      from == dtype || (is_complex(from) && dtype == f32) || (from == f32 && is_complex(dtype));
  return {is_exact ? tenon::bitcast(at.upstream, from) : Tensor()};
}

Tensor bitcast(const Tensor& x, DType dtype, const std::source_location& where) {
  return x.dtype(where) == dtype ? x : record(Bitcast{.dtype = dtype}, {x}, where);
}

}  // namespace tenon
