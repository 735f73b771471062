#pragma once

#include <tenon/program.hpp>

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon {

/// One rewrite: finds its pattern in a function and replaces it by something that computes the same
/// within the op's tolerance. Listed in src/passes/rewrites.def; the fuzz test walks the same list.
struct Rewrite {
  std::string_view name;
  std::string_view pattern;  ///< what it looks for, in the program's notation
  std::string_view replacement;
  /// Rewrites every match in `function`; returns how many. `program` resolves called functions.
  int (*apply)(Program& program, Function& function);
};

std::span<const Rewrite> all_rewrites() noexcept;

// Clean-ups that keep every bit of every result.
int remove_dead_code(Function& function);             ///< values that no result needs
int share_common_subexpressions(Function& function);  ///< equal instructions on equal operands
/// Computes, once, instructions whose inputs are all known: scalars written with `full`, iota, and
/// what follows from them. Results of up to `max_bytes` become folded constants of the program.
int fold_constants(Program& program, Function& function, std::int64_t max_bytes = 1 << 16);

struct OptimizeReport {
  std::vector<std::pair<std::string, int>> applied;  ///< pass or rewrite, how often
};

/// Runs the clean-ups and the rewrites over every function until nothing changes. Debug builds
/// verify the program after each.
OptimizeReport optimize(Program& program);

}  // namespace tenon
