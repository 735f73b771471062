// Peak rates of this machine, measured.
#pragma once

#include "cpu_features.hpp"
#include "thread_pool.hpp"

#include <tenon/profile.hpp>

#include <cstddef>
#include <span>
#include <string_view>

namespace tenon::cpu {

/// Peak rates of the instructions of the active instruction set on all threads of a pool: runs each
/// loop for about `seconds` on every thread and keeps the best interval.
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

}  // namespace tenon::cpu
