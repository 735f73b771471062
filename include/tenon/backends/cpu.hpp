#pragma once

#include <tenon/backend.hpp>
#include <tenon/calibration.hpp>
#include <tenon/profile.hpp>

#include <memory>

namespace tenon {

namespace cpu {

/// What BackendOptions::device may hold for "cpu".
struct Options {
  /// Ranges of the program's values (quant::calibrate). Convolutions whose image has one then
  /// multiply 8-bit integers, and images between them stay in 8 bits; what they cannot do so runs
  /// in f32 as ever, and PlanReport::Part::notes says which did what. The table's names are those
  /// of the program; one for other values changes nothing. Not together with BackendOptions::exact
  /// (Errc::bad_argument).
  std::shared_ptr<const quant::CalibrationTable> int8{};
};

/// What this machine can do at most, with so many threads (0: one per CPU) and the instructions
/// that the backend may use: runs four loops for about `seconds` each, one of them on 128 MiB a
/// thread. Errc::bad_argument for a negative number of threads.
Limits measure_limits(int threads = 0, double seconds = 0.2);

}  // namespace cpu

/// Registers the backend "cpu": SIMD kernels for the instruction sets that this machine has, on a
/// pool of threads. Call once or more often, from any thread.
void register_cpu_backend();
/// What "cpu" makes. Errc::bad_argument for a negative number of threads, for options that
/// contradict each other, and for a TENON_CPU_ISA that names no instruction set.
BackendPtr make_cpu_backend(const BackendOptions& options);

}  // namespace tenon
