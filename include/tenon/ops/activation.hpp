#pragma once

#include <tenon/op.hpp>
#include <tenon/ops/unary.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <source_location>
#include <span>
#include <string_view>

namespace tenon {

// Activation functions; contract: UnaryOp.

/// 1 / (1 + e^-x).
struct Sigmoid : UnaryOp<Sigmoid> {
  static constexpr std::string_view name = "sigmoid";
  static double of(double x) noexcept;
};
TENON_DECLARE_OP(Sigmoid);

/// max(x, 0); a NaN stays a NaN.
struct Relu : UnaryOp<Relu> {
  static constexpr std::string_view name = "relu";
  static double of(double x) noexcept;
  static std::int64_t of_integer(std::int64_t x) noexcept;
};
TENON_DECLARE_OP(Relu);

/// min(max(x, 0), 6).
struct Relu6 : UnaryOp<Relu6> {
  static constexpr std::string_view name = "relu6";
  static double of(double x) noexcept;
};
TENON_DECLARE_OP(Relu6);

/// x * sigmoid(x), also called swish (Elfwing et al., arXiv:1702.03118).
struct Silu : UnaryOp<Silu> {
  static constexpr std::string_view name = "silu";
  static double of(double x) noexcept;
};
TENON_DECLARE_OP(Silu);

/// x * (1 + erf(x / sqrt(2))) / 2 (Hendrycks and Gimpel, arXiv:1606.08415).
struct Gelu : UnaryOp<Gelu> {
  static constexpr std::string_view name = "gelu";
  static double of(double x) noexcept;
};
TENON_DECLARE_OP(Gelu);

/// The tanh approximation of gelu, of the same paper:
/// x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))).
struct GeluTanh : UnaryOp<GeluTanh> {
  static constexpr std::string_view name = "gelu_tanh";
  static double of(double x) noexcept;
};
TENON_DECLARE_OP(GeluTanh);

/// The derivative of gelu: (1 + erf(x / sqrt(2))) / 2 + x e^(-x^2 / 2) / sqrt(2 pi).
struct GeluDerivative : UnaryOp<GeluDerivative> {
  static constexpr std::string_view name = "gelu_derivative";
  static double of(double x) noexcept;
};
TENON_DECLARE_OP(GeluDerivative);

/// log(1 + e^x), without overflow.
struct Softplus : UnaryOp<Softplus> {
  static constexpr std::string_view name = "softplus";
  static double of(double x) noexcept;
};
TENON_DECLARE_OP(Softplus);

/// x * tanh(softplus(x)) (Misra, arXiv:1908.08681).
struct Mish : UnaryOp<Mish> {
  static constexpr std::string_view name = "mish";
  static double of(double x) noexcept;
};
TENON_DECLARE_OP(Mish);

/// min(max(x + 3, 0), 6) / 6.
struct Hardsigmoid : UnaryOp<Hardsigmoid> {
  static constexpr std::string_view name = "hardsigmoid";
  static double of(double x) noexcept;
};
TENON_DECLARE_OP(Hardsigmoid);

/// x * hardsigmoid(x) (Howard et al., arXiv:1905.02244).
struct Hardswish : UnaryOp<Hardswish> {
  static constexpr std::string_view name = "hardswish";
  static double of(double x) noexcept;
};
TENON_DECLARE_OP(Hardswish);

/// x above zero, alpha * x below.
struct LeakyRelu : UnaryOp<LeakyRelu> {
  static constexpr std::string_view name = "leaky_relu";
  double alpha = 0.01;
  static constexpr auto fields = FieldList{field("alpha", &LeakyRelu::alpha)};
  double of(double x) const noexcept;
};
TENON_DECLARE_OP(LeakyRelu);

/// x above zero, alpha * (e^x - 1) below (Clevert et al., arXiv:1511.07289).
struct Elu : UnaryOp<Elu> {
  static constexpr std::string_view name = "elu";
  double alpha = 1.0;
  static constexpr auto fields = FieldList{field("alpha", &Elu::alpha)};
  double of(double x) const noexcept;
};
TENON_DECLARE_OP(Elu);

Tensor sigmoid(const Tensor& x,
               const std::source_location& where = std::source_location::current());
Tensor relu(const Tensor& x, const std::source_location& where = std::source_location::current());
Tensor relu6(const Tensor& x, const std::source_location& where = std::source_location::current());
Tensor silu(const Tensor& x, const std::source_location& where = std::source_location::current());
Tensor gelu(const Tensor& x, const std::source_location& where = std::source_location::current());
Tensor gelu_tanh(const Tensor& x,
                 const std::source_location& where = std::source_location::current());
Tensor gelu_derivative(const Tensor& x,
                       const std::source_location& where = std::source_location::current());
Tensor softplus(const Tensor& x,
                const std::source_location& where = std::source_location::current());
Tensor mish(const Tensor& x, const std::source_location& where = std::source_location::current());
Tensor hardsigmoid(const Tensor& x,
                   const std::source_location& where = std::source_location::current());
Tensor hardswish(const Tensor& x,
                 const std::source_location& where = std::source_location::current());
Tensor leaky_relu(const Tensor& x, double alpha = 0.01,
                  const std::source_location& where = std::source_location::current());
Tensor elu(const Tensor& x, double alpha = 1.0,
           const std::source_location& where = std::source_location::current());

// Composed element-wise.

/// 1.0507 (x above zero, 1.6733 (e^x - 1) below) (Klambauer et al., arXiv:1706.02515).
Tensor selu(const Tensor& x, const std::source_location& where = std::source_location::current());
/// max(x, 0) + min(alpha (e^(x / alpha) - 1), 0), alpha > 0 (Barron, arXiv:1704.07483).
/// Errc::bad_argument for another alpha.
Tensor celu(const Tensor& x, double alpha = 1.0,
            const std::source_location& where = std::source_location::current());
/// x above zero, slope * x below; `slope` broadcasts as in ONNX: one slope per channel of
/// [n, c, h, w] is [c, 1, 1] (He et al., arXiv:1502.01852).
Tensor prelu(const Tensor& x, const Tensor& slope,
             const std::source_location& where = std::source_location::current());
/// x * sigmoid(1.702 x), the sigmoid approximation of gelu (arXiv:1606.08415).
Tensor quick_gelu(const Tensor& x,
                  const std::source_location& where = std::source_location::current());
/// x above alpha, else 0.
Tensor thresholded_relu(const Tensor& x, double alpha = 1.0,
                        const std::source_location& where = std::source_location::current());
/// x / (1 + |x|).
Tensor softsign(const Tensor& x,
                const std::source_location& where = std::source_location::current());
/// log(sigmoid(x)), without overflow.
Tensor logsigmoid(const Tensor& x,
                  const std::source_location& where = std::source_location::current());
/// x - tanh(x).
Tensor tanhshrink(const Tensor& x,
                  const std::source_location& where = std::source_location::current());
/// x moved towards zero by lambda >= 0, and 0 within lambda of it.
Tensor softshrink(const Tensor& x, double lambda = 0.5,
                  const std::source_location& where = std::source_location::current());
/// x, and 0 within lambda of zero.
Tensor hardshrink(const Tensor& x, double lambda = 0.5,
                  const std::source_location& where = std::source_location::current());

/// Gated linear units of an array that holds both halves of an axis, the gate first:
/// activation(gate) * up (Shazeer, arXiv:2002.05202). PyTorch's `glu` has the gate second.
/// Errc::bad_argument for an axis of odd or unknown size. For two arrays: `glu`.
Tensor swiglu(const Tensor& x, const AxisRef& axis = -1,
              const std::source_location& where = std::source_location::current());
Tensor geglu(const Tensor& x, const AxisRef& axis = -1,
             const std::source_location& where = std::source_location::current());
Tensor reglu(const Tensor& x, const AxisRef& axis = -1,
             const std::source_location& where = std::source_location::current());

}  // namespace tenon
