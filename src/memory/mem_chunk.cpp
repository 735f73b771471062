#include "memory/ledger.hpp"

#include <tenon/error.hpp>
#include <tenon/log.hpp>
#include <tenon/memory.hpp>

#include <exception>
#include <mutex>

#include <fmt/format.h>

namespace tenon {
namespace {

template <class Node>
Node& checked(const std::shared_ptr<Node>& node) {
  if (!node) throw Error(Errc::call_order, "MemChunk", "this is no chunk");
  return *node;
}

template <class Node>
Node& live(const std::shared_ptr<Node>& node) {
  Node& chunk = checked(node);
  if (chunk.freed) {
    throw Error(Errc::stale_handle, "MemChunk",
                fmt::format("{} bytes at {} were freed", chunk.size, to_string(chunk.begin)));
  }
  return chunk;
}

template <class Node>
void check_range(const Node& chunk, std::uint64_t offset, std::uint64_t size) {
  if (offset > chunk.size || size > chunk.size - offset) {
    throw Error(Errc::out_of_range, "MemChunk",
                fmt::format("{} bytes at offset {} of a chunk of {}", size, offset, chunk.size));
  }
}

}  // namespace

MemChunk::Node::~Node() {
  if (!auto_free || freed.exchange(true)) return;
  try {
    give_back();
  } catch (const std::exception& error) {
    log(LogLevel::error, error.what());
  } catch (...) {
    log(LogLevel::error, "MemChunk: a deleter threw something that is no std::exception");
  }
}

void MemChunk::Node::give_back() {
  MemRegion* region = nullptr;
  ChunkDeleter deleter;
  {
    const std::scoped_lock lock(ledger->mutex);
    region = ledger->region;
    deleter = std::move(record->second.deleter);
    if (!record->first.first) ledger->used_bytes -= size;
    ledger->table.erase(record);
  }
  if (!placed) {
    if (region == nullptr) return;
    std::exception_ptr damage;
    try {
      region->check_redzones(begin, size);
    } catch (...) {
      damage = std::current_exception();
    }
    region->release(begin, size);
    if (damage) std::rethrow_exception(damage);
    return;
  }
  try {
    if (deleter) deleter(begin);
  } catch (...) {
    if (region != nullptr) region->unreserve(begin, size);
    throw;
  }
  if (region != nullptr) region->unreserve(begin, size);
}

MemPtr MemChunk::begin() const { return checked(node_).begin; }
std::uint64_t MemChunk::size_bytes() const { return checked(node_).size; }
bool MemChunk::auto_free() const { return checked(node_).auto_free; }
bool MemChunk::is_freed() const { return checked(node_).freed; }
bool MemChunk::is_placed() const { return checked(node_).placed; }
std::uint64_t MemChunk::generation() const { return checked(node_).generation; }

const ChunkDeleter& MemChunk::deleter() const { return live(node_).record->second.deleter; }

MemRegion& MemChunk::region() const {
  const Node& chunk = checked(node_);
  const std::scoped_lock lock(chunk.ledger->mutex);
  if (chunk.ledger->region == nullptr) {
    throw Error(Errc::stale_handle, "MemChunk", "the region of this chunk is gone");
  }
  return *chunk.ledger->region;
}

bool MemChunk::is_on(const MemRegion& region) const noexcept {
  return node_ != nullptr && node_->ledger == region.ledger_;
}

void MemChunk::read(void* to, std::uint64_t offset, std::uint64_t size) const {
  const Node& chunk = live(node_);
  check_range(chunk, offset, size);
  if (size > 0) region().read(to, chunk.begin + static_cast<std::int64_t>(offset), size);
}

void MemChunk::write(const void* from, std::uint64_t offset, std::uint64_t size) const {
  const Node& chunk = live(node_);
  check_range(chunk, offset, size);
  if (size > 0) region().write(chunk.begin + static_cast<std::int64_t>(offset), from, size);
}

void MemChunk::copy_from(const MemChunk& source) const {
  const Node& to = live(node_);
  const Node& from = live(source.node_);
  check_range(to, 0, from.size);
  MemRegion& target = region();
  const MemRegion& origin = source.region();
  if (&target == &origin) {
    target.copy(to.begin, from.begin, from.size);
  } else {
    target.copy(to.begin, origin, from.begin, from.size);
  }
}

void MemChunk::free() {
  Node& chunk = checked(node_);
  if (chunk.freed.exchange(true)) {
    throw Error(Errc::call_order, "MemChunk",
                fmt::format("{} bytes at {} are freed twice", chunk.size, to_string(chunk.begin)));
  }
  chunk.give_back();
}

}  // namespace tenon
