#include "byte_alphabet.hpp"

#include "base/utf8.hpp"

#include <cstddef>

namespace tenon::text {

void append_in_alphabet(std::string& out, std::string_view bytes) {
  for (const char byte : bytes) {
    append_utf8(out, byte_alphabet.characters[static_cast<unsigned char>(byte)]);
  }
}

void append_from_alphabet(std::string& out, std::string_view token) {
  const std::size_t old_size = out.size();
  for (std::size_t i = 0; i < token.size();) {
    const CodePoint c = code_point_at(token, i);
    if (!c.is_valid || c.value >= byte_alphabet.bytes.size() || byte_alphabet.bytes[c.value] < 0) {
      out.resize(old_size);
      out.append(token);
      return;
    }
    out.push_back(static_cast<char>(byte_alphabet.bytes[c.value]));
    i += c.length;
  }
}

}  // namespace tenon::text
