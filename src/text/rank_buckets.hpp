#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

namespace tenon::text {

/// A queued pair of adjacent symbols: the one at `at` and the one after it, which ended at byte
/// `end` when the pair was queued.
struct PairEntry {
  std::uint32_t at = 0;
  std::int32_t id = -1;
  std::uint32_t end = 0;

  friend bool operator<(const PairEntry& a, const PairEntry& b) { return a.at < b.at; }
  friend bool operator>(const PairEntry& a, const PairEntry& b) { return b < a; }
};

/// A priority queue of pairs by rank, then by position, for long words.
///
/// There are few ranks and many pairs, and pairs of one rank are queued nearly in order, so each
/// rank has a list that is sorted when the rank becomes the best. A binary heap over all pairs
/// gives the same order, but has a cache miss at every step for a word of millions of characters.
class RankBuckets {
 public:
  void push(std::uint64_t rank, const PairEntry& entry) {
    Bucket& bucket = bucket_of(rank);
    if (!bucket.is_queued) {
      bucket.is_queued = true;
      ranks_.push_back({rank, last_});
      std::push_heap(ranks_.begin(), ranks_.end(), std::greater<>{});
    }
    if (bucket.is_open) {
      bucket.late.push_back(entry);
      std::push_heap(bucket.late.begin(), bucket.late.end(), std::greater<>{});
    } else {
      bucket.is_sorted =
          bucket.is_sorted && (bucket.entries.empty() || !(entry < bucket.entries.back()));
      bucket.entries.push_back(entry);
    }
  }

  /// Takes the best pair; false where none is left.
  bool pop(PairEntry& entry) {
    while (!ranks_.empty()) {
      Bucket& bucket = buckets_[ranks_.front().bucket];
      if (take(bucket, entry)) return true;
      bucket = Bucket{};
      std::pop_heap(ranks_.begin(), ranks_.end(), std::greater<>{});
      ranks_.pop_back();
    }
    return false;
  }

 private:
  struct Bucket {
    std::vector<PairEntry> entries;  ///< from `next` on, sorted once open
    std::vector<PairEntry> late;     ///< a heap: what came while the bucket was open
    std::size_t next = 0;
    bool is_sorted = true;
    bool is_open = false;
    bool is_queued = false;
  };

  struct Queued {
    std::uint64_t rank;
    std::size_t bucket;
    friend bool operator>(const Queued& a, const Queued& b) { return a.rank > b.rank; }
  };

  Bucket& bucket_of(std::uint64_t rank) {
    if (buckets_.empty() || rank != last_rank_) {
      const auto [found, is_new] = index_.try_emplace(rank, buckets_.size());
      if (is_new) buckets_.emplace_back();
      last_rank_ = rank;
      last_ = found->second;
    }
    return buckets_[last_];
  }

  static bool take(Bucket& bucket, PairEntry& entry) {
    if (!bucket.is_open) {
      if (!bucket.is_sorted) std::sort(bucket.entries.begin(), bucket.entries.end());
      bucket.is_open = true;
    }
    const bool has_entry = bucket.next < bucket.entries.size();
    if (!bucket.late.empty() && (!has_entry || bucket.late.front() < bucket.entries[bucket.next])) {
      std::pop_heap(bucket.late.begin(), bucket.late.end(), std::greater<>{});
      entry = bucket.late.back();
      bucket.late.pop_back();
      return true;
    }
    if (!has_entry) return false;
    entry = bucket.entries[bucket.next++];
    return true;
  }

  std::vector<Bucket> buckets_;
  std::unordered_map<std::uint64_t, std::size_t> index_;
  std::vector<Queued> ranks_;  ///< a heap of the queued buckets
  std::uint64_t last_rank_ = 0;
  std::size_t last_ = 0;
};

}  // namespace tenon::text
