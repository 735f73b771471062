#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace tenon::tool {

/// Token ids from text: integers apart by commas or white space, brackets allowed around them, so
/// that "1,2,3" and a JSON array both read. Errc::syntax with the column of what is neither.
std::vector<std::int32_t> parse_tokens(std::string_view text, std::string_view where);

}  // namespace tenon::tool
