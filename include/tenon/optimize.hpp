#pragma once

#include <tenon/program.hpp>

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon {

/// A rewrite: finds its pattern in a function and replaces it by instructions that compute the same
/// within the op's tolerance. Listed in src/passes/rewrites.def; the fuzz test runs the same list.
struct Rewrite {
  std::string_view name;
  std::string_view pattern;  ///< in the text form of programs
  std::string_view replacement;
  /// Rewrites every match in `function`; returns how many. `program` resolves called functions.
  int (*apply)(Program& program, Function& function);
};

std::span<const Rewrite> all_rewrites() noexcept;

// Clean-ups. They do not change a bit of any result.
int remove_dead_code(Function& function);  ///< values that no result needs
/// Equal instructions on equal operands, of a function of this program.
int share_common_subexpressions(const Program& program, Function& function);
/// Constant folding: computes instructions whose inputs are all known (`full`, `iota`, and those
/// that depend on nothing else). Results of up to `max_bytes` become folded constants, of a program
/// at most 1024 times as many bytes.
int fold_constants(Program& program, Function& function, std::int64_t max_bytes = 1 << 16);

struct OptimizeReport {
  std::vector<std::pair<std::string, int>> applied;  ///< pass or rewrite, how often
};

/// Runs the clean-ups and the rewrites over every function until nothing changes. Debug builds
/// verify the program after each.
OptimizeReport optimize(Program& program);

}  // namespace tenon
