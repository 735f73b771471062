#include "fold_plane.hpp"

#include <algorithm>

namespace tenon::cpu {

void fold_plane(const float* windows, std::int64_t tap_step, const std::array<WindowAxis, 2>& axes,
                Range from, Range to, float start, float* y) noexcept {
  const VisionKernels& kernels = vision_kernels();
  const auto& [rows, columns] = axes;
  for (std::int64_t row = to.begin; row < to.end; ++row, y += columns.inputs) {
    FoldedRows arriving{{}, 0, tap_step};
    bool is_begun = false;
    const auto finish = [&] {
      if (!is_begun) return kernels.fold_rows(arriving, columns, start, y);
      for (std::int64_t k = 0; k < arriving.count; ++k) {
        kernels.fold_row(arriving.rows[k], tap_step, columns, y);
      }
    };
    for (std::int64_t r = 0; r < rows.taps; ++r) {
      const std::int64_t at = row + rows.before - r * rows.dilation;
      if (at < 0 || at % rows.stride != 0) continue;
      const std::int64_t i = at / rows.stride;
      if (i < from.begin || i >= from.end) continue;
      if (arriving.count == FoldedRows::most) {
        finish();
        is_begun = true;
        arriving.count = 0;
      }
      arriving.rows[arriving.count++] =
          windows + r * columns.taps * tap_step + (i - from.begin) * columns.outputs;
    }
    finish();
  }
}

void fold_plane(const double* windows, std::int64_t tap_step, const std::array<WindowAxis, 2>& axes,
                Range from, Range to, double start, double* y) noexcept {
  const auto& [rows, columns] = axes;
  for (std::int64_t row = to.begin; row < to.end; ++row, y += columns.inputs) {
    std::fill_n(y, columns.inputs, start);
    for (std::int64_t r = 0; r < rows.taps; ++r) {
      const std::int64_t at = row + rows.before - r * rows.dilation;
      if (at < 0 || at % rows.stride != 0) continue;
      const std::int64_t i = at / rows.stride;
      if (i < from.begin || i >= from.end) continue;
      for (std::int64_t s = 0; s < columns.taps; ++s) {
        const double* window =
            windows + (r * columns.taps + s) * tap_step + (i - from.begin) * columns.outputs;
        const std::int64_t first = s * columns.dilation - columns.before;
        for (std::int64_t j = 0; j < columns.outputs; ++j) {
          const std::int64_t column = first + j * columns.stride;
          if (column >= 0 && column < columns.inputs) y[column] += window[j];
        }
      }
    }
  }
}

}  // namespace tenon::cpu
