#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace tenon::text {

/// What two neighbours may become. Lower ranks merge first.
struct Candidate {
  std::uint64_t rank = 0;
  std::int32_t id = -1;  ///< -1: they stay apart
};

/// A word on its way from characters to tokens: a doubly linked list in one array.
struct Symbol {
  std::int32_t id = -1;     ///< -1: a character without a token
  std::uint32_t begin = 0;  ///< byte offset in the word
  std::uint32_t end = 0;    ///< 0 once merged into the symbol before
  std::int32_t previous = -1;
  std::int32_t next = -1;
};

/// Merges neighbours, best rank first and leftmost among equals, until none is left to merge.
///
/// The buffers live on between words, so that short words cost no allocation. Time O(n log n).
class Merger {
 public:
  std::vector<Symbol>& symbols() { return symbols_; }

  void clear() { symbols_.clear(); }

  void add(std::int32_t id, std::uint32_t begin, std::uint32_t end) {
    const auto at = static_cast<std::int32_t>(symbols_.size());
    if (at != 0) symbols_.back().next = at;
    symbols_.push_back({id, begin, end, at - 1, -1});
  }

  /// `find(left, right)` gives the Candidate of two neighbouring symbols.
  template <typename Find>
  void merge(Find&& find) {
    queue_.clear();
    for (std::size_t i = 0; i + 1 < symbols_.size(); ++i) {
      const Candidate candidate = consider(find, symbols_[i], symbols_[i + 1]);
      if (candidate.id >= 0) queue_.push_back(entry(candidate, i, symbols_[i + 1].end));
    }
    std::make_heap(queue_.begin(), queue_.end(), std::greater<>{});
    while (!queue_.empty()) {
      std::pop_heap(queue_.begin(), queue_.end(), std::greater<>{});
      const Entry best = queue_.back();
      queue_.pop_back();
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
        Symbol& after = symbols_[static_cast<std::size_t>(left.next)];
        after.previous = static_cast<std::int32_t>(best.at);
        push(consider(find, left, after), best.at, after.end);
      }
      if (left.previous >= 0) {
        const auto before = static_cast<std::size_t>(left.previous);
        push(consider(find, symbols_[before], left), before, left.end);
      }
    }
  }

 private:
  struct Entry {
    std::uint64_t rank;
    std::uint32_t at;
    std::int32_t id;
    std::uint32_t end;

    friend bool operator>(const Entry& a, const Entry& b) {
      return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
    }
  };

  template <typename Find>
  static Candidate consider(Find&& find, const Symbol& left, const Symbol& right) {
    if (left.id < 0 || right.id < 0) return {};
    return find(left, right);
  }

  static Entry entry(const Candidate& candidate, std::size_t at, std::uint32_t end) {
    return {candidate.rank, static_cast<std::uint32_t>(at), candidate.id, end};
  }

  void push(const Candidate& candidate, std::size_t at, std::uint32_t end) {
    if (candidate.id < 0) return;
    queue_.push_back(entry(candidate, at, end));
    std::push_heap(queue_.begin(), queue_.end(), std::greater<>{});
  }

  std::vector<Symbol> symbols_;
  std::vector<Entry> queue_;
};

}  // namespace tenon::text
