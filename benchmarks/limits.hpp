#pragma once

#include "backends/cpu/cpu_features.hpp"
#include "backends/cpu/thread_pool.hpp"

#include <cstddef>
#include <span>
#include <string_view>

namespace tenon::bench {

/// Measured ceilings of this machine with all threads of a pool at work, per second, of the
/// instructions that the active level may use. A multiply-add counts as two operations; 0 where the
/// level has no such instructions.
struct Limits {
  double f32_ops = 0.0;
  double int8_ops = 0.0;    ///< unsigned by signed bytes, sums of 32 bits
  double bf16_ops = 0.0;    ///< AMX tiles
  double read_bytes = 0.0;  ///< summing an array far larger than a core's own cache
};

/// Runs each loop for about `seconds` on every thread of the pool and keeps the best stretch.
Limits measure_limits(cpu::ThreadPool& pool, double seconds);

/// What a loop multiplies. int4: bytes of which one factor has four bits.
enum class Number { f32, int8, int4, bf16 };

/// A loop of one kind of multiply-add without any memory access.
struct Peak {
  std::string_view name;
  cpu::Isa needs;
  Number number;
  double (*run)();  ///< returns the operations it did
};

/// Every kind that some x86-64 CPU has.
std::span<const Peak> peaks();

/// Operations per second of all threads together; 0 where this CPU lacks the instructions.
double measure(const Peak& peak, cpu::ThreadPool& pool, double seconds);

/// Bytes per second that all threads together read from `bytes` of memory, over and over.
double measure_reading(cpu::ThreadPool& pool, std::size_t bytes, double seconds);

}  // namespace tenon::bench
