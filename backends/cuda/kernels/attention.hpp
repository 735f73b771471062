// Attention with online softmax. A block has a query and up to four of the heads that share a key head,
// so that a key is read once for these. Its warps take turns at groups of keys; the lanes of a warp
// read several keys at once, eight elements each. Few queries have their keys split over blocks. What
// warps, then blocks, have summed up is joined in order.
#pragma once

#include "kernels/block_sizes.hpp"
#include "kernels/eights.hpp"
#include "kernels/pointwise.hpp"

#include <cstdint>

namespace tenon::cuda {

inline constexpr std::uint32_t attention_warps = attention_threads / warp_size;

struct KeyRange {
  std::int64_t begin, end;
};
/// Attention::visible_keys.
TENON_DEVICE KeyRange visible_keys(const AttentionArgs& args, std::int64_t p, std::int64_t s) {
  const std::int64_t queries = args.queries, keys = args.keys;
  std::int64_t begin = 0, end = p + (args.causal ? s + 1 : queries);
  if (end > keys) end = keys;
  if (args.window > 0) {
    if (p + s - args.window + 1 > begin) begin = p + s - args.window + 1;
    if (!args.causal && p + s + args.window < end) end = p + s + args.window;
  }
  return {begin, end > begin ? end : begin};
}

TENON_DEVICE Address moved(Address base, const std::int64_t (&steps)[3], std::uint32_t b,
                           std::int64_t t, std::uint32_t h) {
  return base + static_cast<Address>(b * steps[0] + t * steps[1] + h * steps[2]);
}

/// Where a key lies: row `t` of row `b` of the batch, or of page `b`.
struct KeyPlace {
  std::uint32_t b, t;
  bool is_there;
};
TENON_DEVICE KeyPlace place_of_key(const AttentionArgs& args, std::uint32_t b, std::uint32_t t) {
  if (args.table == 0) return {b, t, true};
  const std::int64_t at = b * args.table_steps[0] + t / args.page_size * args.table_steps[1];
  const std::int32_t page = *global<const std::int32_t>(args.table + static_cast<Address>(at));
  const bool is_there = page >= 0 && static_cast<std::uint32_t>(page) < args.pages;
  if (!is_there) report(args.reporter, page, args.pages);
  return {static_cast<std::uint32_t>(page), t % args.page_size, is_there};
}

/// Row t of keys or values of row b; 0 where the table has no page for it.
TENON_DEVICE Address key_row(const AttentionArgs& args, Address base,
                             const std::int64_t (&steps)[3], std::uint32_t b, std::int64_t t,
                             std::uint32_t h) {
  const KeyPlace place = place_of_key(args, b, static_cast<std::uint32_t>(t));
  return place.is_there ? moved(base, steps, place.b, place.t, h) : 0;
}

TENON_DEVICE float warp_max(const Thread& thread, float value) {
  for (unsigned mask = warp_size / 2; mask > 0; mask /= 2) {
    value = fmaxf(value, thread.shuffle_xor(value, mask));
  }
  return value;
}
TENON_DEVICE float warp_sum(const Thread& thread, float value) {
  for (unsigned mask = warp_size / 2; mask > 0; mask /= 2) {
    value += thread.shuffle_xor(value, mask);
  }
  return value;
}

/// e^(x - peak), 0 where x is -inf.
TENON_DEVICE float weight_of(float x, float peak) {
  return x == -infinity() ? 0.0f : expf(x - peak);
}

/// The score of query s and key t, whose product is `dot`.
TENON_DEVICE float score_of_dot(const AttentionArgs& args, float dot, std::uint32_t b,
                                std::uint32_t h, std::uint32_t s, std::int64_t t) {
  float score = args.scale * dot;
  if (args.softcap > 0) score = args.softcap * tanhf(score / args.softcap);
  if (args.mask != 0) {
    const std::int64_t at = b * args.mask_steps[0] + h * args.mask_steps[1] +
                            s * args.mask_steps[2] + t * args.mask_steps[3];
    score += *global<const float>(args.mask + static_cast<Address>(at));
  }
  return score;
}

/// Where the queries of row b stand.
TENON_DEVICE std::int64_t given_position(const AttentionArgs& args, std::uint32_t b) {
  if (args.position == 0) return std::int64_t{args.keys} - args.queries;
  return load_integer(DType::i32, args.position + static_cast<Address>(b * args.position_step));
}
/// Whether that is in range, or was not given.
TENON_DEVICE bool is_in_range(const AttentionArgs& args, std::int64_t position) {
  const std::int64_t last = std::int64_t{args.keys} - args.queries;
  if (args.position == 0 || (position >= 0 && position <= last)) return true;
  report(args.reporter, position, last + 1);
  return false;
}

TENON_DEVICE float sink_of(const AttentionArgs& args, std::uint32_t h) {
  if (args.sinks == 0) return -infinity();
  return *global<const float>(args.sinks + static_cast<Address>(h * args.sinks_step));
}
TENON_DEVICE void store_attended(const AttentionArgs& args, Address y, std::uint32_t d, float value,
                                 float denominator) {
  const std::uint32_t bytes = args.dtype == DType::f32 ? 4 : 2;
  store_real(args.dtype, y + d * bytes, denominator == 0 ? 0.0f : value / denominator);
}

/// What a block does.
struct AttentionPart {
  std::uint32_t b, s, key_head, first_head, rows;
  std::uint32_t ticket;  ///< of these heads
  std::uint32_t split, splits;
  std::uint32_t first, keys;  ///< that it reads
};
TENON_DEVICE AttentionPart part_of_block(const Thread& thread, const AttentionArgs& args) {
  AttentionPart part{};
  const std::uint32_t of_key_head = args.heads / args.key_heads;
  const std::uint32_t row_group = thread.block() % args.row_groups;
  std::uint32_t rest = thread.block() / args.row_groups;
  part.key_head = rest % args.key_heads;
  rest /= args.key_heads;
  part.split = rest % args.splits;
  rest /= args.splits;
  part.s = rest % args.queries;
  part.b = rest / args.queries;
  part.ticket = (rest * args.key_heads + part.key_head) * args.row_groups + row_group;
  const std::uint32_t before = row_group * args.rows, left = of_key_head - before;
  part.first_head = part.key_head * of_key_head + before;
  part.rows = left < args.rows ? left : args.rows;
  return part;
}

/// Its share of the keys that its query sees. Without keys: the first one has no key.
TENON_DEVICE void share_keys(const AttentionArgs& args, const KeyRange& seen, AttentionPart& part) {
  const auto all = static_cast<std::uint32_t>(seen.end - seen.begin);
  std::uint32_t share = all;
  if (args.splits > 1) {
    const std::uint32_t least = (all + max_splits - 1) / max_splits;
    share = (least + split_step - 1) / split_step * split_step;
  }
  part.splits = all == 0 ? 1 : (all + share - 1) / share;
  const std::uint32_t begin = part.split * share, left = all - begin;
  part.first = static_cast<std::uint32_t>(seen.begin) + begin;
  part.keys = part.split >= part.splits ? 0 : left < share ? left : share;
}

/// Whether all rows begin at multiples of 16 bytes.
TENON_DEVICE bool are_aligned(Address base, const std::int64_t (&steps)[3]) {
  return ((base | static_cast<Address>(steps[0] | steps[1] | steps[2])) & 15u) == 0;
}

/// The position; -1 where it is out of range.
TENON_DEVICE std::int64_t position_of(const AttentionArgs& args, std::uint32_t b) {
  const std::int64_t position = given_position(args, b);
  return is_in_range(args, position) ? position : -1;
}

/// A number for each row.
using OfRows = FourFloats;
static_assert(attention_rows == 4);

/// What a row has summed up: the values' sum stands for e^peak times that.
struct RowSums {
  float peak, total;
};

using Dots = float[4 * attention_rows];

/// Half of 2 * `half` sums go to the lanes that differ by `mask`, and the other half come from there.
template <std::uint32_t half>
TENON_DEVICE void halve(const Thread& thread, std::uint32_t count, unsigned& mask, Dots& dots) {
  if (2 * half > count) return;
  const bool keeps_upper = (lane_of(thread) & mask) != 0;
  TENON_UNROLL
  for (std::uint32_t i = 0; i < half; ++i) {
    const float given = keeps_upper ? dots[i] : dots[i + half];
    const float kept = keeps_upper ? dots[i + half] : dots[i];
    dots[i] = kept + thread.shuffle_xor(given, mask);
  }
  mask /= 2;
}
/// Of `count` sums over `lanes` neighbouring lanes one in each lane: the first in the first lane.
TENON_DEVICE float summed_by_lanes(const Thread& thread, std::uint32_t lanes, std::uint32_t count,
                                   Dots& dots) {
  unsigned mask = lanes / 2;
  halve<8>(thread, count, mask, dots);
  halve<4>(thread, count, mask, dots);
  halve<2>(thread, count, mask, dots);
  halve<1>(thread, count, mask, dots);
  float sum = dots[0];
  TENON_UNROLL
  for (int i = 0; i < 2; ++i) {
    if (mask > 0) sum += thread.shuffle_xor(sum, mask);
    mask /= 2;
  }
  return sum;
}

/// A warp's part of a block: `lanes` lanes read a key, eight elements each; the warp reads up to
/// `warp_keys` keys at once, and keeps for each row the sum of its values. The next keys are read while
/// it works on those that it has.
template <class Type>
class WarpAttention {
 public:
  TENON_DEVICE WarpAttention(const Thread& thread, const AttentionArgs& args,
                             const AttentionPart& part)
      : thread_(thread), args_(args), part_(part) {
    const std::uint32_t lanes = 1u << args.lane_bits, of_lane = warp_keys * lanes / warp_size;
    lane_ = lane_of(thread) & (lanes - 1);
    beside_ = lane_of(thread) >> args.lane_bits;
    of_lane_ = of_lane < most_keys ? of_lane : most_keys;
    // Which score the lane has, of those that are summed up: that of a row and a key.
    spread_ = lanes / (of_lane_ * attention_rows);
    const std::uint32_t score = lane_ / spread_;
    row_ = score % attention_rows;
    key_ = score / attention_rows;
    k_ = args.k + static_cast<Address>(part.key_head * args.k_steps[2]);
    v_ = args.v + static_cast<Address>(part.key_head * args.v_steps[2]);
    if (args.table == 0) {
      k_ += static_cast<Address>(part.b * args.k_steps[0]);
      v_ += static_cast<Address>(part.b * args.v_steps[0]);
    }
    constexpr bool is_anywhere = !Eight<Type>::needs_alignment;
    k_reading_ =
        reading_of(8 * lane_, args.depth, is_anywhere || are_aligned(args.k, args.k_steps));
    v_reading_ =
        reading_of(8 * lane_, args.value_depth, is_anywhere || are_aligned(args.v, args.v_steps));
    is_whole_ = args.table == 0 && args.depth == 8 * lanes && args.value_depth == 8 * lanes &&
                k_reading_.at_once && v_reading_.at_once;
    const bool q_aligned = are_aligned(args.q, args.q_steps);
    TENON_UNROLL
    for (std::uint32_t r = 0; r < attention_rows; ++r) {
      if (r >= part.rows) continue;
      load_eight(args.dtype, moved(args.q, args.q_steps, part.b, part.s, part.first_head + r),
                 8 * lane_, args.depth, q_aligned, query_[r]);
    }
  }

