#pragma once

#include <tenon/dtype.hpp>

#include <cstdint>
#include <optional>
#include <string_view>

namespace tenon::io::safetensors {

inline constexpr std::string_view metadata_key = "__metadata__";

/// The type spelled `word` ("F32", "BF16"), if Tenon has it.
std::optional<DType> find_dtype(std::string_view word) noexcept;
/// The word for a type, or nothing where safetensors has none.
std::string_view dtype_word(DType dtype) noexcept;
/// Rank of a type in the order of the reference implementation, whose writer puts the highest
/// first.
int dtype_order(DType dtype) noexcept;

}  // namespace tenon::io::safetensors
