#pragma once

#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <source_location>
#include <span>
#include <string_view>
#include <vector>

namespace tenon {

/// The recurrence of selective state-space models. Over the steps s of each row b, for channel p of
/// head j, whose group is g = j / (J / G):
///
///   h[n, j, p] = exp(dt[s, j] * a[j, n]) * h[n, j, p] + dt[s, j] * x[s, j, p] * in[s, g, n]
///   y[s, j, p] = sum_n out[s, g, n] * h[n, j, p]
///
/// Mamba has heads of one channel, Mamba-2 an `a` of one number for each head. With lengths, steps
/// from lengths[b] on leave the state of row b as it is, and give y = 0: padding at the end.
///
/// Inputs    x: [B, S, J, P]; dt: [B, S, J]; a: [J, N] or [J, 1]
///           in, out: [B, S, G, N]; state: [B, N, J, P]; all f32 or all f64
///           lengths: i32[B], when has_lengths
/// Output    [B, S + N, J, P]: y, behind it the state after the last step; their dtype, no tags.
///           The builder gives both.
/// Errors    C1 wrong number of inputs for the flag                Errc::bad_argument
///           C2 x neither f32 nor f64, lengths not i32             Errc::unsupported_dtype
///           C3 another dtype than x's                             Errc::shape_mismatch
///           C4 ranks other than those above                       Errc::shape_mismatch
///           C5 sizes of B, S, J, P, G or N differ                 Errc::shape_mismatch
///           C6 N = 0, G = 0, or J not a multiple of G             Errc::shape_mismatch
///           when run: a length outside [0, S]                     Errc::out_of_range
/// Numerics  reference in f64, rounded once
/// Gradient  that of the same recurrence as a wkv7 with a = b = 0
/// Source    Gu and Dao, Mamba, arXiv:2312.00752, algorithm 2, with the Euler step of its section 3.6 for
///           `in`; heads and groups: Dao and Gu, Mamba-2, arXiv:2405.21060, section 7
struct SelectiveScan {
  static constexpr std::string_view name = "selective_scan";
  static constexpr int min_inputs = 6, max_inputs = 7;
  static constexpr OpTraits traits{};
  bool has_lengths = false;
  static constexpr auto fields = FieldList{field("has_lengths", &SelectiveScan::has_lengths)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
  double flops(std::span<const Shape> in, const Shape& out) const;
};
TENON_DECLARE_OP(SelectiveScan);

struct SelectiveScanResult {
  Tensor y;      ///< [B, S, J, P]
  Tensor state;  ///< [B, N, J, P]
};

/// An empty `lengths` means none.
SelectiveScanResult selective_scan(
    const Tensor& x, const Tensor& dt, const Tensor& a, const Tensor& in, const Tensor& out,
    const Tensor& state, const Tensor& lengths = {},
    const std::source_location& where = std::source_location::current());

}  // namespace tenon