  TENON_DEVICE std::uint32_t keys_at_once() const {
    return of_lane_ * warp_size >> args_.lane_bits;
  }

  /// Reads the part's keys from `first` on, and their values.
  TENON_DEVICE void begin(std::uint32_t first) {
    read_keys(first);
    read_values(first);
  }
  /// Adds them, and reads those from `next` on. `weights`: the warp's, of each key, and behind them of
  /// what is summed up.
  template <class Weights>
  TENON_DEVICE void add(std::uint32_t first, std::uint32_t next, Weights& weights,
                        std::uint32_t weights_begin) {
    const float product = dot();
    const std::uint32_t are_there = are_there_;
    read_keys(next);
    const bool has_zeros = weigh(first, are_there, product, weights, weights_begin);
    thread_.sync_warp();
    scale_sums(weights[weights_begin + warp_keys]);
    TENON_UNROLL
    for (std::uint32_t u = 0; u < most_keys; ++u) {
      if (u >= of_lane_) continue;
      const OfRows of_key = weights[weights_begin + place_of(u)];
      if (has_zeros) {
        add_values<true>(values_[u], of_key);
      } else {
        add_values<false>(values_[u], of_key);
      }
    }
    read_values(next);
    thread_.sync_warp();
  }

  /// The row's, in lane `r * spread` of the warp.
  TENON_DEVICE RowSums sums() const {
    float total = total_;
    TENON_UNROLL
    for (unsigned mask = attention_rows; mask < warp_size; mask *= 2) {
      if (mask >= attention_rows * spread_) total += thread_.shuffle_xor(total, mask);
    }
    return {peak_, total};
  }
  /// The row whose sums a lane has, or attention_rows.
  TENON_DEVICE std::uint32_t stored_row() const {
    const bool stores = lane_of(thread_) < attention_rows * spread_ && lane_ % spread_ == 0;
    return stores ? row_ : attention_rows;
  }
  /// Elements lane * 8 to lane * 8 + 7 of row r's values, of the keys that the lane has read.
  TENON_DEVICE FourFloats four(std::uint32_t r, std::uint32_t half) const {
    const float* const from = sum_[r] + 4 * half;
    return {from[0], from[1], from[2], from[3]};
  }

