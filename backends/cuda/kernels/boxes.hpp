// Boxes that are kept when those that overlap a better one are dropped: a block per class of an
// image keeps the best box and hides those that overlap it, until none is left.
#pragma once

#include "kernels/reduce.hpp"

#include <cstdint>

namespace tenon::cuda {

struct Box {
  double top, left, bottom, right;
};

TENON_DEVICE Box read_box(const BoxArgs& args, std::uint32_t image, std::uint32_t i) {
  double v[4];
  const std::int64_t(&steps)[max_axes] = args.boxes.steps.bytes;
  for (int k = 0; k < 4; ++k) {
    v[k] = static_cast<double>(
        load_as(0.0f, args.boxes, image * steps[0] + i * steps[1] + k * steps[2]));
  }
  if (args.is_centred) {
    return {v[1] - v[3] / 2, v[0] - v[2] / 2, v[1] + v[3] / 2, v[0] + v[2] / 2};
  }
  const auto low = [](double a, double b) { return b < a ? b : a; };
  const auto high = [](double a, double b) { return a < b ? b : a; };
  return {low(v[0], v[2]), low(v[1], v[3]), high(v[0], v[2]), high(v[1], v[3])};
}

TENON_DEVICE double area_of(const Box& box) {
  return (box.bottom - box.top) * (box.right - box.left);
}

TENON_DEVICE double overlap_of(const Box& a, const Box& b) {
  const double bottom = b.bottom < a.bottom ? b.bottom : a.bottom;
  const double right = b.right < a.right ? b.right : a.right;
  const double height = bottom - (a.top < b.top ? b.top : a.top);
  const double width = right - (a.left < b.left ? b.left : a.left);
  if (!(height > 0 && width > 0)) return 0;
  const double common = height * width;
  return common / (area_of(a) + area_of(b) - common);
}

TENON_DEVICE void pick_boxes(const Thread& thread, const BoxArgs& args) {
  for (std::uint32_t row = thread.block(); row < args.classes.count; row += thread.blocks()) {
    const Index at = index_of(args.classes, row);
    const std::uint32_t image = at.at[0];
    const std::int64_t scores = offset_of(at, args.scores.steps, args.classes.rank);
    auto* const hidden = global<std::uint8_t>(args.hidden) + std::uint64_t{row} * args.count;
    auto* const picked = global<std::int32_t>(args.picked) + std::uint64_t{row} * args.max_kept;
    const auto score_of = [&](std::uint32_t i) {
      return load_as(0.0f, args.scores, scores + i * args.scores.steps.bytes[2]);
    };
    for (std::uint32_t i = thread.index(); i < args.count; i += thread.count()) {
      const auto score = static_cast<double>(score_of(i));
      const bool takes_part = args.score_threshold == -static_cast<double>(infinity())
                                  ? score == score
                                  : score > args.score_threshold;
      hidden[i] = takes_part ? 0 : 1;
    }
    std::uint32_t kept = 0;
    while (kept < args.max_kept) {
      Extreme<float> best{0, -1};
      for (std::uint32_t i = thread.index(); i < args.count; i += thread.count()) {
        if (hidden[i] == 0) {
          best = better(Reduction::argmax, best, Extreme<float>{score_of(i), std::int64_t{i}});
        }
      }
      best = best_of_block(thread, Reduction::argmax, best);
      if (best.index < 0) break;
      const auto chosen = static_cast<std::uint32_t>(best.index);
      const Box box = read_box(args, image, chosen);
      for (std::uint32_t i = thread.index(); i < args.count; i += thread.count()) {
        const bool goes =
            i == chosen || overlap_of(read_box(args, image, i), box) > args.iou_threshold;
        if (goes) hidden[i] = 1;
      }
      if (thread.index() == 0) picked[kept] = static_cast<std::int32_t>(chosen);
      ++kept;
    }
    if (thread.index() == 0) {
      global<std::int32_t>(args.counts)[row] = static_cast<std::int32_t>(kept);
    }
    thread.sync();
  }
}

/// A thread per row of the result.
TENON_DEVICE void list_boxes(const Thread& thread, const BoxArgs& args) {
  const auto* const counts = global<const std::int32_t>(args.counts);
  for (std::int64_t row = first_of(thread); row < args.capacity; row += stride_of(thread)) {
    std::int64_t before = 0;
    std::uint32_t kind = 0;
    while (kind < args.classes.count && before + counts[kind] <= row) before += counts[kind++];
    std::int64_t values[3] = {-1, -1, -1};
    if (kind < args.classes.count) {
      const Index at = index_of(args.classes, kind);
      values[0] = at.at[0];
      values[1] = at.at[1];
      values[2] = global<const std::int32_t>(
          args.picked)[std::int64_t{kind} * args.max_kept + (row - before)];
    }
    for (int i = 0; i < 3; ++i) {
      store_as(values[i], args.y, row * args.y.steps.bytes[0] + i * args.y.steps.bytes[1]);
    }
  }
}

}  // namespace tenon::cuda
