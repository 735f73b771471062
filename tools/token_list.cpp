#include "token_list.hpp"

#include <tenon/error.hpp>

#include <charconv>
#include <string>

#include <fmt/format.h>

namespace tenon::tool {

std::vector<std::int32_t> parse_tokens(std::string_view text, std::string_view where) {
  std::vector<std::int32_t> tokens;
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  for (const char* at = begin; at != end;) {
    if (std::string_view(" \t\r\n,[]").find(*at) != std::string_view::npos) {
      ++at;
      continue;
    }
    std::int32_t token = 0;
    const auto [next, error] = std::from_chars(at, end, token);
    if (error != std::errc()) {
      throw Error(Errc::syntax, std::string(where),
                  fmt::format("no token id at byte {}", at - begin));
    }
    tokens.push_back(token);
    at = next;
  }
  return tokens;
}

}  // namespace tenon::tool
