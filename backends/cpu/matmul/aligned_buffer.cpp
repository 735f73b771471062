#include "aligned_buffer.hpp"

#include "../integer_math.hpp"
#include "base/immortal.hpp"
#include "base/sanitizers.hpp"
#include "memory/large_pages.hpp"

#include <tenon/error.hpp>
#include <tenon/fork_locked_mutex.hpp>
#include <tenon/memory_errors.hpp>

#include <cstdlib>
#include <mutex>
#include <new>
#include <string>

namespace tenon::cpu {

/// Memory that buffers are cut from front to back. Guarded by OpenSlab::mutex.
struct Slab {
  std::byte* data;
  std::size_t used = 0;
  int buffers = 0;
};

namespace {

constexpr std::size_t cache_line = 64;
constexpr std::size_t slab_bytes = std::size_t{64}
                                   << 20;  // of address space; pages come on first access
constexpr std::size_t largest =
    std::size_t{1} << 39;  // half a TiB: beyond it sanitizers abort in place of failing
constexpr std::size_t smallest_in_slab = std::size_t{16} << 10;

// The sanitizer can watch the ends of a buffer only if it has its own allocation.
constexpr bool uses_slabs = !has_address_sanitizer;

/// The slab that new buffers come from.
struct OpenSlab {
  ForkLockedMutex mutex;
  Slab* slab = nullptr;
};

OpenSlab& open_slab() {
  return process_wide([] { return OpenSlab(); });
}

// Null if there is no memory.
std::byte* allocate(std::size_t size) noexcept {
  const std::size_t alignment = size >= large_page_bytes ? large_page_bytes : cache_line;
  if (size > largest) return nullptr;
  const std::size_t rounded = round_up(size, alignment);
  auto* data = static_cast<std::byte*>(std::aligned_alloc(alignment, rounded));
  if (data != nullptr && alignment == large_page_bytes) prefer_large_pages(data, rounded);
  return data;
}

void destroy(Slab* slab) noexcept {
  std::free(slab->data);
  delete slab;
}

// Memory from the open slab or from a new one; null if there is none.
std::byte* cut(std::size_t size, Slab*& owner) {
  const std::size_t rounded = round_up(size, cache_line);
  OpenSlab& open = open_slab();
  const std::lock_guard lock(open.mutex);
  if (open.slab == nullptr || slab_bytes - open.slab->used < rounded) {
    std::byte* data = allocate(slab_bytes);
    if (data == nullptr) return nullptr;
    auto* fresh = new (std::nothrow) Slab{data};
    if (fresh == nullptr) {
      std::free(data);
      return nullptr;
    }
    open.slab = fresh;
  }
  owner = open.slab;
  std::byte* place = owner->data + owner->used;
  owner->used += rounded;
  ++owner->buffers;
  return place;
}

void give_back(Slab* slab) noexcept {
  OpenSlab& open = open_slab();
  const std::lock_guard lock(open.mutex);
  if (--slab->buffers != 0) return;
  if (slab == open.slab) open.slab = nullptr;
  destroy(slab);
}

}  // namespace

AlignedBuffer::AlignedBuffer(std::size_t size_bytes) : size_(size_bytes) {
  if (size_bytes == 0) return;
  if (uses_slabs && size_bytes >= smallest_in_slab && size_bytes <= slab_bytes / 2) {
    data_ = with_memory_errors("AlignedBuffer", [&] { return cut(size_bytes, slab_); });
  }
  if (data_ == nullptr) data_ = allocate(size_bytes);
  if (data_ == nullptr) {
    throw Error(Errc::out_of_memory, "AlignedBuffer",
                std::to_string(size_bytes) + " bytes could not be allocated");
  }
}

AlignedBuffer::~AlignedBuffer() {
  if (slab_ != nullptr) {
    give_back(slab_);
  } else {
    std::free(data_);
  }
}

}  // namespace tenon::cpu
