// Kernels for which the order of the elements of a lane counts: a lane is an array's elements along
// one axis.
#pragma once

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

/// A thread per element counts those before it, and puts it, or its index, where it belongs.
template <class C>
TENON_DEVICE void rank_elements(const Thread& thread, const OrderArgs& args) {
  const std::uint32_t count = args.lanes.count * args.length;
  for (std::uint32_t item = first_of(thread); item < count; item += stride_of(thread)) {
    const Index at = index_of(args.lanes, item / args.length);
    const std::uint32_t i = item % args.length;
    const std::int64_t from = offset_of(at, args.x.steps, args.lanes.rank);
    const C value = load_as(C(), args.x, from + i * args.x_step);
    std::uint32_t rank = 0;
    for (std::uint32_t j = 0; j < args.length; ++j) {
      const C other = load_as(C(), args.x, from + j * args.x_step);
      if (comes_before(other, j, value, i, args.descends)) ++rank;
    }
    if (rank >= args.kept) continue;
    const std::int64_t to = offset_of(at, args.y.steps, args.lanes.rank) + rank * args.y_step;
    if (args.gives_indices) {
      store_as(std::int64_t{i}, args.y, to);
    } else {
      store_as(value, args.y, to);
    }
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
