#pragma once

#include "expression.hpp"

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace tenon::text {

/// Finds an expression's matches in one text, from left to right.
///
/// Backtracks with a stack in memory. Once a text has taken more steps than a well-behaved
/// expression needs, each state that failed is remembered and not tried again, so that the time is
/// at worst O(n) for a given expression. (No back-references: failing depends on the place alone.)
class ExpressionMatcher {
 public:
  /// Buffers that are kept between texts.
  struct Scratch {
    struct Pending {
      std::uint32_t at;   ///< instruction
      std::uint32_t low;  ///< places [low, high] are left to try, the highest first
      std::uint32_t high;
    };
    std::vector<Pending> pending;
    std::vector<std::uint64_t> failed;
  };

  /// All three must outlive it.
  ExpressionMatcher(const Expression& expression, std::string_view text, Scratch& scratch);

  /// The end of the match that starts at `position`; `position` where there is none. Positions must
  /// not decrease from call to call.
  ///
  /// Errors: limit_exceeded (an expression and a text that would take 256 MiB of memory).
  std::size_t end_from(std::size_t position);

  bool may_start_at(std::size_t position) const noexcept {
    return expression_.may_start_with(static_cast<unsigned char>(text_[position]));
  }

 private:
  bool run(const Expression::Instruction& instruction, std::uint32_t& at, std::uint32_t& position);
  bool repeat(const Expression::Instruction& instruction, std::uint32_t& at,
              std::uint32_t& position);
  /// Whether this choice failed here before; remembers that it was made.
  bool was_tried(std::uint32_t choice, std::uint32_t position);
  void start_remembering();

  const Expression& expression_;
  std::string_view text_;
  Scratch& scratch_;
  std::uint64_t steps_ = 0;
  std::uint64_t patience_;
  bool remembers_ = false;
};

}  // namespace tenon::text
