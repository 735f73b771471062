#pragma once

#include "../thread_pool.hpp"
#include "vision_kernels.hpp"

#include <array>
#include <cstdint>

namespace tenon::cpu {

/// Rows [to.begin, to.end) of a plane that windows add up to: `start`, plus the elements of rows
/// [from.begin, from.end) of windows. Element (i, j) of tap (r, s) is at
/// windows[(r * columns.taps + s) * tap_step + (i - from.begin) * columns.outputs + j]. `y` is the
/// row to.begin. Axes: rows, columns, with the plane as their input.
void fold_plane(const float* windows, std::int64_t tap_step, const std::array<WindowAxis, 2>& axes,
                Range from, Range to, float start, float* y) noexcept;
void fold_plane(const double* windows, std::int64_t tap_step, const std::array<WindowAxis, 2>& axes,
                Range from, Range to, double start, double* y) noexcept;

}  // namespace tenon::cpu
