// Reductions in one fixed order, whatever the grid: each thread sums every blockDim-th element, then
// the threads' sums are added in a tree.
#pragma once

#include "kernels/pointwise.hpp"

#include <cstdint>

namespace tenon::cuda {

/// What joins to any value as itself. The second argument selects the type.
TENON_DEVICE float start_of(Reduction op, float) {
  if (op == Reduction::max) return -infinity();
  if (op == Reduction::min) return infinity();
  return op == Reduction::prod ? 1.0f : 0.0f;
}
TENON_DEVICE std::int64_t start_of(Reduction op, std::int64_t) {
  constexpr std::int64_t largest = 0x7FFFFFFFFFFFFFFF;
  if (op == Reduction::max) return -largest - 1;
  if (op == Reduction::min) return largest;
  return op == Reduction::prod || op == Reduction::all ? 1 : 0;
}

TENON_DEVICE float joined(Reduction op, float a, float b) {
  switch (op) {
    case Reduction::prod:
      return a * b;
    case Reduction::max:
      return a != a || b != b ? a + b : a < b ? b : a;
    case Reduction::min:
      return a != a || b != b ? a + b : b < a ? b : a;
    default:
      return a + b;
  }
}
TENON_DEVICE std::int64_t joined(Reduction op, std::int64_t a, std::int64_t b) {
  const auto ua = static_cast<std::uint64_t>(a), ub = static_cast<std::uint64_t>(b);
  switch (op) {
    case Reduction::prod:
      return signed_of(ua * ub);
    case Reduction::max:
      return a < b ? b : a;
    case Reduction::min:
      return b < a ? b : a;
    case Reduction::any:
      return a | b;
    case Reduction::all:
      return a & b;
    default:
      return signed_of(ua + ub);
  }
}

/// The same value in every thread of the block. A block has a multiple of 32 threads, up to 1024.
template <class C>
TENON_DEVICE C reduced_by_block(const Thread& thread, Reduction op, C value) {
  TENON_SHARED(thread, C, of_warps, 32);
  for (unsigned mask = warp_size / 2; mask > 0; mask /= 2) {
    value = joined(op, value, thread.shuffle_xor(value, mask));
  }
  if (lane_of(thread) == 0) of_warps[warp_of(thread)] = value;
  thread.sync();
  value = of_warps[0];
  for (unsigned warp = 1; warp < thread.count() / warp_size; ++warp) {
    value = joined(op, value, of_warps[warp]);
  }
  thread.sync();  // before the next use of the array
  return value;
}

template <class C>
TENON_DEVICE C load_inner(const ReduceArgs& args, std::int64_t outer, std::uint32_t i) {
  const Index at = index_of(args.inner, i);
  return load_as(C(), args.x, outer + offset_of(at, args.inner_steps, args.inner.rank));
}

TENON_DEVICE float finished(const ReduceArgs& args, float value) { return value / args.divisor; }
TENON_DEVICE std::int64_t finished(const ReduceArgs&, std::int64_t value) { return value; }

template <class C>
TENON_DEVICE void reduce_by_block(const Thread& thread, const ReduceArgs& args) {
  const auto op = static_cast<Reduction>(args.op);
  const std::uint32_t count = args.outer.count * args.parts;
  for (std::uint32_t block = thread.block(); block < count; block += thread.blocks()) {
    const std::uint32_t row = block / args.parts, first = block % args.parts * args.part_count;
    const std::uint32_t left = args.inner.count - first;
    const std::uint32_t behind = first + (left < args.part_count ? left : args.part_count);
    const Index at = index_of(args.outer, row);
    const std::int64_t from = offset_of(at, args.x.steps, args.outer.rank);
    C value = start_of(op, C());
    for (std::uint32_t i = first + thread.index(); i < behind; i += thread.count()) {
      value = joined(op, value, load_inner<C>(args, from, i));
    }
    value = reduced_by_block(thread, op, value);
    if (thread.index() != 0) continue;
    if (args.partial != 0) {
      global<C>(args.partial)[block] = value;
    } else {
      store_as(finished(args, value), args.y, offset_of(at, args.y.steps, args.outer.rank));
    }
  }
}

/// For few elements each: a thread per result.
template <class C>
TENON_DEVICE void reduce_by_thread(const Thread& thread, const ReduceArgs& args) {
  const auto op = static_cast<Reduction>(args.op);
  for (std::uint32_t row = first_of(thread); row < args.outer.count; row += stride_of(thread)) {
    const Index at = index_of(args.outer, row);
    const std::int64_t from = offset_of(at, args.x.steps, args.outer.rank);
    C value = start_of(op, C());
    for (std::uint32_t i = 0; i < args.inner.count; ++i) {
      value = joined(op, value, load_inner<C>(args, from, i));
    }
    store_as(finished(args, value), args.y, offset_of(at, args.y.steps, args.outer.rank));
  }
}

/// An element with its index; an index below 0: none.
template <class C>
struct Extreme {
  C value;
  std::int64_t index;
};

/// The first NaN, or the first of the largest (smallest) elements.
template <class C>
TENON_DEVICE Extreme<C> better(Reduction op, const Extreme<C>& a, const Extreme<C>& b) {
  if (a.index < 0) return b;
  if (b.index < 0) return a;
  const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
  const bool are_equal = a_nan || b_nan ? a_nan && b_nan : a.value == b.value;
  if (are_equal) return a.index < b.index ? a : b;
  if (a_nan || b_nan) return a_nan ? a : b;
  const bool a_wins = op == Reduction::argmax ? a.value > b.value : a.value < b.value;
  return a_wins ? a : b;
}

/// The same in every thread of the block.
template <class C>
TENON_DEVICE Extreme<C> best_of_block(const Thread& thread, Reduction op, Extreme<C> best) {
  TENON_SHARED(thread, C, values, 32);
  TENON_SHARED(thread, std::int64_t, indices, 32);
  for (unsigned mask = warp_size / 2; mask > 0; mask /= 2) {
    const C value = thread.shuffle_xor(best.value, mask);
    best = better(op, best, Extreme<C>{value, thread.shuffle_xor(best.index, mask)});
  }
  if (lane_of(thread) == 0) {
    values[warp_of(thread)] = best.value;
    indices[warp_of(thread)] = best.index;
  }
  thread.sync();
  best = Extreme<C>{values[0], indices[0]};
  for (unsigned warp = 1; warp < thread.count() / warp_size; ++warp) {
    best = better(op, best, Extreme<C>{values[warp], indices[warp]});
  }
  thread.sync();  // before the next use of the arrays
  return best;
}

template <class C>
TENON_DEVICE void arg_reduce(const Thread& thread, const ReduceArgs& args) {
  const auto op = static_cast<Reduction>(args.op);
  for (std::uint32_t row = thread.block(); row < args.outer.count; row += thread.blocks()) {
    const Index at = index_of(args.outer, row);
    const std::int64_t from = offset_of(at, args.x.steps, args.outer.rank);
    Extreme<C> best{C(), -1};
    for (std::uint32_t i = thread.index(); i < args.inner.count; i += thread.count()) {
      best = better(op, best, Extreme<C>{load_inner<C>(args, from, i), i});
    }
    best = best_of_block(thread, op, best);
    if (thread.index() == 0) {
      store_as(best.index, args.y, offset_of(at, args.y.steps, args.outer.rank));
    }
  }
}

}  // namespace tenon::cuda
