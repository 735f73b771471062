#pragma once

#include <tenon/backend.hpp>
#include <tenon/calibration.hpp>
#include <tenon/profile.hpp>

#include <memory>

namespace tenon {

namespace cpu {

/// Options of "cpu", for BackendOptions::device.
struct Options {
  /// Ranges of the program's values (quant::calibrate). Convolutions whose input image has a range, and linear
  /// layers with f32 weights on a matrix with one, then run in int8, and images between them stay in 8 bits; everything else runs in f32.
  /// PlanReport::Part::notes reports which is which. Ranges of values that the program does not
  /// have are ignored. Errc::bad_argument together with BackendOptions::exact.
  std::shared_ptr<const quant::CalibrationTable> int8{};
};

/// Measures the limits of this machine with `threads` threads (0: one per CPU) and the instruction
/// sets that the backend may use: runs four loops for about `seconds` each, one of them on 128 MiB
/// per thread. Errc::bad_argument for a negative number of threads.
Limits measure_limits(int threads = 0, double seconds = 0.2);

}  // namespace cpu

/// Registers the backend "cpu": SIMD kernels for the instruction sets of this machine, on a thread
/// pool. Idempotent and thread-safe.
void register_cpu_backend();
/// Makes a "cpu" backend. Errc::bad_argument for a negative number of threads, for contradictory
/// options, and for an unknown instruction set in the environment variable TENON_CPU_ISA.
BackendPtr make_cpu_backend(const BackendOptions& options);

}  // namespace tenon
