#pragma once

#include <tenon/dtype.hpp>

#include <cstdint>
#include <optional>
#include <string_view>

/// Constants and types of the GGUF format (ggml/docs/gguf.md), for its reader and its writer.
namespace tenon::io::gguf {

inline constexpr std::string_view magic = "GGUF";
inline constexpr std::uint32_t oldest_version = 2;  // version 1 had 32-bit lengths
inline constexpr std::uint32_t newest_version = 3;
inline constexpr std::string_view alignment_key = "general.alignment";
inline constexpr std::uint64_t default_alignment = 32;
inline constexpr std::uint64_t min_alignment = 8;
inline constexpr int max_rank = 4;

/// The type with this id, if Tenon has it.
std::optional<DType> find_dtype(std::uint32_t id) noexcept;
/// The id of a type, if GGUF has it.
std::optional<std::uint32_t> find_id(DType dtype) noexcept;
/// Name of a type that GGUF knows and Tenon does not ("iq2_xxs"), or nothing.
std::string_view foreign_name(std::uint32_t id) noexcept;

/// Whether this is a valid alignment of tensors: a power of two from `min_alignment` to `max`.
bool is_alignment(std::uint64_t alignment, std::uint64_t max) noexcept;

}  // namespace tenon::io::gguf
