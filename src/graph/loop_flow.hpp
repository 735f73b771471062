// Which of a loop's values gradients flow through. Private to the core.
#pragma once

#include "graph/loop_gradient.hpp"

#include <map>
#include <span>
#include <string_view>
#include <vector>

namespace tenon {

using Flags = std::vector<bool>;

/// The inputs of a repeated function.
struct LoopInputs {
  std::vector<const Node*> carried, captured;
  explicit LoopInputs(const GraphFunction& function) {
    for (const Node* node = function.first; node != nullptr; node = node->next) {
      if (node->kind != Node::Kind::input || node == function.index) continue;
      (node->captured != nullptr ? captured : carried).push_back(node);
    }
  }
};

/// Whether a value is another number in each iteration: the index, or it plus or minus a number.
bool numbers_iterations(const GraphFunction& loop, const Node* node);

/// Which of a loop's values gradients flow through.
struct LoopFlow {
  /// For each carried value the update of a stack that it is, if the loop only writes a slice of it
  /// in each iteration, into a value that no parameter is behind: what `scan` returns. Its gradient
  /// is not carried: iterations read their slices of it.
  std::vector<const Node*> written;
  Flags read;                ///< of those, the ones that have a gradient
  Flags carried;             ///< values whose gradients are carried from iteration to iteration
  Flags initial;             ///< of those, the ones by whose first value there is a gradient
  bool may_not_run = false;  ///< what is carried in may be what comes out
  Flags captured;            ///< outer values that get a gradient
  std::map<std::string_view, const Node*> constants;
  std::vector<const Node*> outputs;  ///< what the function returns that has a gradient
  std::vector<const Node*> starts;   ///< what gets one, apart from constants

  LoopFlow(const LoopCall& call, const LoopInputs& inputs, const ConstantNames& wanted);

 private:
  void find_written(const LoopCall& call, const LoopInputs& inputs);
  void find_carried(const LoopCall& call, const LoopInputs& inputs, const ConstantNames& wanted);
};

}  // namespace tenon
