#include "memory/large_pages.hpp"

#include <cstdint>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace tenon {

#if defined(__linux__)
namespace {

#ifdef MADV_COLLAPSE
constexpr int collapse = MADV_COLLAPSE;
#else
constexpr int collapse = 25;  // Linux 6.1; earlier ones refuse it
#endif

// Whole large pages inside the range: pages at its ends may contain other memory.
void advise(void* begin, std::size_t size_bytes, int advice) noexcept {
  const auto first = reinterpret_cast<std::uintptr_t>(begin);
  const std::uintptr_t inner = (first + large_page_bytes - 1) / large_page_bytes * large_page_bytes;
  const std::uintptr_t end = (first + size_bytes) / large_page_bytes * large_page_bytes;
  if (inner < end) ::madvise(reinterpret_cast<void*>(inner), end - inner, advice);
}

}  // namespace

void prefer_large_pages(void* begin, std::size_t size_bytes) noexcept {
  advise(begin, size_bytes, MADV_HUGEPAGE);
}

void move_to_large_pages(void* begin, std::size_t size_bytes) noexcept {
  advise(begin, size_bytes, MADV_HUGEPAGE);
  advise(begin, size_bytes, collapse);
}
#else
void prefer_large_pages(void*, std::size_t) noexcept {}
void move_to_large_pages(void*, std::size_t) noexcept {}
#endif

}  // namespace tenon
