// Which memories hold which bytes of a run whose backends do not all share one memory.
#pragma once

#include <tenon/lowered.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>

namespace tenon::sessions {

/// The slab, an input or an output: each has its bytes in every memory of the plan, at the same
/// offsets.
struct StorageKey {
  Place::Kind kind = Place::Kind::slab;
  std::uint32_t index = 0;

  friend auto operator<=>(const StorageKey& a, const StorageKey& b) noexcept = default;
};

inline StorageKey key_of(const Place& place) noexcept {
  return {place.kind, place.kind == Place::Kind::slab ? 0 : place.index};
}

/// Memories are numbered 0 .. 63; 0 is the CPU's.
class Residency {
 public:
  using Copy = std::function<void(const StorageKey& storage, const ByteRange& range,
                                  std::size_t from, std::size_t to)>;

  /// Makes `range` current in `memory`, calling `copy` for the bytes that are current elsewhere
  /// only. Bytes that nobody has written are left alone.
  void require(const StorageKey& storage, const ByteRange& range, std::size_t memory,
               const Copy& copy);
  /// `range` has been written in `memory`: other memories' bytes are out of date.
  void written(const StorageKey& storage, const ByteRange& range, std::size_t memory);
  void clear() { storages_.clear(); }

 private:
  struct Segment {
    std::int64_t end = 0;
    std::uint64_t memories = 0;  ///< bit i: memory i holds the current bytes
  };
  using Segments = std::map<std::int64_t, Segment>;  // by begin; disjoint

  static void split(Segments& segments, std::int64_t at);

  std::map<StorageKey, Segments> storages_;
};

}  // namespace tenon::sessions
