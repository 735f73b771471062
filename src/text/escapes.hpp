#pragma once

#include <string>
#include <string_view>

namespace tenon::text {

/// Appends what a token of RWKV's vocabulary spells: \n, \t, \r and \xHH are one byte, and a
/// backslash stands before other characters that it takes literally. A cut escape is left out.
void append_unescaped(std::string& out, std::string_view token);

/// The byte of "<0x0A>", or -1.
int byte_of_token(std::string_view token) noexcept;

}  // namespace tenon::text
