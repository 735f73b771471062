#pragma once

#include <cstdint>
#include <string>

namespace tenon::text {

/// The integers from `low` to `high`, both included, in decimals without leading zeros, as choices in GBNF.
/// Requires low <= high.
std::string integers_between(std::int64_t low, std::int64_t high);

}  // namespace tenon::text
