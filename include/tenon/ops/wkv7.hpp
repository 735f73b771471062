#pragma once

#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <source_location>
#include <span>
#include <string_view>
#include <vector>

namespace tenon {

/// The recurrence of RWKV-7's time mix. Over the steps s of each row b, for value p of head j:
///
///   h[n, j, p] = w[s, j, n] * h[n, j, p] + b[s, j, n] * sum_i a[s, j, i] * h[i, j, p]
///                + k[s, j, n] * v[s, j, p]
///   y[s, j, p] = sum_n r[s, j, n] * h[n, j, p]
///
/// where the sum over i is of the state before the step. With lengths, steps from lengths[b] on leave
/// the state of row b as it is, and give y = 0: padding at the end. With every_state, the result is h
/// after each step instead of y, and r is not read.
///
/// Inputs    r, w, k: [B, S, J, N]; v: [B, S, J, P]; a, b: [B, S, J, N]
///           state: [B, N, J, P]; all f32 or all f64
///           lengths: i32[B], when has_lengths
/// Output    [B, S + N, J, P]: y, behind it the state after the last step; their dtype, no tags.
///           The builder gives both. With every_state: [B, S, N, J, P]
/// Errors    C1 wrong number of inputs for the flag                Errc::bad_argument
///           C2 r neither f32 nor f64, lengths not i32             Errc::unsupported_dtype
///           C3 another dtype than r's                             Errc::shape_mismatch
///           C4 ranks other than those above                       Errc::shape_mismatch
///           C5 sizes of B, S, J, P or N differ                    Errc::shape_mismatch
///           C6 N = 0                                              Errc::shape_mismatch
///           when run: a length outside [0, S]                     Errc::out_of_range
/// Numerics  reference in f64, rounded once
/// Gradient  from all states, [B, S, N, J, P], which its program computes again and keeps; that of the
///           form with every_state is a loop over the steps from the last to the first
/// Source    Peng et al., RWKV-7 "Goose", arXiv:2503.14456, equations 1 and 2, the state transposed
struct Wkv7 {
  static constexpr std::string_view name = "wkv7";
  static constexpr int min_inputs = 7, max_inputs = 8;
  static constexpr OpTraits traits{};
  bool has_lengths = false;
  bool every_state = false;
  static constexpr auto fields =
      FieldList{field("has_lengths", &Wkv7::has_lengths), field("every_state", &Wkv7::every_state)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
  double flops(std::span<const Shape> in, const Shape& out) const;
};
TENON_DECLARE_OP(Wkv7);

/// The operands of a step, for `wkv7`.
struct Wkv7Inputs {
  Tensor r, w, k, v, a, b;
};

struct Wkv7Result {
  Tensor y;      ///< [B, S, J, P]
  Tensor state;  ///< [B, N, J, P]
};

/// An empty `lengths` means none.
Wkv7Result wkv7(const Wkv7Inputs& in, const Tensor& state, const Tensor& lengths = {},
                const std::source_location& where = std::source_location::current());

/// The state after each step, [B, S, N, J, P].
Tensor wkv7_states(const Wkv7Inputs& in, const Tensor& state, const Tensor& lengths = {},
                   const std::source_location& where = std::source_location::current());

}  // namespace tenon
