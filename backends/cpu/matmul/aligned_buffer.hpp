#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace tenon::cpu {

/// Owned memory aligned to 64 bytes (2 MiB and huge pages when large). Contents start undefined.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  /// Throws Errc::out_of_memory.
  explicit AlignedBuffer(std::size_t size_bytes);
  ~AlignedBuffer();
  AlignedBuffer(AlignedBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  std::byte* data() noexcept { return data_; }
  const std::byte* data() const noexcept { return data_; }
  std::size_t size_bytes() const noexcept { return size_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace tenon::cpu
