#pragma once

#include <charconv>
#include <cstdint>
#include <string_view>

namespace tenon {

/// Of a tensor of a GGUF file's layer, "blk.<number>.", the number; -1 of others.
inline std::int64_t block_number(std::string_view name) noexcept {
  constexpr std::string_view prefix = "blk.";
  std::int64_t number = -1;
  if (name.starts_with(prefix)) {
    std::from_chars(name.data() + prefix.size(), name.data() + name.size(), number);
  }
  return number;
}

}  // namespace tenon
