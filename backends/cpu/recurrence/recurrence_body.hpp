#pragma once

// Recurrences over the steps of a sequence. Included after a header of simd/ and math_body.hpp, by the
// sources of one instruction set each.
#include "recurrence_kernels.hpp"

#include <cstdint>

namespace tenon::cpu {
namespace {

/// The elements at `places`; the lanes after them are 0.
TENON_INLINE Float gathered(const float* from, const std::int64_t* places, bool is_row,
                            std::int64_t lanes) {
  if (is_row && lanes == Simd::lanes) return Simd::load_float(from + places[0]);
  alignas(64) float values[Simd::lanes] = {};
  for (std::int64_t i = 0; i < lanes; ++i) values[i] = from[places[i]];
  return Simd::load_float(values);
}

TENON_INLINE void store_lanes(float* to, Float values, std::int64_t lanes) {
  if (lanes == Simd::lanes) return Simd::store_float(to, values);
  alignas(64) float all[Simd::lanes];
  Simd::store_float(all, values);
  for (std::int64_t i = 0; i < lanes; ++i) to[i] = all[i];
}

TENON_INLINE Float load_lanes(const float* from, std::int64_t lanes) {
  if (lanes == Simd::lanes) return Simd::load_float(from);
  alignas(64) float values[Simd::lanes] = {};
  for (std::int64_t i = 0; i < lanes; ++i) values[i] = from[i];
  return Simd::load_float(values);
}

/// visit(n, sum) for n < count with four sums in turn, since one would wait for itself.
template <class Visit>
TENON_INLINE void in_fours(std::int64_t count, Float (&sums)[4], const Visit& visit) {
  std::int64_t n = 0;
  for (; n + 4 <= count; n += 4) {
    for (std::int64_t i = 0; i < 4; ++i) visit(n + i, sums[i]);
  }
  for (; n < count; ++n) visit(n, sums[0]);
}
TENON_INLINE Float sum_of(const Float (&sums)[4]) {
  return Simd::add(Simd::add(sums[0], sums[1]), Simd::add(sums[2], sums[3]));
}

/// One step: the states move on, and give y.
template <bool has_one_decay>
TENON_INLINE Float scan_step(const ScanBlock<float>& k, std::int64_t s, Float x, Float dt) {
  const float *in = k.in + s * k.in_step, *out = k.out + s * k.out_step;
  const Float added = Simd::mul(dt, x);
  Float decay = has_one_decay ? exponential(Simd::mul(dt, Simd::load_float(k.a))) : dt;
  Float sums[4] = {Simd::zero_float(), Simd::zero_float(), Simd::zero_float(), Simd::zero_float()};
  in_fours(k.states, sums, [&](std::int64_t n, Float& sum) {
    if constexpr (!has_one_decay) {
      decay = exponential(Simd::mul(dt, Simd::load_float(k.a + n * Simd::lanes)));
    }
    float* const at = k.h + n * Simd::lanes;
    const Float input = Simd::mul(added, Simd::broadcast(in + n * k.in_stride));
    const Float h = Simd::fma(Simd::load_float(at), decay, input);
    Simd::store_float(at, h);
    sum = Simd::fma(h, Simd::broadcast(out + n * k.out_stride), sum);
  });
  return sum_of(sums);
}

void run_scan(const ScanBlock<float>& k) noexcept {
  for (std::int64_t s = 0; s < k.steps; ++s) {
    const Float x = gathered(k.x + s * k.x_step, k.x_places, k.x_is_row, k.lanes);
    const Float dt = gathered(k.dt + s * k.dt_step, k.dt_places, k.dt_is_row, k.lanes);
    const Float y = k.has_one_decay ? scan_step<true>(k, s, x, dt) : scan_step<false>(k, s, x, dt);
    store_lanes(k.y + s * k.y_step, y, k.lanes);
  }
}

/// One step: what the state mixes, then the states move on and give y.
template <bool every_state>
TENON_INLINE Float wkv7_step(const Wkv7Block<float>& k, std::int64_t s, Float v) {
  const auto at = [&](const StepRows<float>& rows) { return rows.values + s * rows.step; };
  const float *r = at(k.r), *w = at(k.w), *key = at(k.k), *a = at(k.a), *b = at(k.b);
  Float mixed[4] = {Simd::zero_float(), Simd::zero_float(), Simd::zero_float(), Simd::zero_float()};
  Float sums[4] = {Simd::zero_float(), Simd::zero_float(), Simd::zero_float(), Simd::zero_float()};
  in_fours(k.states, mixed, [&](std::int64_t n, Float& sum) {
    sum = Simd::fma(Simd::load_float(k.h + n * Simd::lanes), Simd::broadcast(a + n), sum);
  });
  const Float all = sum_of(mixed);
  in_fours(k.states, sums, [&](std::int64_t n, Float& sum) {
    float* const to = k.h + n * Simd::lanes;
    Float h = Simd::mul(v, Simd::broadcast(key + n));
    h = Simd::fma(all, Simd::broadcast(b + n), h);
    h = Simd::fma(Simd::load_float(to), Simd::broadcast(w + n), h);
    Simd::store_float(to, h);
    if constexpr (every_state) {
      store_lanes(k.y + s * k.y_step + n * k.y_stride, h, k.lanes);
    } else {
      sum = Simd::fma(h, Simd::broadcast(r + n), sum);
    }
  });
  return sum_of(sums);
}

void run_wkv7(const Wkv7Block<float>& k) noexcept {
  for (std::int64_t s = 0; s < k.steps; ++s) {
    const Float v = load_lanes(k.v.values + s * k.v.step, k.lanes);
    if (k.every_state) {
      wkv7_step<true>(k, s, v);
    } else {
      store_lanes(k.y + s * k.y_step, wkv7_step<false>(k, s, v), k.lanes);
    }
  }
}

}  // namespace
}  // namespace tenon::cpu
