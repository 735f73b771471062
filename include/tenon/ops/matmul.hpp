#pragma once

#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <source_location>
#include <span>
#include <string_view>
#include <vector>

namespace tenon {

/// Matrix product with numpy's rules: c[..., m, n] = sum_k a[..., m, k] * b[..., k, n].
///
/// Inputs    a: [..., M, K], b: [..., K, N]; integer or floating, one dtype for both. The leading
///           axes broadcast. A vector a is [1, K] and a vector b is [K, 1], and the axis of size 1
///           is dropped from the result.
/// Output    c: [..., M, N] of the same dtype; the tags that the kept axes have
/// Errors    C1 an operand of bool or of a block type     Errc::unsupported_dtype
///           C2 the dtypes differ                         Errc::shape_mismatch
///           C3 an operand of rank 0                      Errc::shape_mismatch
///           C4 sizes or tags of K differ                 Errc::shape_mismatch
///           C5 leading axes that do not broadcast, or whose tags differ
///                                                        Errc::shape_mismatch
///           C6 two axes of the result with one tag       Errc::shape_mismatch
/// Numerics  reference in f64, rounded once; integers wrap modulo 2^bits, as numpy's do. K = 0
///           gives exact zeros, M = 0 or N = 0 an empty result.
struct Matmul {
  static constexpr std::string_view name = "matmul";
  static constexpr int min_inputs = 2, max_inputs = 2;
  static constexpr FieldList<> fields{};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
  double flops(std::span<const Shape> in, const Shape& out) const;
};
TENON_DECLARE_OP(Matmul);

Tensor matmul(const Tensor& a, const Tensor& b,
              const std::source_location& where = std::source_location::current());

}  // namespace tenon
