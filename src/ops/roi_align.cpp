#include "ops/checks.hpp"
#include "ops/rows.hpp"
#include "ops/support.hpp"

#include <tenon/ops/roi_align.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace tenon {

TENON_DEFINE_OP(roi_align, RoiAlign);
TENON_DEFINE_OP(roi_align_backward, RoiAlignBackward);

namespace {

/// The shape of roi_align's result.
template <class Op>
Shape infer_roi(const Op& op, std::span<const Shape> in) {
  constexpr std::string_view name = Op::name;
  const Shape &x = in[0], &boxes = in[1], &images = in[2];
  constexpr std::array<std::string_view, 4> names{"x", "boxes", "images", "upstream"};
  const std::string operands = operands_text(names, in);
  require_floating(name, x);  // C1
  require_floating(name, boxes);
  require_index(name, images);
  require_rank(name, "x", x, 4);  // C2
  require_rank(name, "boxes", boxes, 2);
  require_rank(name, "images", images, 1);
  if (x.dtype() != boxes.dtype() || !sizes_agree(boxes[0], images[0]) ||
      !sizes_agree(boxes[1], 4)) {
    fail(Errc::shape_mismatch, name, fmt::format("operands do not fit: {}", operands));
  }
  const bool is_good = op.size.size() == 2 && op.size[0] >= 1 && op.size[1] >= 1 && op.scale > 0 &&
                       std::isfinite(op.scale) && op.sampling_ratio >= 0 &&
                       op.sampling_ratio <= 1 << 20;
  if (!is_good) {  // C3
    fail(Errc::bad_attribute, name,
         fmt::format("size [{}], scale {}, sampling_ratio {}", fmt::join(op.size.span(), ", "),
                     op.scale, op.sampling_ratio));
  }
  const std::array dims{known_size(boxes[0], images[0]), x[1], op.size[0], op.size[1]};
  const Shape y(std::span<const std::int64_t>(dims), x.dtype());
  for (int i = 0; in.size() == 4 && i < 4; ++i) {  // C5
    const bool agree =
        in[3].rank() == 4 && in[3].dtype() == x.dtype() && sizes_agree(in[3][i], y[i]);
    if (!agree) {
      fail(Errc::shape_mismatch, name,
           fmt::format("upstream is not {}: {}", to_string(y), operands));
    }
  }
  return y;
}

/// The elements between which a sample lies along an axis, and the share of the second; no elements
/// more than one outside.
struct RoiSample {
  std::int64_t low = 0, high = 0;
  double share = 0;
  bool is_inside = false;
};
RoiSample roi_sample(double at, std::int64_t size) {
  if (!(at >= -1 && at <= static_cast<double>(size)) || size == 0) return {};
  at = std::max(at, 0.0);
  const auto low = static_cast<std::int64_t>(at);
  if (low >= size - 1) return {size - 1, size - 1, 0, true};
  return {low, low + 1, at - static_cast<double>(low), true};
}

/// Calls visit(box, image, cell row, cell column, row, column, weight) for every pixel that each
/// cell is a mean of.
template <class Op, class Visit>
void for_each_roi_pixel(const Op& op, std::span<const HostView> in, Visit&& visit) {
  const HostView &x = in[0], &boxes = in[1], &images = in[2];
  const std::int64_t height = x.shape[2], width = x.shape[3];
  for (std::int64_t box = 0; box < boxes.shape[0]; ++box) {
    const std::int64_t image = load_as_int64(images.shape.dtype(), images.at(std::array{box}));
    if (image < 0 || image >= x.shape[0]) {  // C4
      fail(Errc::out_of_range, Op::name,
           fmt::format("box {} is of image {} of {}", box, image, x.shape[0]));
    }
    std::array<double, 4> ends{};
    for (std::int64_t i = 0; i < 4; ++i) {
      ends[static_cast<std::size_t>(i)] =
          load_as_double(boxes.shape.dtype(), boxes.at(std::array{box, i})) * op.scale -
          (op.aligned ? 0.5 : 0.0);
    }
    std::array<double, 2> extents{ends[3] - ends[1], ends[2] - ends[0]};
    std::array<std::int64_t, 2> parts{};
    for (std::size_t i = 0; i < 2; ++i) {
      if (!op.aligned) extents[i] = std::max(extents[i], 1.0);
      const double cell = extents[i] / static_cast<double>(op.size[i]);
      const double wanted = std::isfinite(cell) ? std::clamp(std::ceil(cell), 0.0, 0x1p20) : 0.0;
      parts[i] = op.sampling_ratio > 0 ? op.sampling_ratio : static_cast<std::int64_t>(wanted);
    }
    const double count = static_cast<double>(std::max<std::int64_t>(parts[0] * parts[1], 1));
    const auto sample = [&](std::size_t axis, std::int64_t cell, std::int64_t part) {
      const double size = extents[axis] / static_cast<double>(op.size[axis]);
      const double at = ends[1 - axis] + static_cast<double>(cell) * size +
                        (static_cast<double>(part) + 0.5) * size / static_cast<double>(parts[axis]);
      return roi_sample(at, axis == 0 ? height : width);
    };
    for (std::int64_t i = 0; i < op.size[0]; ++i) {
      for (std::int64_t j = 0; j < op.size[1]; ++j) {
        for (std::int64_t r = 0; r < parts[0]; ++r) {
          const RoiSample down = sample(0, i, r);
          for (std::int64_t s = 0; s < parts[1] && down.is_inside; ++s) {
            const RoiSample across = sample(1, j, s);
            if (!across.is_inside) continue;
            const double a = across.share, b = down.share;
            visit(box, image, i, j, down.low, across.low, (1 - a) * (1 - b) / count);
            visit(box, image, i, j, down.low, across.high, a * (1 - b) / count);
            visit(box, image, i, j, down.high, across.low, (1 - a) * b / count);
            visit(box, image, i, j, down.high, across.high, a * b / count);
          }
        }
      }
    }
  }
}

template <class To, class From>
To with_attributes(const From& from) {
  return {.size = from.size,
          .scale = from.scale,
          .sampling_ratio = from.sampling_ratio,
          .aligned = from.aligned};
}

/// Sums of products, at flat indices of `out`, rounded once.
template <class Op, class Place>
void add_roi_products(const Op& op, std::span<const HostView> in, const HostView& out,
                      Place&& place) {
  std::vector<double> sums(static_cast<std::size_t>(out.shape.elements()));
  const std::int64_t channels = in[0].shape[1];
  for_each_roi_pixel(op, in,
                     [&](std::int64_t box, std::int64_t image, std::int64_t i, std::int64_t j,
                         std::int64_t row, std::int64_t column, double weight) {
                       for (std::int64_t c = 0; c < channels; ++c) {
                         const std::array cell{box, c, i, j}, pixel{image, c, row, column};
                         place(sums, cell, pixel, weight);
                       }
                     });
  std::size_t next = 0;
  for_each_index(out.shape, [&](std::span<const std::int64_t> index) {
    store_double(out.shape.dtype(), out.at(index), sums[next++]);
  });
}

std::size_t flat_index(const Shape& shape, std::span<const std::int64_t> index) {
  std::int64_t at = 0;
  for (int i = 0; i < shape.rank(); ++i) at = at * shape[i] + index[static_cast<std::size_t>(i)];
  return static_cast<std::size_t>(at);
}

}  // namespace

