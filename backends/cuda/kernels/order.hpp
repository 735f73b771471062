// Kernels for which the order of the elements of a lane counts: a lane is an array's elements along
// one axis.
#pragma once

#include "kernels/block_sizes.hpp"
#include "kernels/reduce.hpp"

#include <cstdint>

namespace tenon::cuda {

/// Whether element i stands before element j: a NaN is larger than any number, and of equal elements
/// the lower index comes first.
template <class C>
TENON_DEVICE bool comes_before(C a, std::uint32_t i, C b, std::uint32_t j, bool descends) {
  const bool a_nan = a != a, b_nan = b != b;
  if (a_nan != b_nan) return descends ? a_nan : b_nan;
  if (a_nan || a == b) return i < j;
  return descends ? a > b : a < b;
}

/// Element i of a lane is number `rank` of its run, which begins with element `first`.
template <class C>
TENON_DEVICE void store_ranked(const OrderArgs& args, std::uint32_t lane, std::uint32_t first,
                               std::uint32_t rank, C value, std::uint32_t i) {
  if (args.to_values != 0) {
    const std::uint64_t place = std::uint64_t{lane} * args.length + first + rank;
    global<C>(args.to_values)[place] = value;
    global<std::uint32_t>(args.to_indices)[place] = i;
    return;
  }
  const Index at = index_of(args.lanes, lane);
  const std::int64_t to = offset_of(at, args.y.steps, args.lanes.rank) + rank * args.y_step;
  if (args.gives_indices) {
    store_as(std::int64_t{i}, args.y, to);
  } else {
    store_as(value, args.y, to);
  }
}

/// A thread per element counts those of its run that stand before it.
template <class C>
TENON_DEVICE void rank_elements(const Thread& thread, const OrderArgs& args) {
  const std::uint32_t count = args.lanes.count * args.length;
  for (std::uint32_t item = first_of(thread); item < count; item += stride_of(thread)) {
    const std::uint32_t lane = item / args.length, i = item % args.length;
    const std::int64_t from = offset_of(index_of(args.lanes, lane), args.x.steps, args.lanes.rank);
    const C value = load_as(C(), args.x, from + i * args.x_step);
    const std::uint32_t first = i / args.run * args.run;
    const std::uint32_t end = args.length - first < args.run ? args.length : first + args.run;
    std::uint32_t rank = 0;
    for (std::uint32_t j = first; j < end; ++j) {
      const C other = load_as(C(), args.x, from + j * args.x_step);
      if (comes_before(other, j, value, i, args.descends)) ++rank;
    }
    if (rank < args.kept) store_ranked(args, lane, first, rank, value, i);
  }
}

/// Elements that are stored of the run which begins at `first`.
TENON_DEVICE std::uint32_t stored_of_run(const OrderArgs& args, std::uint32_t first) {
  if (first >= args.length) return 0;
  const std::uint32_t size = args.length - first < args.run ? args.length - first : args.run;
  return size < args.kept ? size : args.kept;
}

/// Merges runs in pairs: a thread per element counts those of the other run that stand before it.
template <class C>
TENON_DEVICE void merge_runs(const Thread& thread, const OrderArgs& args) {
  const std::uint32_t runs = (args.length + args.run - 1) / args.run;
  const std::uint32_t stored = args.run < args.kept ? args.run : args.kept;
  const std::uint32_t of_lane = runs * stored, count = args.lanes.count * of_lane;
  for (std::uint32_t item = first_of(thread); item < count; item += stride_of(thread)) {
    const std::uint32_t lane = item / of_lane, run = item % of_lane / stored;
    const std::uint32_t place = item % stored;
    if (place >= stored_of_run(args, run * args.run)) continue;
    const auto* const values =
        global<const C>(args.from_values) + std::uint64_t{lane} * args.length;
    const auto* const indices =
        global<const std::uint32_t>(args.from_indices) + std::uint64_t{lane} * args.length;
    const C value = values[run * args.run + place];
    const std::uint32_t i = indices[run * args.run + place], other = (run ^ 1) * args.run;
    std::uint32_t begin = 0, end = stored_of_run(args, other);
    while (begin < end) {
      const std::uint32_t middle = begin + (end - begin) / 2;
      if (comes_before(values[other + middle], indices[other + middle], value, i, args.descends)) {
        begin = middle + 1;
      } else {
        end = middle;
      }
    }
    const std::uint32_t rank = place + begin;
    if (rank < args.kept) store_ranked(args, lane, run / 2 * 2 * args.run, rank, value, i);
  }
}

/// A thread per value: how many elements of its row stand before it.
template <class C>
TENON_DEVICE void search(const Thread& thread, const SearchArgs& args) {
  for (std::uint32_t i = first_of(thread); i < args.axes.count; i += stride_of(thread)) {
    const Index at = index_of(args.axes, i);
    const std::int64_t row = offset_of(at, args.sorted.steps, args.axes.rank);
    const C wanted = load_as(C(), args.values, offset_of(at, args.values.steps, args.axes.rank));
    std::uint32_t begin = 0, end = args.length;
    while (begin < end) {
      const std::uint32_t middle = begin + (end - begin) / 2;
      const C element = load_as(C(), args.sorted, row + middle * args.sorted_step);
      // Of equal ones the first argument with the lower number stands before.
      const bool is_before = args.takes_right ? comes_before(element, 0, wanted, 1, false)
                                              : comes_before(element, 1, wanted, 0, false);
      if (is_before) {
        begin = middle + 1;
      } else {
        end = middle;
      }
    }
    store_as(std::int64_t{begin}, args.y, offset_of(at, args.y.steps, args.axes.rank));
  }
}

/// A thread per lane: sums, products, maxima or minima of all elements up to each.
template <class C>
TENON_DEVICE void scan_lane(const Thread& thread, const OrderArgs& args) {
  const auto op = static_cast<Reduction>(args.op);
  for (std::uint32_t lane = first_of(thread); lane < args.lanes.count; lane += stride_of(thread)) {
    const Index at = index_of(args.lanes, lane);
    const std::int64_t from = offset_of(at, args.x.steps, args.lanes.rank);
    const std::int64_t to = offset_of(at, args.y.steps, args.lanes.rank);
    C value = start_of(op, C());
    for (std::uint32_t i = 0; i < args.length; ++i) {
      value = joined(op, value, load_as(C(), args.x, from + i * args.x_step));
      store_as(value, args.y, to + i * args.y_step);
    }
  }
}

/// The same of long lanes: a block per lane takes `scan_part` elements at a time, each thread a few in
/// a row, whose totals are summed up in shared memory. The order depends on the length alone.
template <class C>
TENON_DEVICE void scan_by_block(const Thread& thread, const OrderArgs& args) {
  constexpr std::uint32_t each = scan_part / scan_threads;
  TENON_SHARED(thread, C, totals, 2 * scan_threads);
  const auto op = static_cast<Reduction>(args.op);
  const std::uint32_t index = thread.index();
  for (std::uint32_t lane = thread.block(); lane < args.lanes.count; lane += thread.blocks()) {
    const Index at = index_of(args.lanes, lane);
    const std::int64_t from = offset_of(at, args.x.steps, args.lanes.rank);
    const std::int64_t to = offset_of(at, args.y.steps, args.lanes.rank);
    C carried = start_of(op, C());
    for (std::uint32_t begin = 0; begin < args.length; begin += scan_part) {
      const std::uint32_t first = begin + index * each;
      C values[each], value = start_of(op, C());
      TENON_UNROLL for (std::uint32_t j = 0; j < each; ++j) {
        if (first + j < args.length) {
          value = joined(op, value, load_as(C(), args.x, from + (first + j) * args.x_step));
        }
        values[j] = value;
      }
      std::uint32_t plane = 0;
      totals[index] = value;
      thread.sync();
      for (std::uint32_t distance = 1; distance < scan_threads; distance *= 2) {
        C total = totals[plane + index];
        if (index >= distance) total = joined(op, totals[plane + index - distance], total);
        plane = scan_threads - plane;
        totals[plane + index] = total;
        thread.sync();
      }
      const C before = index == 0 ? carried : joined(op, carried, totals[plane + index - 1]);
      TENON_UNROLL for (std::uint32_t j = 0; j < each; ++j) {
        if (first + j >= args.length) continue;
        store_as(joined(op, before, values[j]), args.y, to + (first + j) * args.y_step);
      }
      carried = joined(op, carried, totals[plane + scan_threads - 1]);
      thread.sync();
    }
  }
}

/// A thread per lane: elements of a source are put in, or joined, one after the other.
template <class C>
TENON_DEVICE void scatter_lane(const Thread& thread, const ScatterArgs& args) {
  const auto op = static_cast<Reduction>(args.op);
  for (std::uint32_t lane = first_of(thread); lane < args.lanes.count; lane += stride_of(thread)) {
    const Index at = index_of(args.lanes, lane);
    const std::int64_t to = offset_of(at, args.y.steps, args.lanes.rank);
    const std::int64_t indices = offset_of(at, args.index.steps, args.lanes.rank);
    const std::int64_t from = offset_of(at, args.source.steps, args.lanes.rank);
    for (std::uint32_t i = 0; i < args.length; ++i) {
      const std::int64_t picked =
          load_as(std::int64_t(), args.index, indices + i * args.index_step);
      if (picked < 0 || picked >= args.limit) {
        report(args.reporter, picked, args.limit);
        continue;
      }
      C value = load_as(C(), args.source, from + i * args.source_step);
      const std::int64_t place = to + picked * args.y_step;
      if (!args.sets) value = joined(op, load_as(C(), args.y, place), value);
      store_as(value, args.y, place);
    }
  }
}

}  // namespace tenon::cuda
