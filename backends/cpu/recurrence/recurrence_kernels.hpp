#pragma once

#include "../cpu_features.hpp"

#include <cstdint>

/// Recurrences in f32 as the files compiled for one instruction set provide them, and in f64. Those
/// files see plain data only, for the reason that matmul/matmul_kernels.hpp gives.
namespace tenon::cpu {

/// Channels of one group of SelectiveScan, as many as a vector has lanes at most. Steps between
/// elements are counted in elements; a row of the block's own memory is a vector.
template <class T>
struct ScanBlock {
  static constexpr std::int64_t most_lanes = 16, steps_at_once = 64;
  std::int64_t lanes;  ///< of these channels
  std::int64_t steps, states;
  const T* x;   ///< of lane i at step s: x[s * x_step + x_places[i]]
  const T* dt;  ///< the same
  std::int64_t x_step, dt_step;
  const std::int64_t *x_places, *dt_places;
  bool x_is_row, dt_is_row;  ///< the places follow each other
  const T *in, *out;         ///< of state n at step s: in[s * in_step + n]
  std::int64_t in_step, out_step;
  const T* a;  ///< rows of the states, or one row
  bool has_one_decay;
  T* h;                     ///< rows of the states
  T *added, *decay, *sums;  ///< rows of `steps_at_once` steps
  T* y;                     ///< lanes side by side
  std::int64_t y_step;
};

/// A single step of any number of channels of one group, side by side.
template <class T>
struct ScanRow {
  std::int64_t lanes, states;
  const T *in, *out;    ///< by state
  const T* a;           ///< of state n: from a[n * a_step] on
  std::int64_t a_step;  ///< 0: one decay for all states
  const T* from;        ///< states before the step: of state n from[n * from_step] on
  T* to;                ///< and after it
  std::int64_t from_step, to_step;
  T *added, *decay;  ///< dt * x, and dt, of which decays are made; with room for whole vectors
  T* y;
};

/// The rows of one operand: at step s from values[s * step] on.
template <class T>
struct StepRows {
  const T* values;
  std::int64_t step;
};

/// Values of one head of Wkv7, as many as a vector has lanes at most.
template <class T>
struct Wkv7Block {
  std::int64_t lanes;  ///< of these values
  std::int64_t steps, states;
  StepRows<T> r, w, k, v, a, b;
  T* h;  ///< [states, vector's lanes]
  T* y;  ///< lanes side by side: at step s from y[s * y_step] on
  std::int64_t y_step;
  bool every_state;  ///< y is state n after step s, from y[s * y_step + n * y_stride] on
  std::int64_t y_stride;
};

template <class T>
struct RecurrenceKernels {
  std::int64_t lanes;  ///< of a vector
  void (*scan)(const ScanBlock<T>& block) noexcept;
  void (*scan_row)(const ScanRow<T>& row) noexcept;
  void (*wkv7)(const Wkv7Block<T>& block) noexcept;
};

/// Those of the active instruction set; in f64, of the one that all machines have.
template <class T>
const RecurrenceKernels<T>& recurrence_kernels() noexcept;
template <>
const RecurrenceKernels<float>& recurrence_kernels<float>() noexcept;
template <>
const RecurrenceKernels<double>& recurrence_kernels<double>() noexcept;

namespace portable {
extern const RecurrenceKernels<float> recurrence;
}
namespace avx2 {
extern const RecurrenceKernels<float> recurrence;
}
namespace avx512 {
extern const RecurrenceKernels<float> recurrence;
}

}  // namespace tenon::cpu
