#include "memory/kept_memory.hpp"

#include "base/immortal.hpp"
#include "base/sanitizers.hpp"

#include <tenon/fork_locked_mutex.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <mutex>
#include <utility>

namespace tenon {
namespace {

struct Block {
  void* begin;
  std::uint64_t size;
};

class Shelf {
 public:
  void replace(const std::vector<std::uint64_t>& old, const std::vector<std::uint64_t>& sizes) {
    const std::scoped_lock lock(mutex_);
    wanted_.reserve(wanted_.size() + sizes.size());
    blocks_.reserve(wanted_.size() + sizes.size());  // put() takes no memory
    for (const std::uint64_t size : old) wanted_.erase(std::ranges::find(wanted_, size));
    wanted_.insert(wanted_.end(), sizes.begin(), sizes.end());
    for (auto block = blocks_.begin(); block != blocks_.end();) {
      if (blocks_of(block->size) <= wanted_of(block->size)) {
        ++block;
      } else {
        std::free(block->begin);
        block = blocks_.erase(block);
      }
    }
  }

  bool put(const Block& block) noexcept {
    const std::scoped_lock lock(mutex_);
    if (blocks_of(block.size) >= wanted_of(block.size)) return false;
    blocks_.push_back(block);
    return true;
  }

  void* take(std::uint64_t size) noexcept {
    const std::scoped_lock lock(mutex_);
    const auto found = std::ranges::find(blocks_, size, &Block::size);
    if (found == blocks_.end()) return nullptr;
    void* const begin = found->begin;
    blocks_.erase(found);
    return begin;
  }

 private:
  std::ptrdiff_t blocks_of(std::uint64_t size) const noexcept {
    return std::ranges::count(blocks_, size, &Block::size);
  }
  std::ptrdiff_t wanted_of(std::uint64_t size) const noexcept {
    return std::ranges::count(wanted_, size);
  }

  ForkLockedMutex mutex_;
  std::vector<std::uint64_t> wanted_;
  std::vector<Block> blocks_;
};

constexpr bool keeps_small_blocks = !has_address_sanitizer;

/// The small blocks that were freed last.
class SmallBlocks {
 public:
  void put(const Block& block) noexcept {
    void* dropped = nullptr;
    {
      const std::scoped_lock lock(mutex_);
      if (count_ == blocks_.size()) {
        dropped = blocks_.front().begin;
        remove(0);
      }
      blocks_[count_++] = block;
    }
    std::free(dropped);
  }

  void* take(std::uint64_t size) noexcept {
    const std::scoped_lock lock(mutex_);
    for (std::size_t i = count_; i-- > 0;) {
      if (blocks_[i].size != size) continue;
      void* const begin = blocks_[i].begin;
      remove(i);
      return begin;
    }
    return nullptr;
  }

 private:
  void remove(std::size_t i) noexcept {
    std::shift_left(blocks_.begin() + static_cast<std::ptrdiff_t>(i),
                    blocks_.begin() + static_cast<std::ptrdiff_t>(count_), 1);
    --count_;
  }

  ForkLockedMutex mutex_;
  std::array<Block, 16> blocks_{};  // the last freed at the end
  std::size_t count_ = 0;
};

// Never destroyed, like the region whose memory this is.
SmallBlocks& small_blocks() {
  return process_wide([] { return SmallBlocks(); });
}

Shelf& shelf() {
  return process_wide([] { return Shelf(); });
}

}  // namespace

KeptMemory::~KeptMemory() { keep({}); }

void KeptMemory::keep(std::vector<std::uint64_t> sizes) {
  if (sizes == sizes_) return;
  shelf().replace(sizes_, sizes);
  sizes_ = std::move(sizes);
}

void* take_kept_memory(std::uint64_t size) noexcept {
  if (size >= kept_bytes_from) return shelf().take(size);
  return keeps_small_blocks ? small_blocks().take(size) : nullptr;
}

bool keep_memory(void* begin, std::uint64_t size) noexcept {
  if (size >= kept_bytes_from) return shelf().put({begin, size});
  if (keeps_small_blocks) small_blocks().put({begin, size});
  return keeps_small_blocks;
}

}  // namespace tenon
