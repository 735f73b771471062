#pragma once

#include "rank_buckets.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace tenon::text {

/// The token that two adjacent symbols may merge into. Lower ranks merge first.
struct Candidate {
  std::uint64_t rank = 0;
  std::int32_t id = -1;  ///< -1: they stay apart
};

/// The symbols of a word while they are merged: a doubly linked list in one array.
struct Symbol {
  std::int32_t id = -1;     ///< -1: a character without a token
  std::uint32_t begin = 0;  ///< byte offset in the word
  std::uint32_t end = 0;    ///< 0 once merged into the symbol before
  std::int32_t previous = -1;
  std::int32_t next = -1;
};

/// Merges adjacent symbols, best rank first and leftmost among equals, until no pair can be merged.
///
/// The buffers are reused between words, so that short words cost no allocation. Time O(n log n).
class Merger {
 public:
  /// From this many symbols on, pairs wait in RankBuckets instead of one heap.
  static constexpr std::size_t long_word = 512;

  std::vector<Symbol>& symbols() { return symbols_; }

  void clear() { symbols_.clear(); }

  void add(std::int32_t id, std::uint32_t begin, std::uint32_t end) {
    const auto at = static_cast<std::int32_t>(symbols_.size());
    if (at != 0) symbols_.back().next = at;
    symbols_.push_back({id, begin, end, at - 1, -1});
  }

  /// `find(left, right)` returns the Candidate of two adjacent symbols.
  template <typename Find>
  void merge(Find&& find) {
    if (symbols_.size() < long_word) {
      heap_.clear();
      merge_through(heap_, find);
    } else {
      RankBuckets buckets;
      merge_through(buckets, find);
    }
  }

 private:
  /// A binary heap with the interface of RankBuckets.
  class Heap {
   public:
    void clear() { entries_.clear(); }

    void push(std::uint64_t rank, const PairEntry& pair) {
      entries_.push_back({rank, pair});
      std::push_heap(entries_.begin(), entries_.end(), std::greater<>{});
    }

    bool pop(PairEntry& pair) {
      if (entries_.empty()) return false;
      std::pop_heap(entries_.begin(), entries_.end(), std::greater<>{});
      pair = entries_.back().pair;
      entries_.pop_back();
      return true;
    }

   private:
    struct Entry {
      std::uint64_t rank;
      PairEntry pair;
      friend bool operator>(const Entry& a, const Entry& b) {
        return a.rank != b.rank ? a.rank > b.rank : a.pair > b.pair;
      }
    };
    std::vector<Entry> entries_;
  };

  template <typename Queue, typename Find>
  void merge_through(Queue& queue, Find&& find) {
    const auto consider = [&](std::size_t at) {
      const Symbol& left = symbols_[at];
      const Symbol& right = symbols_[static_cast<std::size_t>(left.next)];
      if (left.id < 0 || right.id < 0) return;
      const Candidate candidate = find(left, right);
      if (candidate.id < 0) return;
      queue.push(candidate.rank, {static_cast<std::uint32_t>(at), candidate.id, right.end});
    };
    for (std::size_t i = 0; i + 1 < symbols_.size(); ++i) consider(i);
    for (PairEntry best; queue.pop(best);) {
      Symbol& left = symbols_[best.at];
      // Symbols only grow, so a pair is the one that was queued if and only if it ends there still.
      if (left.end == 0 || left.next < 0) continue;
      Symbol& right = symbols_[static_cast<std::size_t>(left.next)];
      if (right.end != best.end) continue;
      left.id = best.id;
      left.end = right.end;
      left.next = right.next;
      right.end = 0;
      if (left.next >= 0) {
        symbols_[static_cast<std::size_t>(left.next)].previous = static_cast<std::int32_t>(best.at);
        consider(best.at);
      }
      if (left.previous >= 0) consider(static_cast<std::size_t>(left.previous));
    }
  }

  std::vector<Symbol> symbols_;
  Heap heap_;
};

}  // namespace tenon::text
