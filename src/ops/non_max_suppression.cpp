#include "ops/rows.hpp"
#include "ops/support.hpp"

#include <tenon/ops/non_max_suppression.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace tenon {

TENON_DEFINE_OP(non_max_suppression, NonMaxSuppression);

namespace {

struct Box {
  double top, left, bottom, right;
  double area() const noexcept { return (bottom - top) * (right - left); }
};

double overlap_of(const Box& a, const Box& b) {
  const double height = std::min(a.bottom, b.bottom) - std::max(a.top, b.top);
  const double width = std::min(a.right, b.right) - std::max(a.left, b.left);
  if (!(height > 0 && width > 0)) return 0;
  const double common = height * width;
  return common / (a.area() + b.area() - common);
}

Box read_box(const HostView& boxes, std::int64_t image, std::int64_t i, bool is_centred) {
  std::array<double, 4> v{};
  for (std::int64_t k = 0; k < 4; ++k) {
    v[static_cast<std::size_t>(k)] =
        load_as_double(boxes.shape.dtype(), boxes.at(std::array{image, i, k}));
  }
  if (is_centred) {
    return {v[1] - v[3] / 2, v[0] - v[2] / 2, v[1] + v[3] / 2, v[0] + v[2] / 2};
  }
  return {std::min(v[0], v[2]), std::min(v[1], v[3]), std::max(v[0], v[2]), std::max(v[1], v[3])};
}

}  // namespace

Shape NonMaxSuppression::infer(std::span<const Shape> in) const {
  const Shape &boxes = in[0], &scores = in[1];
  constexpr std::array<std::string_view, 2> names{"boxes", "scores"};
  const std::string operands = operands_text(names, in);
  require_floating(name, boxes);  // C1
  require_floating(name, scores);
  require_rank(name, "boxes", boxes, 3);  // C2
  require_rank(name, "scores", scores, 3);
  if (boxes.dtype() != scores.dtype() || !sizes_agree(boxes[0], scores[0]) ||
      !sizes_agree(boxes[1], scores[2]) || !sizes_agree(boxes[2], 4)) {
    fail(Errc::shape_mismatch, name, fmt::format("operands do not fit: {}", operands));
  }
  const bool is_good = capacity >= 0 && max_per_class >= 0 && iou_threshold >= 0 &&
                       iou_threshold <= 1 && !std::isnan(score_threshold);
  if (!is_good) {  // C3
    fail(Errc::bad_attribute, name,
         fmt::format("capacity {}, max_per_class {}, iou_threshold {}, score_threshold {}",
                     capacity, max_per_class, iou_threshold, score_threshold));
  }
  return Shape({capacity, 3}, i64);
}

void NonMaxSuppression::reference(std::span<const HostView> in, const HostView& out) const {
  const HostView &boxes = in[0], &scores = in[1];
  std::int64_t row = 0;
  const auto put = [&](std::array<std::int64_t, 3> values) {
    if (row >= capacity) return;
    for (std::int64_t i = 0; i < 3; ++i) {
      store_int64(i64, out.at(std::array{row, i}), values[static_cast<std::size_t>(i)]);
    }
    ++row;
  };
  for (std::int64_t image = 0; image < boxes.shape[0]; ++image) {
    for (std::int64_t kind = 0; kind < scores.shape[1]; ++kind) {
      struct Scored {
        double score;
        std::int64_t box;
      };
      std::vector<Scored> order;
      for (std::int64_t i = 0; i < boxes.shape[1]; ++i) {
        const double score =
            load_as_double(scores.shape.dtype(), scores.at(std::array{image, kind, i}));
        const bool takes_part = std::isinf(score_threshold) && score_threshold < 0
                                    ? !std::isnan(score)
                                    : score > score_threshold;
        if (takes_part) order.push_back({score, i});
      }
      std::ranges::sort(order, [](Scored a, Scored b) {
        return a.score != b.score ? a.score > b.score : a.box < b.box;
      });
      std::vector<Box> kept;
      for (const Scored& next : order) {
        if (static_cast<std::int64_t>(kept.size()) >= max_per_class) break;
        const Box box = read_box(boxes, image, next.box, center_point_box);
        const bool is_hidden = std::ranges::any_of(
            kept, [&](const Box& other) { return overlap_of(box, other) > iou_threshold; });
        if (is_hidden) continue;
        kept.push_back(box);
        put({image, kind, next.box});
      }
    }
  }
  while (row < capacity) put({-1, -1, -1});
}

double NonMaxSuppression::flops(std::span<const Shape>, const Shape&) const { return std::nan(""); }

Tensor non_max_suppression(const Tensor& boxes, const Tensor& scores,
                           const NonMaxSuppression& options, const std::source_location& where) {
  return record(options, {boxes, scores}, where);
}

}  // namespace tenon
