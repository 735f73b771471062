#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tenon {

/// XXH3's 128 bits of all that was added, as 32 hexadecimal digits: to tell contents apart, not to
/// withstand those who forge them.
class Digest {
 public:
  Digest() { XXH3_128bits_reset(&state_); }

  void add(const void* bytes, std::size_t count) { XXH3_128bits_update(&state_, bytes, count); }
  /// The text and its size, so that texts cannot run into each other.
  void add(std::string_view text) {
    const std::uint64_t size = text.size();
    add(&size, sizeof size);
    add(text.data(), text.size());
  }

  std::string text() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(&state_);
    return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
  }

 private:
  XXH3_state_t state_;
};

/// The digest of these bytes.
inline std::string digest_of(const void* bytes, std::size_t count) {
  Digest digest;
  digest.add(bytes, count);
  return digest.text();
}
inline std::string digest_of(std::string_view bytes) {
  return digest_of(bytes.data(), bytes.size());
}

}  // namespace tenon
