#pragma once

#include "schema_value.hpp"

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tenon::text {

enum class LooseState : std::uint8_t {
  whole,
  cut,        ///< the text ends within the value
  malformed,  ///< no value
};

/// Reads a value as language models write it, from text[at], and moves `at` behind it: JSON, with what models and Python
/// have beside: texts in single quotes or between two `quote` (Gemma's <|"|>), line breaks in texts, True, False and
/// None, names without quotes as keys, tuples, a comma behind the last item. White space before it is skipped. Values
/// within more than 100 others are malformed.
LooseState read_loose(std::string_view text, std::size_t& at, SchemaValue& value,
                      std::string_view quote = {});

/// The index of the first character from `at` that is no white space, or the size.
std::size_t skip_space(std::string_view text, std::size_t at) noexcept;

}  // namespace tenon::text