 private:
  /// Of a lane. What it reads of them stays in registers: 16 bytes of a key, or 32.
  static constexpr std::uint32_t most_keys = sizeof(Eight<Type>) <= 16 ? 4 : 2;

  TENON_DEVICE std::uint32_t place_of(std::uint32_t u) const {
    return (u * warp_size >> args_.lane_bits) + beside_;
  }
  /// The first bytes of a key's row, from k_ or v_ on.
  static TENON_DEVICE Address row_at(const std::int64_t (&steps)[3], const KeyPlace& place) {
    return static_cast<Address>(place.b * steps[0] + place.t * steps[1]);
  }
  TENON_DEVICE void read_whole(Eight<Type> (&eights)[most_keys], Address head, std::int64_t step,
                               std::uint32_t first) const {
    const auto t = static_cast<Address>(part_.first + first);
    const Address row = head + t * static_cast<Address>(step);
    TENON_UNROLL
    for (std::uint32_t u = 0; u < most_keys; ++u) {
      if (u < of_lane_) eights[u].read(row + place_of(u) * static_cast<Address>(step), 8 * lane_);
    }
  }
  /// Where the table has no page for a key, and behind the last key, what was read before stays; a
  /// weight of 0 hides it.
  TENON_DEVICE void read_keys(std::uint32_t first) {
    are_there_ = 0;
    if (first >= part_.keys) return;
    if (is_whole_ && first + keys_at_once() <= part_.keys) {
      are_there_ = (1u << of_lane_) - 1;
      return read_whole(keys_, k_, args_.k_steps[1], first);
    }
    TENON_UNROLL
    for (std::uint32_t u = 0; u < most_keys; ++u) {
      const std::uint32_t key = first + place_of(u);
      if (u >= of_lane_ || key >= part_.keys) continue;
      Address row = (part_.first + key) * static_cast<Address>(args_.k_steps[1]);
      if (args_.table != 0) {
        const KeyPlace place = place_of_key(args_, part_.b, part_.first + key);
        if (!place.is_there) continue;
        row = row_at(args_.k_steps, place);
      }
      are_there_ |= 1u << u;
      read_eight(keys_[u], k_ + row, k_reading_);
    }
  }
  /// Of the keys that were read last, from `first` on.
  TENON_DEVICE void read_values(std::uint32_t first) {
    if (first >= part_.keys) return;
    if (is_whole_ && first + keys_at_once() <= part_.keys) {
      return read_whole(values_, v_, args_.v_steps[1], first);
    }
    TENON_UNROLL
    for (std::uint32_t u = 0; u < most_keys; ++u) {
      if ((are_there_ >> u & 1u) == 0) continue;
      const std::uint32_t t = part_.first + first + place_of(u);
      Address row = t * static_cast<Address>(args_.v_steps[1]);
      if (args_.table != 0) row = row_at(args_.v_steps, place_of_key(args_, part_.b, t));
      read_eight(values_[u], v_ + row, v_reading_);
    }
  }

