#include "escapes.hpp"

#include <cstddef>

namespace tenon::text {
namespace {

int hexadecimal(char c) noexcept {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

}  // namespace

void append_unescaped(std::string& out, std::string_view token) {
  for (std::size_t i = 0; i < token.size(); ++i) {
    if (token[i] != '\\') {
      out.push_back(token[i]);
      continue;
    }
    if (++i == token.size()) return;
    switch (token[i]) {
      case 'n':
        out.push_back('\n');
        break;
      case 't':
        out.push_back('\t');
        break;
      case 'r':
        out.push_back('\r');
        break;
      case 'x': {
        if (token.size() - i < 3) return;
        const int high = hexadecimal(token[i + 1]);
        const int low = hexadecimal(token[i + 2]);
        if (high >= 0 && low >= 0) out.push_back(static_cast<char>(high * 16 + low));
        i += 2;
        break;
      }
      default:
        out.push_back(token[i]);
    }
  }
}

int byte_of_token(std::string_view token) noexcept {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  const int high = hexadecimal(token[3]);
  const int low = hexadecimal(token[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

}  // namespace tenon::text
