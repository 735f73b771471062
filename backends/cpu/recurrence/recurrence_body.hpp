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

/// Where a row of a block's memory begins.
TENON_INLINE std::int64_t row_of(std::size_t number) {
  return static_cast<std::int64_t>(number) * Simd::lanes;
}

/// `count` states from n on move on by `steps` steps from `first` on, and are added to `sums`.
template <bool has_one_decay, std::size_t count>
TENON_INLINE void scan_states(const ScanBlock<float>& k, std::int64_t first, std::int64_t steps,
                              std::int64_t n) {
  constexpr std::int64_t row = Simd::lanes;
  float* const own = k.h + n * row;
  Float h[count];
#pragma GCC unroll 16
  for (std::size_t r = 0; r < count; ++r) h[r] = Simd::load_float(own + row_of(r));
  for (std::int64_t s = 0; s < steps; ++s) {
    const float* const in = k.in + (first + s) * k.in_step + n;
    const float* const out = k.out + (first + s) * k.out_step + n;
    const Float added = Simd::load_float(k.added + s * row);
    Float decay = Simd::load_float(k.decay + s * row);
    const Float dt = decay;
    // Four sums in turn, since one would wait for itself.
    Float sums[4] = {Simd::load_float(k.sums + s * row), Simd::zero_float(), Simd::zero_float(),
                     Simd::zero_float()};
#pragma GCC unroll 16
    for (std::size_t r = 0; r < count; ++r) {
      if constexpr (!has_one_decay) {
        decay = exponential(Simd::mul(dt, Simd::load_float(k.a + n * row + row_of(r))));
      }
      h[r] = Simd::fma(h[r], decay, Simd::mul(added, Simd::broadcast(in + r)));
      sums[r % 4] = Simd::fma(h[r], Simd::broadcast(out + r), sums[r % 4]);
    }
    Simd::store_float(k.sums + s * row, sum_of(sums));
  }
#pragma GCC unroll 16
  for (std::size_t r = 0; r < count; ++r) Simd::store_float(own + row_of(r), h[r]);
}

template <bool has_one_decay>
void scan_block(const ScanBlock<float>& k) noexcept {
  // As many states as half of the registers hold; fewer where each needs an exponential.
  constexpr std::size_t count = has_one_decay ? std::size_t{Simd::lanes} : 4;
  constexpr std::int64_t row = Simd::lanes;
  for (std::int64_t first = 0; first < k.steps; first += k.steps_at_once) {
    const std::int64_t left = k.steps - first;
    const std::int64_t steps = left < k.steps_at_once ? left : k.steps_at_once;
    for (std::int64_t s = 0; s < steps; ++s) {
      const Float x = gathered(k.x + (first + s) * k.x_step, k.x_places, k.x_is_row, k.lanes);
      Float dt = gathered(k.dt + (first + s) * k.dt_step, k.dt_places, k.dt_is_row, k.lanes);
      Simd::store_float(k.added + s * row, Simd::mul(dt, x));
      if constexpr (has_one_decay) dt = exponential(Simd::mul(dt, Simd::load_float(k.a)));
      Simd::store_float(k.decay + s * row, dt);
      Simd::store_float(k.sums + s * row, Simd::zero_float());
    }
    std::int64_t n = 0;
    constexpr auto step = static_cast<std::int64_t>(count);
    for (; n + step <= k.states; n += step) scan_states<has_one_decay, count>(k, first, steps, n);
    for (; n < k.states; ++n) scan_states<has_one_decay, 1>(k, first, steps, n);
    for (std::int64_t s = 0; s < steps; ++s) {
      store_lanes(k.y + (first + s) * k.y_step, Simd::load_float(k.sums + s * row), k.lanes);
    }
  }
}

void run_scan(const ScanBlock<float>& k) noexcept {
  k.has_one_decay ? scan_block<true>(k) : scan_block<false>(k);
}

/// `count` states from n on move on, and are added to y: in `lanes` lanes from i on.
template <bool has_one_decay, std::size_t count>
TENON_INLINE void move_lanes(const ScanRow<float>& k, std::int64_t n, std::int64_t i,
                             std::int64_t lanes, const Float (&in)[count],
                             const Float (&out)[count]) {
  const Float added = Simd::load_float(k.added + i), decay_or_dt = Simd::load_float(k.decay + i);
  const float *from = k.from + n * k.from_step + i, *a = k.a + n * k.a_step + i;
  float* to = k.to + n * k.to_step + i;
  constexpr std::int64_t ahead = 4;  // rows; the hardware follows none beyond its page
  Float sum = n == 0 ? Simd::zero_float() : load_lanes(k.y + i, lanes);
#pragma GCC unroll 4
  for (std::size_t r = 0; r < count; ++r) {
    Float decay = decay_or_dt;
    if constexpr (!has_one_decay) decay = exponential(Simd::mul(decay, load_lanes(a, lanes)));
    __builtin_prefetch(from + ahead * k.from_step);
    const Float h = Simd::fma(load_lanes(from, lanes), decay, Simd::mul(added, in[r]));
    store_lanes(to, h, lanes);
    sum = Simd::fma(h, out[r], sum);
    from += k.from_step;
    to += k.to_step;
    a += k.a_step;
  }
  store_lanes(k.y + i, sum, lanes);
}

/// The same in all lanes.
template <bool has_one_decay, std::size_t count>
TENON_INLINE void move_states(const ScanRow<float>& k, std::int64_t n) {
  Float in[count], out[count];
#pragma GCC unroll 4
  for (std::size_t r = 0; r < count; ++r) {
    in[r] = Simd::broadcast(k.in + n + r);
    out[r] = Simd::broadcast(k.out + n + r);
  }
  std::int64_t i = 0;
  for (; i + Simd::lanes <= k.lanes; i += Simd::lanes) {
    move_lanes<has_one_decay>(k, n, i, Simd::lanes, in, out);
  }
  if (i < k.lanes) move_lanes<has_one_decay>(k, n, i, k.lanes - i, in, out);
}

template <bool has_one_decay>
void scan_row(const ScanRow<float>& k) noexcept {
  for (std::int64_t i = 0; has_one_decay && i < k.lanes; i += Simd::lanes) {
    const std::int64_t left = k.lanes - i;
    const Float rate = load_lanes(k.a + i, left < Simd::lanes ? left : Simd::lanes);
    Simd::store_float(k.decay + i, exponential(Simd::mul(Simd::load_float(k.decay + i), rate)));
  }
  std::int64_t n = 0;
  for (; n + 4 <= k.states; n += 4) move_states<has_one_decay, 4>(k, n);
  for (; n < k.states; ++n) move_states<has_one_decay, 1>(k, n);
}

void run_scan_row(const ScanRow<float>& k) noexcept {
  k.a_step == 0 ? scan_row<true>(k) : scan_row<false>(k);
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
