#include "memory/ledger.hpp"

#include <tenon/error.hpp>
#include <tenon/memory.hpp>

#include <algorithm>
#include <bit>
#include <limits>
#include <mutex>
#include <new>

#include <fmt/format.h>

namespace tenon {
namespace {

constexpr std::uint64_t max_bytes =
    static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());

/// Size of the pieces of a copy between two memories that the CPU cannot address.
constexpr std::uint64_t staging_bytes = std::uint64_t{1} << 20;

}  // namespace

MemRegion::MemRegion(std::string name) : name_(std::move(name)), ledger_(new Ledger) {
  ledger_->region = this;
}

MemRegion::~MemRegion() {
  const std::scoped_lock lock(ledger_->mutex);
  ledger_->region = nullptr;
}

Device& MemRegion::device() const {
  if (device_ == nullptr) {
    throw Error(Errc::call_order, "MemRegion", "no device has adopted region '" + name_ + "' yet");
  }
  return *device_;
}

void MemRegion::reserve(const MemPtr&, std::uint64_t) {}
void MemRegion::unreserve(const MemPtr&, std::uint64_t) noexcept {}

void MemRegion::throw_no_room(std::uint64_t size, std::uint64_t alignment) const {
  throw Error(is_host() ? Errc::out_of_memory : Errc::out_of_device_memory, name_,
              fmt::format("no room for {} bytes aligned to {}", size, alignment));
}

void MemRegion::copy(const MemPtr& to, const MemRegion& source, const MemPtr& from,
                     std::uint64_t size) {
  if (to.has_cptr()) return source.read(to.cptr(), from, size);
  if (from.has_cptr()) return write(to, from.cptr(), size);
  std::vector<std::byte> staging(std::min(size, staging_bytes));
  for (std::uint64_t done = 0; done < size;) {
    const std::uint64_t piece = std::min(size - done, staging_bytes);
    const auto at = static_cast<std::int64_t>(done);
    source.read(staging.data(), from + at, piece);
    write(to + at, staging.data(), piece);
    done += piece;
  }
}

MemChunk MemRegion::malloc(std::uint64_t size, bool auto_free, std::uint64_t alignment) {
  if (size == 0) throw Error(Errc::bad_argument, name_, "a chunk of 0 bytes");
  if (!std::has_single_bit(alignment)) {
    throw Error(Errc::bad_argument, name_,
                fmt::format("alignment {} is no power of two", alignment));
  }
  if (size > max_bytes || alignment > max_bytes) throw_no_room(size, alignment);
  const MemPtr begin = allocate(size, alignment);
  try {
    paint_redzones(begin, size);
    return enter(begin, size, {}, auto_free, false);
  } catch (...) {
    release(begin, size);
    throw;
  }
}

MemChunk MemRegion::malloc_at(const MemPtr& begin, std::uint64_t size, ChunkDeleter deleter,
                              bool auto_free) {
  if (size == 0) throw Error(Errc::bad_argument, name_, "a chunk of 0 bytes");
  if (begin.is_null()) throw Error(Errc::bad_argument, name_, "a chunk at null");
  if (size > max_bytes) {
    throw Error(Errc::out_of_range, name_, fmt::format("a chunk of {} bytes", size));
  }
  static_cast<void>(begin + static_cast<std::int64_t>(size - 1));  // refuses to wrap
  reserve(begin, size);
  try {
    return enter(begin, size, std::move(deleter), auto_free, true);
  } catch (...) {
    unreserve(begin, size);
    throw;
  }
}

MemChunk MemRegion::enter(const MemPtr& begin, std::uint64_t size, ChunkDeleter deleter,
                          bool auto_free, bool placed) try {
  const bool wrapped = placed && deleter && is_host();
  const Ledger::Key key = Ledger::key(wrapped, begin);
  DevicePtr device = device_ != nullptr ? device_->weak_from_this().lock() : nullptr;

  const std::scoped_lock lock(ledger_->mutex);
  if (placed && !wrapped) {
    if (const auto other = ledger_->find_overlap(key.second, size); other != ledger_->table.end()) {
      throw Error(Errc::overlap, name_,
                  fmt::format("{} bytes at {} overlap {} bytes at {}", size, to_string(begin),
                              other->second.size, to_string(other->second.begin)));
    }
  }
  const auto record = ledger_->table.emplace(
      key, Ledger::Record{
               begin, size, std::move(deleter), auto_free, placed, ++ledger_->generations, {}});
  std::shared_ptr<MemChunk::Node> node;
  try {
    node = std::make_shared<MemChunk::Node>(ledger_, std::move(device), record);
  } catch (...) {
    ledger_->table.erase(record);
    throw;
  }
  record->second.node = node;
  if (!wrapped) {
    ledger_->used_bytes += size;
    ledger_->peak_bytes = std::max(ledger_->peak_bytes, ledger_->used_bytes);
  }
  return MemChunk(std::move(node));
} catch (const std::bad_alloc&) {
  throw Error(Errc::out_of_memory, name_, "no room to enter a chunk");
}

