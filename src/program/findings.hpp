#pragma once

#include "program/limits.hpp"

#include <tenon/program.hpp>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace tenon::checking {

/// A spot of a program: an operand of an instruction of a function, or less than that.
struct Spot {
  static constexpr int nowhere = -1;
  static constexpr int in_return = -2;  ///< as `instruction`: the function's results

  int function = nowhere;
  int instruction = nowhere;  ///< nowhere: the function's head; `operand` is then a parameter
  int operand = nowhere;

  friend auto operator<=>(const Spot&, const Spot&) = default;
};

struct Finding {
  Errc code;
  Spot spot;
  std::string message;
};

/// Collects findings: at most one for each spot, and a limited number in total.
class Findings {
 public:
  void add(Errc code, Spot spot, std::string message) {
    if (full() || !spots_.insert(spot).second) return;
    list_.push_back({code, spot, std::move(message)});
  }
  bool full() const noexcept { return list_.size() >= program_limits::errors; }
  bool empty() const noexcept { return list_.empty(); }
  std::size_t size() const noexcept { return list_.size(); }
  std::vector<Finding> take() { return std::move(list_); }

 private:
  std::vector<Finding> list_;
  std::set<Spot> spots_;
};

/// The checks, in order: each relies on the ones before.

/// Names, ids in order, operands of the right number and kind, each function by itself.
void check_structure(const Program& program, Findings& findings);

/// Recursion, nesting and the size of the program with inlined calls. Returns the functions,
/// callees first; meaningless when there are findings.
std::vector<int> check_calls(const Program& program, Findings& findings);

/// No value is read after an instruction has updated it in place.
void check_linearity(const Program& program, const std::vector<int>& order, Findings& findings);

/// Of a valid program: which parameters each function updates, by its name.
std::map<std::string, std::vector<bool>> updated_parameters(const Program& program);

/// No constant is declared with two contradicting types.
void check_constants(const Program& program, Findings& findings);

/// Types agree. With `fill`, values without a type get the one that follows.
void check_types(Program& program, bool fill, Findings& findings);

/// Runs all checks, as long as the ones before have no findings that they rely on.
std::vector<Finding> check(Program& program, bool fill);

/// How an instruction is spelled in the text: an op's name, "const", "pack", or the callee's name.
std::string_view spelling(const Instruction& instruction) noexcept;

}  // namespace tenon::checking
