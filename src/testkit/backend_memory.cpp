#include "backend_trial.hpp"

#include <tenon/error.hpp>
#include <tenon/memory.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <thread>

namespace tenon::testkit {
namespace {

using Bytes = std::vector<std::byte>;

/// Bytes that differ from place to place.
Bytes pattern(std::uint64_t size, std::uint64_t seed) {
  Bytes bytes(size);
  std::uint64_t state = seed * 0x9E3779B97F4A7C15 + 1;
  for (std::byte& byte : bytes) {
    state = state * 6364136223846793005 + 1442695040888963407;
    byte = static_cast<std::byte>(state >> 56);
  }
  return bytes;
}

Bytes read_all(const MemChunk& chunk) {
  Bytes bytes(chunk.size_bytes());
  chunk.read(bytes.data(), 0, bytes.size());
  return bytes;
}

class MemoryCheck {
 public:
  explicit MemoryCheck(BackendTrial& trial) : trial_(trial), region_(trial.backend()->region()) {}

  void run() {
    const std::uint64_t before = region_.usage().used_bytes;
    for (const std::uint64_t size : {1u, 3u, 64u, 100u, 4097u, 70'001u}) bytes_come_back(size);
    overlapping_copies();
    if (trial_.options().threads) threads();
    no_room();
    const std::uint64_t after = region_.usage().used_bytes;
    if (after != before) {
      trial_.add("memory", fmt::format("usage() says {} bytes before and {} after all was freed",
                                       before, after));
    }
  }

 private:
  void bytes_come_back(std::uint64_t size) {
    const MemChunk left = region_.malloc(64), chunk = region_.malloc(size),
                   right = region_.malloc(64);
    for (const MemChunk* one : {&left, &chunk, &right}) {
      const MemPtr begin = one->begin();
      const std::uint64_t address =
          begin.has_addr() ? begin.addr() : reinterpret_cast<std::uintptr_t>(begin.cptr());
      if (address % 64 != 0) {
        trial_.add("memory", fmt::format("malloc({}) aligned to 64 begins at {}", one->size_bytes(),
                                         to_string(begin)));
      }
    }
    const Bytes beside = pattern(64, 1);
    left.write(beside.data(), 0, 64);
    right.write(beside.data(), 0, 64);
    Bytes want = pattern(size, 2);
    chunk.write(want.data(), 0, size);
    compare("write() and read()", read_all(chunk), want);
    // Odd pieces within.
    for (std::uint64_t offset = 1; offset + 2 < size; offset = offset * 3 + 1) {
      const std::uint64_t piece = std::min<std::uint64_t>(size - offset, offset % 13 + 1);
      const Bytes part = pattern(piece, offset);
      chunk.write(part.data(), offset, piece);
      std::ranges::copy(part, want.begin() + static_cast<std::ptrdiff_t>(offset));
      Bytes back(piece);
      chunk.read(back.data(), offset, piece);
      compare(fmt::format("{} bytes at offset {}", piece, offset), back, part);
    }
    compare("pieces of odd sizes", read_all(chunk), want);
    compare("the bytes before it", read_all(left), beside);
    compare("the bytes behind it", read_all(right), beside);
  }

  void overlapping_copies() {
    constexpr std::uint64_t size = 5000, length = 3000;
    const MemChunk chunk = region_.malloc(size);
    for (const auto& [from, to] :
         {std::pair<std::uint64_t, std::uint64_t>{0, 2000}, {0, 4}, {7, 0}, {900, 0}}) {
      Bytes want = pattern(size, from + to);
      chunk.write(want.data(), 0, size);
      region_.copy(chunk.begin() + static_cast<std::int64_t>(to),
                   chunk.begin() + static_cast<std::int64_t>(from), length);
      const Bytes moved(want.begin() + static_cast<std::ptrdiff_t>(from),
                        want.begin() + static_cast<std::ptrdiff_t>(from + length));
      std::ranges::copy(moved, want.begin() + static_cast<std::ptrdiff_t>(to));
      compare(fmt::format("copy() of {} bytes from {} to {}", length, from, to), read_all(chunk),
              want);
    }
  }

  /// Sessions copy inputs while others work.
  void threads() {
    std::vector<std::string> wrong(4);
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < wrong.size(); ++t) {
      threads.emplace_back([this, t, &wrong] {
        try {
          for (std::uint64_t round = 0; round < 50; ++round) {
            const Bytes want = pattern(257 * (t + 1), round * 8 + t);
            const MemChunk chunk = region_.malloc(want.size());
            chunk.write(want.data(), 0, want.size());
            if (read_all(chunk) != want) wrong[t] = "other bytes come back";
          }
        } catch (const std::exception& error) {
          wrong[t] = error.what();
        } catch (...) {
          wrong[t] = "it throws what is no std::exception";
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::string& what : wrong) {
      if (!what.empty()) trial_.add("memory", "four threads at once: " + what);
    }
  }

  void no_room() {
    const std::uint64_t capacity = region_.usage().capacity_bytes;
    const std::uint64_t too_much = capacity > 0 ? capacity + 1 : std::uint64_t{1} << 60;
    try {
      region_.malloc(too_much);
      trial_.add("memory", fmt::format("malloc({}) succeeds, of {} bytes", too_much, capacity));
    } catch (const Error& error) {
      if (error.code() == Errc::out_of_device_memory) return;
      trial_.add("memory",
                 fmt::format("malloc({}) throws {} instead of {}: MemRegion::throw_no_room does",
                             too_much, error.what(), spelling(Errc::out_of_device_memory)));
    } catch (const std::exception& error) {
      trial_.add("memory", fmt::format("malloc({}) throws what is no tenon::Error: {}", too_much,
                                       error.what()));
    } catch (...) {
      trial_.add("memory", fmt::format("malloc({}) throws what is no std::exception", too_much));
    }
  }

  void compare(const std::string& what, const Bytes& got, const Bytes& want) {
    if (got == want) return;
    const auto at = std::ranges::mismatch(got, want).in1 - got.begin();
    trial_.add("memory", fmt::format("{}: byte {} of {} is another", what, at, want.size()));
  }

  BackendTrial& trial_;
  MemRegion& region_;
};

}  // namespace

void check_backend_memory(BackendTrial& trial) { MemoryCheck(trial).run(); }

}  // namespace tenon::testkit
