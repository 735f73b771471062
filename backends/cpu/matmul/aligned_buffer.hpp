#pragma once

#include <cstddef>
#include <utility>

namespace tenon::cpu {

struct Slab;

/// Owned memory aligned to 64 bytes. Contents start undefined.
///
/// Buffers of 16 KiB and more share slabs of huge pages where the system has them: the weights of a
/// layer are smaller than a huge page, and reading them page by small page costs a third of the
/// memory's bandwidth. A slab's memory goes back to the system when its last buffer is gone.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  /// Throws Errc::out_of_memory.
  explicit AlignedBuffer(std::size_t size_bytes);
  ~AlignedBuffer();
  AlignedBuffer(AlignedBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        slab_(std::exchange(other.slab_, nullptr)) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(slab_, other.slab_);
    return *this;
  }

  std::byte* data() noexcept { return data_; }
  const std::byte* data() const noexcept { return data_; }
  std::size_t size_bytes() const noexcept { return size_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  Slab* slab_ = nullptr;  ///< null if the memory is the buffer's own
};

}  // namespace tenon::cpu
