#include "passes/function_editor.hpp"

#include <tenon/optimize.hpp>

#include <algorithm>

namespace tenon {

int remove_dead_code(Function& function) {
  std::vector<bool> needed(function.values.size());
  for (const ValueId id : function.results) needed[id] = true;
  std::vector<bool> keep(function.body.size());
  for (std::size_t i = function.body.size(); i-- > 0;) {
    const Instruction& instruction = function.body[i];
    keep[i] = needed[instruction.result];
    if (!keep[i]) continue;
    for (const ValueId id : instruction.operands) needed[id] = true;
  }
  const auto removed = static_cast<int>(std::ranges::count(keep, false));
  if (removed > 0) passes::keep_instructions(function, keep);
  return removed;
}

}  // namespace tenon
