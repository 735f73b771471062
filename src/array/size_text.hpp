// Sizes in messages, where they may be symbols.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace tenon {

/// "4"; the name of a symbol; "_" for an unknown size.
std::string size_text(std::int64_t size);
/// "[2, S, _]".
std::string sizes_text(std::span<const std::int64_t> sizes);

}  // namespace tenon
