#pragma once

#include <cstddef>
#include <cstdint>

namespace tenon::program_limits {

// Limits of a program, checked before anything is computed: an untrusted text must not cost more
// time or memory than a valid one of its size. docs/text-ir.md lists them.

inline constexpr std::size_t text_bytes = std::size_t{8} << 20;
/// Instructions of all functions, each counted as often as calls inline it.
inline constexpr std::int64_t instructions = 1'000'000;
inline constexpr std::int64_t elements = std::int64_t{1} << 40;  ///< of one tensor
inline constexpr std::size_t operands =
    16384;  ///< of one instruction; also a function's parameters
inline constexpr int call_depth = 64;
/// Constant names of the entry function, loops unrolled.
inline constexpr std::int64_t constants = std::int64_t{1} << 20;
inline constexpr std::size_t name_bytes = 255;  ///< of a value, a function or a size
inline constexpr std::size_t errors = 100;      ///< reported of one program

// Of the text alone.
inline constexpr std::size_t line_bytes = std::size_t{1} << 20;
inline constexpr std::size_t words = 4096;  ///< different names of sizes and words in attributes
inline constexpr int bracket_depth = 16;
inline constexpr std::size_t excerpt_bytes = 120;  ///< of a source line quoted in an error

}  // namespace tenon::program_limits
