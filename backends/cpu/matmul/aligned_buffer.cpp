#include "aligned_buffer.hpp"

#include <tenon/error.hpp>

#include <cstdlib>
#include <string>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace tenon::cpu {
namespace {

constexpr std::size_t cache_line = 64;
constexpr std::size_t huge_page = std::size_t{2} << 20;

}  // namespace

AlignedBuffer::AlignedBuffer(std::size_t size_bytes) : size_(size_bytes) {
  if (size_bytes == 0) return;
  const std::size_t alignment = size_bytes >= huge_page ? huge_page : cache_line;
  if (size_bytes <= SIZE_MAX - alignment) {
    const std::size_t rounded = (size_bytes + alignment - 1) / alignment * alignment;
    data_ = static_cast<std::byte*>(std::aligned_alloc(alignment, rounded));
#if defined(__linux__)
    // A hint; where huge pages are off, nothing is lost.
    if (data_ != nullptr && alignment == huge_page) ::madvise(data_, rounded, MADV_HUGEPAGE);
#endif
  }
  if (data_ == nullptr) {
    throw Error(Errc::out_of_memory, "AlignedBuffer",
                std::to_string(size_bytes) + " bytes could not be allocated");
  }
}

AlignedBuffer::~AlignedBuffer() { std::free(data_); }

}  // namespace tenon::cpu
