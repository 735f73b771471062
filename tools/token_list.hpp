#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace tenon::tool {

/// Parses token ids: integers separated by commas or white space, optionally in brackets, so that
/// "1,2,3" and a JSON array are both accepted. Errc::syntax, with the column.
std::vector<std::int32_t> parse_tokens(std::string_view text, std::string_view where);

}  // namespace tenon::tool
