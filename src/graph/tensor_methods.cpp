// Tensor's methods that record ops.
#include <tenon/ops.hpp>
#include <tenon/tensor.hpp>

namespace tenon {

Tensor Tensor::reshape(std::initializer_list<Axis> dims, const std::source_location& asked) const {
  return tenon::reshape(*this, dims, asked);
}
Tensor Tensor::reshape(std::span<const std::int64_t> dims,
                       const std::source_location& asked) const {
  return tenon::reshape(*this, dims, asked);
}
Tensor Tensor::flatten(const AxisRef& first, const AxisRef& last,
                       const std::source_location& asked) const {
  return tenon::flatten(*this, first, last, asked);
}
Tensor Tensor::permute(std::initializer_list<AxisRef> order,
                       const std::source_location& asked) const {
  return tenon::permute(*this, order, asked);
}
Tensor Tensor::transpose(const AxisRef& a, const AxisRef& b,
                         const std::source_location& asked) const {
  return tenon::transpose(*this, a, b, asked);
}
Tensor Tensor::squeeze(const AxisRef& axis, const std::source_location& asked) const {
  return tenon::squeeze(*this, axis, asked);
}
Tensor Tensor::unsqueeze(std::int64_t axis, Name tag, const std::source_location& asked) const {
  return tenon::unsqueeze(*this, axis, tag, asked);
}
Tensor Tensor::broadcast_to(std::initializer_list<Axis> dims,
                            const std::source_location& asked) const {
  return tenon::broadcast_to(*this, dims, asked);
}
Tensor Tensor::flip(const AxisList& axes, const std::source_location& asked) const {
  return tenon::flip(*this, axes, asked);
}
Tensor Tensor::slice(const AxisRef& axis, std::int64_t begin, std::int64_t end, std::int64_t step,
                     const std::source_location& asked) const {
  return tenon::slice(*this, axis, begin, end, step, asked);
}
std::vector<Tensor> Tensor::split(std::initializer_list<std::int64_t> sizes, const AxisRef& axis,
                                  const std::source_location& asked) const {
  return tenon::split(*this, sizes, axis, asked);
}
std::vector<Tensor> Tensor::chunk(std::int64_t parts, const AxisRef& axis,
                                  const std::source_location& asked) const {
  return tenon::chunk(*this, parts, axis, asked);
}
Tensor Tensor::select(const Tensor& index, const std::source_location& asked) const {
  return tenon::select(*this, index, asked);
}
Tensor Tensor::gather(const Tensor& index, const AxisRef& axis,
                      const std::source_location& asked) const {
  return tenon::gather(*this, index, axis, asked);
}
Tensor Tensor::take_along(const Tensor& index, const AxisRef& axis,
                          const std::source_location& asked) const {
  return tenon::take_along(*this, index, axis, asked);
}
Tensor Tensor::masked_fill(const Tensor& mask, double value,
                           const std::source_location& asked) const {
  return tenon::masked_fill(*this, mask, value, asked);
}
Tensor Tensor::cast(DType dtype, const std::source_location& asked) const {
  return tenon::cast(*this, dtype, asked);
}
Tensor Tensor::matmul(const Tensor& b, const std::source_location& asked) const {
  return tenon::matmul(*this, b, asked);
}
Tensor Tensor::pow(const Tensor& exponent, const std::source_location& asked) const {
  return tenon::pow(*this, exponent, asked);
}
Tensor Tensor::minimum(const Tensor& b, const std::source_location& asked) const {
  return tenon::minimum(*this, b, asked);
}
Tensor Tensor::maximum(const Tensor& b, const std::source_location& asked) const {
  return tenon::maximum(*this, b, asked);
}
Tensor Tensor::clamp(double min, double max, const std::source_location& asked) const {
  return tenon::clamp(*this, min, max, asked);
}
Tensor Tensor::real(const std::source_location& asked) const { return tenon::real(*this, asked); }
Tensor Tensor::imag(const std::source_location& asked) const { return tenon::imag(*this, asked); }
Tensor Tensor::conj(const std::source_location& asked) const { return tenon::conj(*this, asked); }
Tensor Tensor::abs(const std::source_location& asked) const { return tenon::abs(*this, asked); }
Tensor Tensor::neg(const std::source_location& asked) const { return tenon::neg(*this, asked); }
Tensor Tensor::sign(const std::source_location& asked) const { return tenon::sign(*this, asked); }
Tensor Tensor::square(const std::source_location& asked) const {
  return tenon::square(*this, asked);
}
Tensor Tensor::sqrt(const std::source_location& asked) const { return tenon::sqrt(*this, asked); }
Tensor Tensor::rsqrt(const std::source_location& asked) const { return tenon::rsqrt(*this, asked); }
Tensor Tensor::reciprocal(const std::source_location& asked) const {
  return tenon::reciprocal(*this, asked);
}
Tensor Tensor::exp(const std::source_location& asked) const { return tenon::exp(*this, asked); }
Tensor Tensor::log(const std::source_location& asked) const { return tenon::log(*this, asked); }
Tensor Tensor::sin(const std::source_location& asked) const { return tenon::sin(*this, asked); }
Tensor Tensor::cos(const std::source_location& asked) const { return tenon::cos(*this, asked); }
Tensor Tensor::tanh(const std::source_location& asked) const { return tenon::tanh(*this, asked); }
Tensor Tensor::sigmoid(const std::source_location& asked) const {
  return tenon::sigmoid(*this, asked);
}
Tensor Tensor::relu(const std::source_location& asked) const { return tenon::relu(*this, asked); }
Tensor Tensor::gelu(const std::source_location& asked) const { return tenon::gelu(*this, asked); }
Tensor Tensor::silu(const std::source_location& asked) const { return tenon::silu(*this, asked); }
Tensor Tensor::floor(const std::source_location& asked) const { return tenon::floor(*this, asked); }
Tensor Tensor::ceil(const std::source_location& asked) const { return tenon::ceil(*this, asked); }
Tensor Tensor::round(const std::source_location& asked) const { return tenon::round(*this, asked); }
Tensor Tensor::sum(const AxisList& axes, bool keep_dims, const std::source_location& asked) const {
  return tenon::sum(*this, axes, keep_dims, asked);
}
Tensor Tensor::mean(const AxisList& axes, bool keep_dims, const std::source_location& asked) const {
  return tenon::mean(*this, axes, keep_dims, asked);
}
Tensor Tensor::prod(const AxisList& axes, bool keep_dims, const std::source_location& asked) const {
  return tenon::prod(*this, axes, keep_dims, asked);
}
Tensor Tensor::max(const AxisList& axes, bool keep_dims, const std::source_location& asked) const {
  return tenon::max(*this, axes, keep_dims, asked);
}
Tensor Tensor::min(const AxisList& axes, bool keep_dims, const std::source_location& asked) const {
  return tenon::min(*this, axes, keep_dims, asked);
}
Tensor Tensor::any(const AxisList& axes, bool keep_dims, const std::source_location& asked) const {
  return tenon::any(*this, axes, keep_dims, asked);
}
Tensor Tensor::all(const AxisList& axes, bool keep_dims, const std::source_location& asked) const {
  return tenon::all(*this, axes, keep_dims, asked);
}
Tensor Tensor::logsumexp(const AxisList& axes, bool keep_dims,
                         const std::source_location& asked) const {
  return tenon::logsumexp(*this, axes, keep_dims, asked);
}
Tensor Tensor::variance(const AxisList& axes, double correction, bool keep_dims,
                        const std::source_location& asked) const {
  return tenon::variance(*this, axes, correction, keep_dims, asked);
}
Tensor Tensor::norm(double p, const AxisList& axes, bool keep_dims,
                    const std::source_location& asked) const {
  return tenon::norm(*this, p, axes, keep_dims, asked);
}
Tensor Tensor::argmax(const AxisRef& axis, bool keep_dims, DType dtype,
                      const std::source_location& asked) const {
  return tenon::argmax(*this, axis, keep_dims, dtype, asked);
}
Tensor Tensor::argmin(const AxisRef& axis, bool keep_dims, DType dtype,
                      const std::source_location& asked) const {
  return tenon::argmin(*this, axis, keep_dims, dtype, asked);
}
Tensor Tensor::softmax(const AxisRef& axis, const std::source_location& asked) const {
  return tenon::softmax(*this, axis, asked);
}
Tensor Tensor::log_softmax(const AxisRef& axis, const std::source_location& asked) const {
  return tenon::log_softmax(*this, axis, asked);
}
Tensor Tensor::cumsum(const AxisRef& axis, const std::source_location& asked) const {
  return tenon::cumsum(*this, axis, asked);
}
Tensor Tensor::sort(const AxisRef& axis, bool descending, const std::source_location& asked) const {
  return tenon::sort(*this, axis, descending, asked);
}
Tensor Tensor::argsort(const AxisRef& axis, bool descending,
                       const std::source_location& asked) const {
  return tenon::argsort(*this, axis, descending, asked);
}

}  // namespace tenon
