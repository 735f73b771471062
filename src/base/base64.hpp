#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tenon {

/// Bytes in base64 (RFC 4648, section 4), with padding.
std::string to_base64(std::string_view bytes);

/// The bytes of a text in base64, with or without padding; nothing for another text.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace tenon
