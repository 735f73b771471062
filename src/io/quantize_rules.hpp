#pragma once

#include <tenon/io/file.hpp>
#include <tenon/io/metadata.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

/// Which element type each tensor of a quantised model gets.
///
/// Source: the rules of llama.cpp's src/llama-quant.cpp as of July 2026.
namespace tenon::io::quantize_rules {

enum class Mix : std::uint8_t {
  f32,
  f16,
  bf16,
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q8_0,
  q2_k,
  q2_k_s,
  q3_k_s,
  q3_k_m,
  q3_k_l,
  q4_k_s,
  q4_k_m,
  q5_k_s,
  q5_k_m,
  q6_k,
  iq1_s,
  iq1_m,
  iq2_xxs,
  iq2_xs,
  iq2_s,
  iq2_m,
  iq3_xxs,
  iq3_xs,
  iq3_s,
  iq3_m,
  iq4_nl,
  iq4_xs,
  tq1_0,
  tq2_0,
  q1_0,
  q2_0,
  mxfp4_moe,
};

struct MixFacts {
  std::string_view name;
  Mix mix;
  DType main;
  std::uint32_t file_type;  ///< the number under general.file_type
};

std::span<const std::string_view> mix_names() noexcept;
/// The mix of a name, in which "q4_k" stands for "q4_k_m" and so on.
const MixFacts* find_mix(std::string_view name) noexcept;
struct Choice {
  DType type;
  bool fallback = false;  ///< rows are no whole number of the wanted type's blocks
};

struct ChoiceOptions {
  bool pure = false;            ///< the main type for all that are quantised
  bool has_importance = false;  ///< an importance matrix: some tensors need no more bits then
};

/// One for each tensor.
std::vector<Choice> choose_types(std::span<const TensorEntry> tensors, const Metadata& metadata,
                                 const MixFacts& mix, const ChoiceOptions& options);

}  // namespace tenon::io::quantize_rules
