// The ways in which a random program is run.
#pragma once

#include "random_model.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tenon::testing {

/// What was seen of programs so far.
struct CheckCounts {
  std::int64_t programs = 0, runs = 0;
  std::int64_t plain = 0;            ///< programs without rare types
  std::int64_t plain_fallbacks = 0;  ///< of these, programs with a step on the reference
  std::int64_t npu_values = 0;       ///< that steps of NPU programs compute
  std::int64_t npu_taken = 0;        ///< of these, values that the NPU computes
  /// The largest errors, in units of what is allowed.
  double worst_exact = 0, worst_fast = 0, worst_int8 = 0;

  void add(const CheckCounts& other);
  std::string to_text() const;
  static CheckCounts from_text(const std::string& text);
};

/// Throws what goes wrong: a Failure or an Error. Arrays end at guard pages: a kernel that goes
/// beyond them ends the process.
using Check = void (*)(const RandomModelPlan& plan, CheckCounts& counts);

/// Sessions on the CPU: results within rounding of the reference's, with any number of threads, in
/// other sessions, again, through text and snapshots to the bit.
void check_sessions(const RandomModelPlan& plan, CheckCounts& counts);

/// One session that sees one set of sizes after another, some of them again.
void check_sizes(const RandomModelPlan& plan, CheckCounts& counts);

/// The program as a model's forward: compiled, bound, called with state moved in, forked, in calls
/// that throw. The bits of a session on the same program.
void check_exe(const RandomModelPlan& plan, CheckCounts& counts);

/// The same for one set of sizes after another, with tagged axes.
void check_exe_sizes(const RandomModelPlan& plan, CheckCounts& counts);

/// The program in int8 on a simulated NPU, the CPU behind it: what compiles must run, with the bits
/// of the NPU's exact mode and close to f32, in sessions that alternate, in forks, through
/// snapshots.
void check_npu(const RandomModelPlan& plan, CheckCounts& counts);

/// The program op by op, by an Eager: the bits of a session that merges nothing.
void check_eager(const RandomModelPlan& plan, CheckCounts& counts);

/// Allocations of a session's life fail, one in each try (backend, plan, binding and run, with 1
/// and 4 threads). Each must end in Errc::out_of_memory or well, and with memory enough results
/// are what they were.
void check_allocations(const RandomModelPlan& plan, CheckCounts& counts);

/// The program on an emulated CUDA device with the reference behind it: the reference's results up to
/// rounding, the same bits again, and no memory left.
void check_cuda(const RandomModelPlan& plan, CheckCounts& counts);

struct Way {
  std::string_view name;
  ProgramKind kind;
  Check check;
  std::uint64_t share;  ///< of as many seeds in a row as all shares together; 0: only when named
};
std::span<const Way> ways();

/// The way of a seed, where none is named.
const Way& way_of(std::uint64_t seed);
/// Null when there is none of this name.
const Way* find_way(std::string_view name);

/// Runs the program of a seed in one way. Returns what went wrong, or nothing.
std::string run_way(const Way& way, const RandomModelPlan& plan, CheckCounts& counts);

}  // namespace tenon::testing
