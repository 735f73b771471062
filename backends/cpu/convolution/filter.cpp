#include "filter.hpp"

#include "../thread_pool.hpp"
#include "array/transpose.hpp"
#include "filter_recipe.hpp"
#include "winograd/filter.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include <fmt/format.h>

namespace tenon::cpu {
namespace {

/// Packs the outputs of a panel where their taps, or the channels of a single tap, lie side by side
/// in either order: by a transposition per channel, or one for all. Otherwise false.
bool transpose_panel(const FilterShape& shape, const HostView& w, std::int64_t output,
                     std::int64_t count, float* to) noexcept {
  constexpr std::int64_t unit = sizeof(float), line = 16 * unit;
  const std::int64_t taps = shape.rows * shape.columns;
  const std::byte* from = w.data + output * w.strides[0];
  auto* const packed = reinterpret_cast<std::byte*>(to);
  if (taps == 1) {
    if (w.strides[1] != unit) return false;
    transpose(from, w.strides[0], packed, line, shape.channels, count, unit);
    return true;
  }
  const std::int64_t step = w.strides[3];
  if ((step != unit && step != -unit) || w.strides[2] != shape.columns * step) return false;
  const std::int64_t tap_line = shape.channels * line;
  if (step == unit && w.strides[1] == taps * unit) {  // a file's order
    constexpr std::int64_t block = 64;
    alignas(64) std::byte lines[block * line];
    const std::int64_t all = shape.channels * taps;
    for (std::int64_t e = 0; e < all; e += block) {
      const std::int64_t many = std::min(block, all - e);
      if (count < 16) std::memset(lines, 0, sizeof(lines));
      transpose(from + e * unit, w.strides[0], lines, line, many, count, unit);
      for (std::int64_t i = 0; i < many; ++i) {
        const std::int64_t c = (e + i) / taps, tap = (e + i) % taps;
        std::memcpy(packed + tap * tap_line + c * line, lines + i * line, line);
      }
    }
    return true;
  }
  for (std::int64_t c = 0; c < shape.channels; ++c) {
    const std::byte* first = from + c * w.strides[1];
    std::byte* const at = packed + c * line;
    if (step == unit) {
      transpose(first, w.strides[0], at, tap_line, taps, count, unit);
    } else {
      transpose(first - (taps - 1) * unit, w.strides[0], at + (taps - 1) * tap_line, -tap_line,
                taps, count, unit);
    }
  }
  return true;
}

}  // namespace

void pack_filter(const FilterShape& shape, const HostView& w, float* packed, int thread,
                 int threads) noexcept {
  const Range panels = split(shape.packed_groups() * shape.group_panels(), thread, threads);
  for (std::int64_t p = panels.begin; p < panels.end; ++p) {
    const std::int64_t first = p % shape.group_panels() * 16;
    const std::int64_t count = std::min<std::int64_t>(16, shape.group_outputs() - first);
    const std::int64_t output = p / shape.group_panels() * shape.group_outputs() + first;
    float* to = packed + p * shape.panel_elements();
    if (shape.form == FilterForm::winograd) {
      for (std::int64_t c = 0; c < shape.channels; ++c) {
        const std::byte* from = w.data + output * w.strides[0] + c * w.strides[1];
        winograd::transform_filters({from, w.strides[0], w.strides[2], w.strides[3]}, count,
                                    to + c * 16, shape.channels * 16);
      }
      continue;
    }
    if (count < 16) std::fill_n(to, shape.panel_elements(), 0.0f);
    if (transpose_panel(shape, w, output, count, to)) continue;
    // By outputs outermost: a file's filter is read in its own order.
    for (std::int64_t o = 0; o < count; ++o) {
      for (std::int64_t c = 0; c < shape.channels; ++c) {
        for (std::int64_t r = 0; r < shape.rows; ++r) {
          const std::byte* from =
              w.data + (output + o) * w.strides[0] + c * w.strides[1] + r * w.strides[2];
          float* line = to + (r * shape.columns * shape.channels + c) * 16 + o;
          for (std::int64_t s = 0; s < shape.columns; ++s) {
            line[s * shape.channels * 16] =
                *reinterpret_cast<const float*>(from + s * w.strides[3]);
          }
        }
      }
    }
  }
}

std::shared_ptr<const Recipe> filter_recipe(const FilterShape& shape) {
  return std::make_shared<FilterRecipe<PackedFilter, FilterShape>>(
      shape, fmt::format("filter 1 {} in {}, form {}", to_string(shape.file_shape()), shape.groups,
                         static_cast<int>(shape.form)));
}

}  // namespace tenon::cpu
