#pragma once

#include "schema_value.hpp"

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

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

/// Of members with one name the last one counts, at the place of the first, as in Python. In n log n of their number.
void drop_repeated(std::vector<SchemaValue::Member>& members);

/// Without white space at its ends.
std::string_view trimmed(std::string_view text) noexcept;

/// The index of the first character from `at` that is no white space, or the size.
std::size_t skip_space(std::string_view text, std::size_t at) noexcept;

}  // namespace tenon::text
