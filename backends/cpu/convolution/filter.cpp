#include "filter.hpp"

#include "../thread_pool.hpp"
#include "filter_recipe.hpp"
#include "winograd/filter.hpp"

#include <algorithm>
#include <cstddef>

#include <fmt/format.h>

namespace tenon::cpu {

void pack_filter(const FilterShape& shape, const HostView& w, float* packed, int thread,
                 int threads) noexcept {
  const Range panels = split(shape.packed_groups() * shape.group_panels(), thread, threads);
  for (std::int64_t p = panels.begin; p < panels.end; ++p) {
    const std::int64_t first = p % shape.group_panels() * 16;
    const std::int64_t count = std::min<std::int64_t>(16, shape.group_outputs() - first);
    const std::int64_t output = p / shape.group_panels() * shape.group_outputs() + first;
    float* to = packed + p * shape.panel_elements();
    std::fill_n(to, shape.panel_elements(), 0.0f);
    // By outputs outermost: a file's filter is read in its own order.
    for (std::int64_t o = 0; o < count; ++o) {
      for (std::int64_t c = 0; c < shape.channels; ++c) {
        if (shape.form == FilterForm::winograd) {
          const std::byte* from = w.data + (output + o) * w.strides[0] + c * w.strides[1];
          winograd::transform_filter({from, w.strides[2], w.strides[3]}, to + c * 16 + o,
                                     shape.channels * 16);
          continue;
        }
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