  TENON_DEVICE float dot() const {
    static_assert(most_keys * attention_rows <= sizeof(Dots) / sizeof(float));
    Dots dots = {};
    TENON_UNROLL
    for (std::uint32_t u = 0; u < most_keys; ++u) {
      if (u >= of_lane_) continue;
      float key[8];
      keys_[u].widen(key);
      TENON_UNROLL
      for (std::uint32_t r = 0; r < attention_rows; ++r) {
        TENON_UNROLL
        for (std::uint32_t i = 0; i < 8; ++i) dots[u * attention_rows + r] += query_[r][i] * key[i];
      }
    }
    return summed_by_lanes(thread_, 1u << args_.lane_bits, of_lane_ * attention_rows, dots);
  }

  /// Writes the weights of the keys, and of what is summed up. Whether a key that a row should see has
  /// none.
  template <class Weights>
  TENON_DEVICE bool weigh(std::uint32_t first, std::uint32_t are_there, float product,
                          Weights& weights, std::uint32_t weights_begin) {
    const std::uint32_t place = place_of(key_);
    float score = -infinity();
    if ((are_there >> key_ & 1u) != 0 && row_ < part_.rows) {
      score = score_of_dot(args_, product, part_.b, part_.first_head + row_, part_.s,
                           part_.first + first + place);
    }
    float higher = score;
    TENON_UNROLL
    for (unsigned mask = attention_rows; mask < warp_size; mask *= 2) {
      if (mask >= attention_rows * spread_) {
        higher = fmaxf(higher, thread_.shuffle_xor(higher, mask));
      }
    }
    higher = fmaxf(peak_, higher);
    const float kept = weight_of(peak_, higher), weight = weight_of(score, higher);
    total_ = total_ * kept + weight;
    peak_ = higher;
    weights[weights_begin + place].of[row_] = weight;
    if (place == 0) weights[weights_begin + warp_keys].of[row_] = kept;
    return thread_.ballot(weight == 0 && row_ < part_.rows) != 0;
  }