Shape RoiAlign::infer(std::span<const Shape> in) const { return infer_roi(*this, in); }

void RoiAlign::reference(std::span<const HostView> in, const HostView& out) const {
  add_roi_products(*this, in, out,
                   [&](std::vector<double>& sums, const auto& cell, const auto& pixel, double w) {
                     sums[flat_index(out.shape, cell)] +=
                         w * load_as_double(out.shape.dtype(), in[0].at(pixel));
                   });
}

std::vector<Tensor> RoiAlign::gradient(const Backward& at) const {
  const std::array inputs{at.inputs[0], at.inputs[1], at.inputs[2], at.upstream};
  return {record(with_attributes<RoiAlignBackward>(*this), inputs, std::source_location::current()),
          Tensor(), Tensor()};
}

Shape RoiAlignBackward::infer(std::span<const Shape> in) const {
  infer_roi(*this, in);
  return in[0].without_tags();
}

void RoiAlignBackward::reference(std::span<const HostView> in, const HostView& out) const {
  add_roi_products(*this, in, out,
                   [&](std::vector<double>& sums, const auto& cell, const auto& pixel, double w) {
                     sums[flat_index(out.shape, pixel)] +=
                         w * load_as_double(out.shape.dtype(), in[3].at(cell));
                   });
}

std::vector<Tensor> RoiAlignBackward::gradient(const Backward& at) const {
  return {Tensor(), Tensor(), Tensor(),
          roi_align(at.upstream, at.inputs[1], at.inputs[2], with_attributes<RoiAlign>(*this))};
}

Tensor roi_align(const Tensor& x, const Tensor& boxes, const Tensor& images,
                 const RoiAlign& options, const std::source_location& where) {
  return record(options, {x, boxes, images}, where);
}

}  // namespace tenon
