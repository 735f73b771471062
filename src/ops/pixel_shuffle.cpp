#include "ops/builder.hpp"

#include <tenon/ops/axes.hpp>
#include <tenon/ops/permute.hpp>
#include <tenon/ops/pixel_shuffle.hpp>

#include <string_view>
#include <vector>

namespace tenon {
namespace {

void require_image(std::string_view op, const Tensor& x, std::int64_t r,
                   const std::source_location& where) {
  if (x.rank(where) < 3) {
    fail_at(where, Errc::shape_mismatch, op,
            fmt::format("x needs rank 3 or more, got {}", to_string(x.shape())));
  }
  if (r < 1) fail_at(where, Errc::bad_attribute, op, fmt::format("blocks of {}", r));
}

/// The leading axes as they are, the last ones in this order, counted from the first of them.
Tensor permute_last(const Tensor& x, std::initializer_list<int> order,
                    const std::source_location& where) {
  std::vector<AxisRef> axes;
  const int lead = x.rank() - static_cast<int>(order.size());
  for (int i = 0; i < lead; ++i) axes.emplace_back(i);
  for (const int axis : order) axes.emplace_back(lead + axis);
  return permute(x, std::span<const AxisRef>(axes), where);
}

/// [..., C, H, i, W, j], in the order of pixels.
Tensor merged(const Tensor& x, const std::source_location& where) {
  return merge_axes(merge_axes(x, -2, -1, {}, where), -3, -2, {}, where);
}

/// x [..., C, H * r, W * r] as [..., C, H, r, W, r].
Tensor blocks_of(const Tensor& x, std::int64_t r, const std::source_location& where) {
  return split_axis(split_axis(x, -1, {-1, r}, where), -3, {-1, r}, where);
}

}  // namespace

Tensor pixel_shuffle(const Tensor& x, std::int64_t r, const std::source_location& where) {
  require_image("pixel_shuffle", x, r, where);
  const Tensor parts = split_axis(x, -3, {-1, r, r}, where);  // [..., C, i, j, H, W]
  return merged(permute_last(parts, {0, 3, 1, 4, 2}, where), where);
}

Tensor pixel_unshuffle(const Tensor& x, std::int64_t r, const std::source_location& where) {
  require_image("pixel_unshuffle", x, r, where);
  const Tensor parts = permute_last(blocks_of(x, r, where), {0, 2, 4, 1, 3}, where);
  return merge_axes(parts, -5, -3, {}, where);
}

Tensor depth_to_space(const Tensor& x, std::int64_t r, Name mode,
                      const std::source_location& where) {
  constexpr std::string_view name = "depth_to_space";
  require_image(name, x, r, where);
  if (mode == Name("CRD")) return pixel_shuffle(x, r, where);
  if (!mode.empty() && mode != Name("DCR")) {
    fail_at(where, Errc::bad_attribute, name,
            fmt::format("no mode '{}'; there are DCR, CRD", mode.text()));
  }
  const Tensor parts = split_axis(x, -3, {r, r, -1}, where);  // [..., i, j, C, H, W]
  return merged(permute_last(parts, {2, 3, 0, 4, 1}, where), where);
}

Tensor space_to_depth(const Tensor& x, std::int64_t r, const std::source_location& where) {
  require_image("space_to_depth", x, r, where);
  const Tensor parts = permute_last(blocks_of(x, r, where), {2, 4, 0, 1, 3}, where);
  return merge_axes(parts, -5, -3, {}, where);
}

}  // namespace tenon
