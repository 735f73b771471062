// Runs a random model on every backend in many ways, and compares.
#pragma once

#include "random_model.hpp"

#include <cstdint>
#include <string>

namespace tenon::testing {

/// What was seen of programs so far.
struct CheckCounts {
  std::int64_t programs = 0, runs = 0;
  std::int64_t plain = 0;                  ///< programs without rare types
  std::int64_t plain_fallbacks = 0;        ///< of these, programs with a step on the reference
  double worst_exact = 0, worst_fast = 0;  ///< largest error, in units of what is allowed
};

/// Returns what went wrong, or nothing: results that differ from the reference's by more than
/// rounding, from those of another number of threads, another session or another run by a bit, or
/// an Error where the reference has none. Arrays end at guard pages: a kernel that goes beyond them
/// ends the process.
std::string check_model(const RandomModel& model, std::uint64_t seed, CheckCounts& counts);

/// The same for one session that sees one set of sizes after another, some of them again.
std::string check_sizes(const SizedModel& model, std::uint64_t seed, CheckCounts& counts);

/// Has allocations of a session's life fail, one in each try (backend, plan, binding and run, with
/// 1 and 4 threads): about `samples` of them. Each must end in Errc::out_of_memory or well, and
/// with memory enough results are what they were. Returns what went wrong, or nothing.
std::string check_allocations(const RandomModel& model, std::uint64_t seed, int samples,
                              CheckCounts& counts);

}  // namespace tenon::testing