// Under the mutex. Null for a chunk whose last handle is going right now.
std::shared_ptr<MemChunk::Node> MemRegion::Ledger::node_of(Table::iterator record,
                                                           const DevicePtr& device) const {
  std::shared_ptr<MemChunk::Node> node = record->second.node.lock();
  if (node == nullptr && !record->second.auto_free) {
    node = std::make_shared<MemChunk::Node>(region->ledger_, device, record);
    record->second.node = node;
  }
  return node;
}

std::vector<MemChunk> MemRegion::all_chunks() const {
  const DevicePtr device = device_ != nullptr ? device_->weak_from_this().lock() : nullptr;
  std::vector<MemChunk> chunks;  // outlives the lock: the last handle of a chunk takes it again
  {
    const std::scoped_lock lock(ledger_->mutex);
    chunks.reserve(ledger_->table.size());
    for (auto record = ledger_->table.begin(); record != ledger_->table.end(); ++record) {
      if (auto node = ledger_->node_of(record, device)) chunks.push_back(MemChunk(std::move(node)));
    }
  }
  std::ranges::sort(chunks, {}, [](const MemChunk& chunk) {
    return Ledger::key(false, chunk.node_->begin).second;
  });
  return chunks;
}

std::optional<MemChunk> MemRegion::chunk(const MemPtr& begin, std::uint64_t size) const {
  const DevicePtr device = device_ != nullptr ? device_->weak_from_this().lock() : nullptr;
  const std::scoped_lock lock(ledger_->mutex);
  for (const bool wrapped : {false, true}) {
    auto [record, end] = ledger_->table.equal_range(Ledger::key(wrapped, begin));
    for (; record != end; ++record) {
      if (record->second.begin != begin || record->second.size != size) continue;
      if (auto node = ledger_->node_of(record, device)) return MemChunk(std::move(node));
    }
  }
  return std::nullopt;
}

double MemRegion::Usage::fragmentation() const noexcept {
  if (capacity_bytes <= used_bytes) return 0;
  const std::uint64_t free_bytes = capacity_bytes - used_bytes;
  if (largest_hole_bytes >= free_bytes) return 0;
  return 1 - static_cast<double>(largest_hole_bytes) / static_cast<double>(free_bytes);
}

void MemRegion::free(const MemPtr& begin) {
  const DevicePtr device = device_ != nullptr ? device_->weak_from_this().lock() : nullptr;
  std::optional<MemChunk> chunk;  // is freed, and its last handle ends, without the lock
  {
    const std::scoped_lock lock(ledger_->mutex);
    for (const bool wrapped : {false, true}) {
      auto [record, end] = ledger_->table.equal_range(Ledger::key(wrapped, begin));
      for (; record != end; ++record) {
        if (record->second.begin != begin) continue;
        auto node = ledger_->node_of(record, device);
        if (node == nullptr) continue;
        if (chunk) {
          throw Error(Errc::bad_argument, name_,
                      fmt::format("several chunks begin at {}", to_string(begin)));
        }
        chunk = MemChunk(std::move(node));
      }
    }
    if (!chunk) {
      const auto around = ledger_->find_overlap(Ledger::key(false, begin).second, 1);
      if (around == ledger_->table.end()) {
        throw Error(Errc::call_order, name_,
                    fmt::format("nothing is allocated at {}; it may have been freed before",
                                to_string(begin)));
      }
      throw Error(
          Errc::bad_argument, name_,
          fmt::format("{} does not begin a chunk: it is inside the {} bytes at {}",
                      to_string(begin), around->second.size, to_string(around->second.begin)));
    }
  }
  chunk->free();
}

bool MemRegion::is_allocated(const MemPtr& begin, std::uint64_t size) const {
  if (begin.is_null()) return false;
  const std::uint64_t first = Ledger::key(false, begin).second;
  const std::scoped_lock lock(ledger_->mutex);
  const auto record = ledger_->find_overlap(first, 1);
  if (record == ledger_->table.end() || record->second.begin.kind() != begin.kind()) return false;
  return size <= record->second.size - (first - record->first.second);
}

MemRegion::Usage MemRegion::usage() const {
  const std::scoped_lock lock(ledger_->mutex);
  return {.used_bytes = ledger_->used_bytes, .peak_bytes = ledger_->peak_bytes};
}

}  // namespace tenon
