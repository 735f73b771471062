// Checks of a region: overwritten redzones beside chunks, and memory that was never freed.
#include "memory/ledger.hpp"

#include <tenon/error.hpp>
#include <tenon/log.hpp>
#include <tenon/memory.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <exception>
#include <mutex>

#include <fmt/format.h>

namespace tenon {
namespace {

/// A value that computations rarely produce: neither small, nor all ones, nor a common float.
constexpr std::byte paint{0xA5};
constexpr std::uint64_t piece_bytes = 4096;

/// Calls visit(begin, size) for pieces of the two redzones of a chunk.
template <class Visit>
void for_each_piece(const MemPtr& begin, std::uint64_t size, std::uint64_t redzone, Visit&& visit) {
  const std::array zones{begin - static_cast<std::int64_t>(redzone),
                         begin + static_cast<std::int64_t>(size)};
  for (const MemPtr& zone : zones) {
    for (std::uint64_t done = 0; done < redzone; done += piece_bytes) {
      visit(zone + static_cast<std::int64_t>(done), std::min(piece_bytes, redzone - done));
    }
  }
}

}  // namespace

void MemRegion::paint_redzones(const MemPtr& begin, std::uint64_t size) {
  const std::uint64_t redzone = redzone_bytes();
  if (redzone == 0) return;
  const std::vector<std::byte> bytes(std::min(redzone, piece_bytes), paint);
  for_each_piece(begin, size, redzone, [&](const MemPtr& piece, std::uint64_t piece_size) {
    write(piece, bytes.data(), piece_size);
  });
}

void MemRegion::check_redzones(const MemPtr& begin, std::uint64_t size) const {
  const std::uint64_t redzone = redzone_bytes();
  if (redzone == 0) return;
  std::vector<std::byte> bytes(std::min(redzone, piece_bytes));
  for_each_piece(begin, size, redzone, [&](const MemPtr& piece, std::uint64_t piece_size) {
    read(bytes.data(), piece, piece_size);
    const auto end = bytes.begin() + static_cast<std::ptrdiff_t>(piece_size);
    const auto damaged = std::find_if(bytes.begin(), end, [](std::byte b) { return b != paint; });
    if (damaged == end) return;
    const std::int64_t at = (piece - begin) + (damaged - bytes.begin());
    throw Error(Errc::device_error, name_,
                fmt::format("somebody wrote past the ends of {} bytes at {}: byte {} is {:#04x}",
                            size, to_string(begin), at, std::to_integer<unsigned>(*damaged)));
  });
}

void MemRegion::check_redzones() const {
  if (redzone_bytes() == 0) return;
  for (const MemChunk& chunk : all_chunks()) {
    if (!chunk.is_placed()) check_redzones(chunk.begin(), chunk.size_bytes());
  }
}

/// At the end of the device: logs the chunks that are left. Chunks with auto_free are not leaks;
/// the device's own are freed with it.
void MemRegion::report_remains() const noexcept try {
  if (!log_enabled()) return;
  struct Remains {
    MemPtr begin;
    std::uint64_t size;
    bool placed, lost;
  };
  std::vector<Remains> remains;
  {
    const std::scoped_lock lock(ledger_->mutex);
    for (const auto& [key, record] : ledger_->table) {
      const bool wrapped = key.first;
      if (!wrapped) {
        remains.push_back({record.begin, record.size, record.placed, !record.auto_free});
      }
    }
  }
  std::uint64_t count = 0, bytes = 0;
  std::string first;
  for (const Remains& chunk : remains) {
    try {
      if (!chunk.placed) check_redzones(chunk.begin, chunk.size);
    } catch (const std::exception& error) {
      log(LogLevel::error, error.what());
    }
    if (!chunk.lost) continue;
    constexpr std::uint64_t shown = 4;
    if (count < shown) first += fmt::format(", {} at {}", chunk.size, to_string(chunk.begin));
    ++count;
    bytes += chunk.size;
  }
  if (count == 0) return;
  log(LogLevel::warning, fmt::format("{}: {} chunks of together {} bytes were never freed{}", name_,
                                     count, bytes, first));
} catch (...) {  // a report that finds no memory is not worth an error
}

}  // namespace tenon
