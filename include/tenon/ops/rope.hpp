#pragma once

#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <source_location>
#include <span>
#include <string_view>
#include <vector>

namespace tenon {

/// Rotary position embedding. With n = dims and the angle a_i = position * f_i, for i < n/2:
///
///   y[p] = m * (x[p] * cos a_i - x[q] * sin a_i),  y[q] = m * (x[q] * cos a_i + x[p] * sin a_i)
///
/// on the pair (p, q) = (2i, 2i + 1) if interleaved, (i, i + n/2) otherwise; elements from n on
/// pass through. The frequencies are f_i = scaled(theta^(-2i/n)) / freq_factors[i].
///
/// With sections (multimodal positions: time, height, width), a step has P positions, one for each
/// section, and pair i takes its angle from one of them: where sections follow each other, pairs
/// [0, sections[0]) from the first, the next sections[1] pairs from the second and so on
/// (Qwen2-VL); where sections_interleaved, pair i from position i % P if i < P * sections[i % P],
/// else from the first (Qwen3-VL).
///
/// Inputs    x: [B, S, H, D]; f16, bf16, f32 or f64
///           positions: [S] or [B, S]; with sections [P, S] or [B, P, S]; i32
///           freq_factors: [n/2]; f32; when has_freq_factors
/// Output    y: type of x; may share its buffer
/// Scaling   of a frequency f with wavelength w = 2 pi / f, context c = original_context:
///   none    f (also the empty word)
///   linear  f / factor
///   llama3  f for w < c/high_freq_factor, f / factor for w > c/low_freq_factor, between them
///           (1 - s) * f / factor + s * f, s = (c/w - low_freq_factor) / (high_freq_factor -
///           low_freq_factor)
///   yarn    r_i * f / factor + (1 - r_i) * f, r_i = clamp((i - lo) / (hi - lo), 0, 1),
///           lo = max(floor(turn(beta_fast)), 0), hi = min(ceil(turn(beta_slow)), n - 1), or
///           lo + 0.001 where these are equal, turn(b) = n ln(c / (2 pi b)) / (2 ln theta)
///   m is attention_factor; 0 stands for 1, with yarn for 0.1 ln(factor) + 1 (1 if factor <= 1).
/// Errors    C1 wrong number of inputs for the flag                   Errc::bad_argument
///           C2 x not of rank 4, positions of another rank, freq_factors not of rank 1
///                                                                    Errc::shape_mismatch
///           C3 x not floating, positions not i32, freq_factors not f32
///                                                                    Errc::unsupported_dtype
///           C4 positions do not match S, B or P, or freq_factors n/2 Errc::shape_mismatch
///           C5 dims negative, odd or above D                         Errc::bad_attribute
///           C6 an unknown scaling; theta or a number that the scaling uses not positive and
///              finite; for llama3 high_freq_factor <= low_freq_factor; for yarn theta = 1;
///              a section negative; sections that do not sum up to n/2
///                                                                    Errc::bad_attribute
/// Numerics  reference in f64
/// Source    Su et al., RoFormer (2021); Peng et al., YaRN (2023); scaling as in
///           modeling_rope_utils.py of Hugging Face transformers, the pairing
///           (i, i + n/2) as in its models; sections: Wang et al., Qwen2-VL (2024), as in
///           modeling_qwen2_vl.py and modeling_qwen3_vl.py
struct Rope {
  static constexpr std::string_view name = "rope";
  static constexpr int min_inputs = 2, max_inputs = 3;
  static constexpr OpTraits traits{.in_place_inputs = 1};
  double theta = 10000;
  std::int64_t dims = 0;  ///< 0: all of D
  bool interleaved = false;
  Name scaling{};
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  std::int64_t original_context = 0;
  double attention_factor = 0;
  double beta_fast = 32;
  double beta_slow = 1;
  bool has_freq_factors = false;
  IntList sections{};
  bool sections_interleaved = false;
  static constexpr auto fields =
      FieldList{field("theta", &Rope::theta),
                field("dims", &Rope::dims),
                field("interleaved", &Rope::interleaved),
                field("scaling", &Rope::scaling),
                field("factor", &Rope::factor),
                field("low_freq_factor", &Rope::low_freq_factor),
                field("high_freq_factor", &Rope::high_freq_factor),
                field("original_context", &Rope::original_context),
                field("attention_factor", &Rope::attention_factor),
                field("beta_fast", &Rope::beta_fast),
                field("beta_slow", &Rope::beta_slow),
                field("has_freq_factors", &Rope::has_freq_factors),
                field("sections", &Rope::sections),
                field("sections_interleaved", &Rope::sections_interleaved)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;

  /// f_i for i < rotated_dims / 2, before freq_factors; the attributes must be valid. All backends
  /// use these frequencies.
  std::vector<double> frequencies(std::int64_t rotated_dims) const;
  /// Which of a step's positions turns each pair; zeros without sections.
  std::vector<int> section_of_pairs(std::int64_t pairs) const;
  /// m, the factor of the rotated pairs.
  double magnitude() const;
};
TENON_DECLARE_OP(Rope);

/// `rope(q, positions, {.theta = 1e6})`. An empty `freq_factors` means none; has_freq_factors of
/// `options` is ignored and set accordingly.
Tensor rope(const Tensor& x, const Tensor& positions, const Rope& options = {},
            const Tensor& freq_factors = {},
            const std::source_location& where = std::source_location::current());

}  // namespace tenon
