// The memory of a prepared constant.
#pragma once

#include "matmul/aligned_buffer.hpp"

#include <tenon/prepared_cache.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

namespace tenon::cpu {

/// Bytes aligned to 64: own ones, to be filled, or those that a PreparedCache kept.
class KeptBytes {
 public:
  /// Own ones, undefined. Errors: out_of_memory.
  explicit KeptBytes(std::size_t size_bytes) : own_(size_bytes), bytes_(own_.data(), size_bytes) {}
  explicit KeptBytes(PreparedCache::Bytes kept)
      : owner_(std::move(kept.owner)), bytes_(kept.bytes) {}

  std::byte* own() noexcept { return own_.data(); }
  const std::byte* data() const noexcept { return bytes_.data(); }
  std::span<const std::byte> span() const noexcept { return bytes_; }

 private:
  AlignedBuffer own_;
  std::shared_ptr<const void> owner_;
  std::span<const std::byte> bytes_;
};

/// Whether kept bytes are of this size, and aligned.
inline bool is_usable(std::span<const std::byte> bytes, std::size_t size_bytes) noexcept {
  return bytes.size() == size_bytes && reinterpret_cast<std::uintptr_t>(bytes.data()) % 64 == 0;
}

}  // namespace tenon::cpu
