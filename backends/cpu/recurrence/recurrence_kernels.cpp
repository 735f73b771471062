#include "recurrence_kernels.hpp"

#include "../built_kernels.hpp"

#include <algorithm>
#include <cmath>

namespace tenon::cpu {
namespace {

constexpr std::int64_t f64_lanes = 8;

/// As in recurrence_body.hpp, with the lanes as loops that the compiler makes vectors of.
void scan(const ScanBlock<double>& k) noexcept {
  for (std::int64_t s = 0; s < k.steps; ++s) {
    double added[f64_lanes] = {}, dt[f64_lanes] = {}, decay[f64_lanes] = {}, y[f64_lanes] = {};
    for (std::int64_t i = 0; i < k.lanes; ++i) {
      dt[i] = k.dt[s * k.dt_step + k.dt_places[i]];
      added[i] = dt[i] * k.x[s * k.x_step + k.x_places[i]];
    }
    for (std::int64_t n = 0; n < k.states; ++n) {
      const double in = k.in[s * k.in_step + n];
      const double out = k.out[s * k.out_step + n];
      const double* const a = k.a + (k.has_one_decay ? 0 : n * f64_lanes);
      double* const h = k.h + n * f64_lanes;
      for (std::int64_t i = 0; i < f64_lanes; ++i) {
        if (n == 0 || !k.has_one_decay) decay[i] = std::exp(dt[i] * a[i]);
        h[i] = h[i] * decay[i] + added[i] * in;
        y[i] += h[i] * out;
      }
    }
    for (std::int64_t i = 0; i < k.lanes; ++i) k.y[s * k.y_step + i] = y[i];
  }
}

void scan_row(const ScanRow<double>& k) noexcept {
  for (std::int64_t i = 0; k.a_step == 0 && i < k.lanes; ++i)
    k.decay[i] = std::exp(k.decay[i] * k.a[i]);
  std::fill_n(k.y, k.lanes, 0.0);
  for (std::int64_t n = 0; n < k.states; ++n) {
    const double* const from = k.from + n * k.from_step;
    double* const to = k.to + n * k.to_step;
    for (std::int64_t i = 0; i < k.lanes; ++i) {
      const double decay =
          k.a_step == 0 ? k.decay[i] : std::exp(k.decay[i] * k.a[n * k.a_step + i]);
      to[i] = from[i] * decay + k.added[i] * k.in[n];
      k.y[i] += to[i] * k.out[n];
    }
  }
}

void wkv7(const Wkv7Block<double>& k) noexcept {
  for (std::int64_t s = 0; s < k.steps; ++s) {
    const auto at = [&](const StepRows<double>& rows) { return rows.values + s * rows.step; };
    const double *r = at(k.r), *w = at(k.w), *key = at(k.k), *a = at(k.a), *b = at(k.b);
    double v[f64_lanes] = {}, mixed[f64_lanes] = {}, y[f64_lanes] = {};
    for (std::int64_t i = 0; i < k.lanes; ++i) v[i] = at(k.v)[i];
    for (std::int64_t n = 0; n < k.states; ++n) {
      for (std::int64_t i = 0; i < f64_lanes; ++i) mixed[i] += a[n] * k.h[n * f64_lanes + i];
    }
    for (std::int64_t n = 0; n < k.states; ++n) {
      double* const h = k.h + n * f64_lanes;
      for (std::int64_t i = 0; i < f64_lanes; ++i) {
        h[i] = h[i] * w[n] + mixed[i] * b[n] + v[i] * key[n];
        y[i] += h[i] * r[n];
      }
      if (k.every_state) std::copy_n(h, k.lanes, k.y + s * k.y_step + n * k.y_stride);
    }
    if (!k.every_state) std::copy_n(y, k.lanes, k.y + s * k.y_step);
  }
}

}  // namespace

template <>
const RecurrenceKernels<float>& recurrence_kernels<float>() noexcept {
  // In the order of Isa: dot products of integers and tiles gain nothing here.
  static constexpr const RecurrenceKernels<float>* by_isa[isa_count] = {
      &portable::recurrence,      &avx2::recurrence,          &avx2::recurrence,
      &built::avx512::recurrence, &built::avx512::recurrence, &built::avx512::recurrence};
  return *by_isa[static_cast<int>(active_isa())];
}

template <>
const RecurrenceKernels<double>& recurrence_kernels<double>() noexcept {
  static constexpr RecurrenceKernels<double> kernels{f64_lanes, scan, scan_row, wkv7};
  return kernels;
}

}  // namespace tenon::cpu