  TENON_DEVICE void scale_sums(const OfRows& kept) {
    if (kept.of[0] == 1 && kept.of[1] == 1 && kept.of[2] == 1 && kept.of[3] == 1) return;
    TENON_UNROLL
    for (std::uint32_t r = 0; r < attention_rows; ++r) {
      TENON_UNROLL
      for (std::uint32_t i = 0; i < 8; ++i) sum_[r][i] *= kept.of[r];
    }
  }

  /// What a mask hides may be anything.
  template <bool has_zeros>
  TENON_DEVICE void add_values(const Eight<Type>& values, const OfRows& weights) {
    float value[8];
    values.widen(value);
    TENON_UNROLL
    for (std::uint32_t r = 0; r < attention_rows; ++r) {
      const float weight = weights.of[r];
      if (has_zeros && weight == 0) continue;
      TENON_UNROLL
      for (std::uint32_t i = 0; i < 8; ++i) sum_[r][i] += weight * value[i];
    }
  }

  const Thread& thread_;
  const AttentionArgs& args_;
  const AttentionPart& part_;
  std::uint32_t lane_, beside_, of_lane_, spread_, row_, key_;
  Address k_, v_;
  EightReading k_reading_, v_reading_;
  Eight<Type> keys_[most_keys], values_[most_keys];
  std::uint32_t are_there_ = 0;  ///< bit u: keys_[u] was read
  bool is_whole_;  ///< all lanes read eight elements at once, of rows that no table places
  float query_[attention_rows][8] = {}, sum_[attention_rows][8] = {};
  float peak_ = -infinity(), total_ = 0;  ///< of the lane's row; the total of the lane's keys
};

TENON_DEVICE Address partial_of(const AttentionArgs& args, const AttentionPart& part,
                                std::uint32_t row, std::uint32_t split) {
  const std::uint64_t first_row = (std::uint64_t{part.b} * args.queries + part.s) * args.heads;
  return args.partial + ((first_row + part.first_head + row) * args.splits + split) *
                            args.partial_fours * sizeof(FourFloats);
}

/// Element 4 * four of the result of row `row` and its neighbours.
TENON_DEVICE void store_four(const AttentionArgs& args, const AttentionPart& part,
                             std::uint32_t row, std::uint32_t four, const FourFloats& values,
                             float denominator) {
  const Address y = moved(args.y, args.y_steps, part.b, part.s, part.first_head + row);
  for (std::uint32_t i = 0; i < 4; ++i) {
    const std::uint32_t d = 4 * four + i;
    if (d < args.value_depth) store_attended(args, y, d, values.of[i], denominator);
  }
}

TENON_DEVICE void add_weighted(FourFloats& sum, float weight, const FourFloats& more) {
  if (weight == 0) return;
  TENON_UNROLL
  for (std::uint32_t i = 0; i < 4; ++i) sum.of[i] += weight * more.of[i];
}

/// Joins what the blocks of the part's rows have summed up: a warp finds how much each counts, then a
/// thread has four elements of a row.
TENON_DEVICE void join_splits(const Thread& thread, const AttentionArgs& args,
                              const AttentionPart& part) {
  TENON_SHARED(thread, float, factors, attention_rows* max_splits);
  TENON_SHARED(thread, float, denominators, attention_rows);
  constexpr std::uint32_t at_once = 16;  // parts that a thread waits for together
  static_assert(max_splits % at_once == 0 && max_splits % warp_size == 0);
  const std::uint32_t warp = warp_of(thread);
  if (warp < part.rows) {
    const float sink = sink_of(args, part.first_head + warp);
    constexpr std::uint32_t of_lane = max_splits / warp_size;
    RowSums sums[of_lane];
    float peak = sink, total = 0;
    TENON_UNROLL
    for (std::uint32_t i = 0; i < of_lane; ++i) {
      const std::uint32_t split = lane_of(thread) + i * warp_size;
      sums[i] = {-infinity(), 0};
      if (split >= part.splits) continue;
      const FourFloats four = floats_of(load_published(partial_of(args, part, warp, split)));
      sums[i] = {four.of[0], four.of[1]};
      peak = fmaxf(peak, sums[i].peak);
    }
    peak = warp_max(thread, peak);
    TENON_UNROLL
    for (std::uint32_t i = 0; i < of_lane; ++i) {
      const float factor = weight_of(sums[i].peak, peak);
      factors[warp * max_splits + lane_of(thread) + i * warp_size] = factor;
      total += factor * sums[i].total;
    }
    total = warp_sum(thread, total);
    if (lane_of(thread) == 0) denominators[warp] = total + weight_of(sink, peak);
  }
  thread.sync();
  const std::uint32_t fours = (args.value_depth + 3) / 4;
  for (std::uint32_t i = thread.index(); i < part.rows * fours; i += thread.count()) {
    const std::uint32_t row = i / fours, four = i % fours;
    const Address sums = partial_of(args, part, row, 0) + (1 + four) * sizeof(FourFloats);
    const Address step = args.partial_fours * sizeof(FourFloats);
    FourFloats value{};
    for (std::uint32_t first = 0; first < part.splits; first += at_once) {
      Words4 parts[at_once];
      TENON_UNROLL
      for (std::uint32_t j = 0; j < at_once; ++j) {
        parts[j] = {};
        if (first + j < part.splits) parts[j] = load_published(sums + (first + j) * step);
      }
      TENON_UNROLL
      for (std::uint32_t j = 0; j < at_once; ++j) {
        add_weighted(value, factors[row * max_splits + first + j], floats_of(parts[j]));
      }
    }
    store_four(args, part, row, four, value, denominators[row]);
  }
}

/// Joins what the warps have summed up: the result, or a part of it.
template <class Sums, class Rows>
TENON_DEVICE void join_warps(const Thread& thread, const AttentionArgs& args,
                             const AttentionPart& part, const Sums& sums, const Rows& rows) {
  const std::uint32_t fours = (args.value_depth + 3) / 4;
  const bool is_whole = part.splits == 1;
  for (std::uint32_t i = thread.index(); i < part.rows * fours; i += thread.count()) {
    const std::uint32_t row = i / fours, four = i % fours;
    const float sink = is_whole ? sink_of(args, part.first_head + row) : -infinity();
    float peak = sink;
    for (std::uint32_t w = 0; w < attention_warps; ++w) {
      peak = fmaxf(peak, rows[w * attention_rows + row].peak);
    }
    float total = weight_of(sink, peak);
    FourFloats value{};
    for (std::uint32_t w = 0; w < attention_warps; ++w) {
      const RowSums of_warp = rows[w * attention_rows + row];
      const float factor = weight_of(of_warp.peak, peak);
      total += factor * of_warp.total;
      const std::uint32_t begin = (w * attention_rows + row) * (max_head / 4);
      for (std::uint32_t at = four; at < max_head / 4; at += 2u << args.lane_bits) {
        add_weighted(value, factor, sums[begin + at]);
      }
    }
    if (is_whole) {
      store_four(args, part, row, four, value, total);
      continue;
    }
    auto* const partial = global<FourFloats>(partial_of(args, part, row, part.split));
    partial[1 + four] = value;
    if (four == 0) partial[0] = {peak, total, 0, 0};
  }
}

template <class Type>
TENON_DEVICE void attend(const Thread& thread, const AttentionArgs& args) {
  TENON_SHARED(thread, OfRows, weights, attention_warps * (warp_keys + 1));
  TENON_SHARED(thread, FourFloats, sums, attention_warps * attention_rows * max_head / 4);
  TENON_SHARED(thread, RowSums, rows, attention_warps * attention_rows);
  TENON_SHARED(thread, std::uint32_t, is_last, 1);
  AttentionPart part = part_of_block(thread, args);
  wait_for_earlier();
  const std::int64_t position = given_position(args, part.b);
  WarpAttention<Type> attention(thread, args, part);  // reads queries while the position comes
  if (!is_in_range(args, position)) return;
  share_keys(args, visible_keys(args, position, part.s), part);
  if (part.split >= part.splits) return;

  const std::uint32_t warp = warp_of(thread), lane = lane_of(thread);
  const std::uint32_t at_once = attention.keys_at_once();
  attention.begin(warp * at_once);
  for (std::uint32_t first = warp * at_once; first < part.keys;) {
    const std::uint32_t next = first + attention_warps * at_once;
    attention.add(first, next, weights, warp * (warp_keys + 1));
    first = next;
  }
  TENON_UNROLL
  for (std::uint32_t r = 0; r < attention_rows; ++r) {
    const std::uint32_t begin = (warp * attention_rows + r) * (max_head / 4) + 2 * lane;
    sums[begin] = attention.four(r, 0);
    sums[begin + 1] = attention.four(r, 1);
  }
  const RowSums own = attention.sums();
  const std::uint32_t row = attention.stored_row();
  if (row < attention_rows) rows[warp * attention_rows + row] = own;
  thread.sync();
  join_warps(thread, args, part, sums, rows);
  if (part.splits == 1) return;
  publish();
  thread.sync();
  if (thread.index() == 0) {
    is_last[0] = is_last_of(global<std::uint32_t>(args.tickets) + part.ticket, part.splits) ? 1 : 0;
  }
  thread.sync();
  if (is_last[0] == 0) return;
  publish();
  join_splits(thread, args, part);
}

}  // namespace tenon::cuda
