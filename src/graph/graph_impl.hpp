// The nodes of a graph in its arena. Private to the core.
#pragma once

#include <tenon/arena.hpp>
#include <tenon/graph.hpp>
#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tenon {

struct GraphFunction;

/// One value and its op. Trivially destructible: everything it points to is in the arena.
struct Node {
  enum class Kind : std::uint8_t { input, constant, op, repeat, item };

  Kind kind;
  Shape shape{};              ///< of inputs, constants, ops and items
  const OpDef* op = nullptr;  ///< kind op
  const void* attributes = nullptr;
  std::span<Node* const> inputs{};  ///< repeat: carry, then extras
  std::string_view name{};          ///< input, constant, op (name_value()); repeat: the prefix
  const GraphFunction* callee = nullptr;  ///< repeat
  std::int64_t count = 0;                 ///< repeat: how often; item: which
  std::int64_t first = 0;                 ///< repeat
  std::int64_t condition = -1;            ///< repeat: as Instruction::condition
  bool scoped = false;                    ///< constant: relative to the function's scope
  std::source_location where{};
  GraphFunction* function = nullptr;
  Node* captured = nullptr;  ///< input of a layer: the captured outer value
  std::uint64_t region = 0;  ///< of checkpointed(); 0: none
  Node* next = nullptr;      ///< in recording order
};

/// Nodes in recording order, with the inputs and results of a function.
struct GraphFunction {
  std::string_view name;
  GraphFunction* parent = nullptr;
  Node* first = nullptr;
  Node* last = nullptr;
  std::string_view prefix{};  ///< constants of this name prefix are scoped: "blk.3."
  std::uint32_t carry_count = 0;
  Node* index = nullptr;
  std::span<Node* const> results{};
  /// While nodes are recorded in front of others of the function: RecordingIn.
  bool is_split = false;
};

struct Graph::Impl {
  Impl(std::size_t budget_bytes, std::uint32_t graph_id) : arena(budget_bytes), id(graph_id) {
    current = &root;
  }

  /// Appends to the current function.
  Node* append(const Node& node);
  /// The constant of this name, or the capture, that the current function has so far.
  Node* find_constant(std::string_view name, bool scoped) const;
  Node* find_capture(const Node* captured) const;
  /// The same with other inputs, of which it keeps a copy, in that region.
  Node* append_copy(const Node& node, std::span<Node* const> inputs, std::uint64_t region);

  /// The node that stands for `node` in the current function: itself, a capture, or a constant
  /// declared by another graph.
  Node* import(const Tensor& tensor, std::string_view op);
  Node* constant(std::string_view name, const Shape& shape, const std::source_location& where);

  GraphFunction* make_function(GraphFunction* parent);
  /// The arena as it was before `function` was made, without it and those made after it.
  void drop_function(const GraphFunction& function, std::size_t mark);

  Tensor handle(const Node* node) const;

  Arena arena;
  std::uint32_t id;
  GraphFunction root{.name = "forward"};
  GraphFunction* current;
  /// Constants and captures of one function.
  struct Found {
    std::unordered_map<std::string_view, Node*> constants[2];  ///< by name; [1]: scoped ones
    std::unordered_map<const Node*, Node*> captures;           ///< by what is captured
  };
  std::unordered_map<const GraphFunction*, Found> found;
  std::vector<const GraphFunction*> functions;  ///< all but the first, as they were made
  /// While set, what is recorded belongs to this line of the user's: grad() sets it.
  const std::source_location* attributed_to = nullptr;
  bool has_gradients = false;  ///< grad() has recorded some
  bool declares_only = false;  ///< holds weights of a file: its constants join other graphs
  std::string origin;          ///< of a declaring graph: the file
  std::weak_ptr<const void> declared_by;                       ///< what keeps a declaring graph
  std::optional<std::set<std::string, std::less<>>> admitted;  ///< weights that may join
  /// The names that inputs and constants were ever given, in any function: one that is not here need
  /// not be searched for, which would take time that grows with the graph.
  std::set<std::string, std::less<>> given_names;
  int next_input = 0;  ///< the number of the next input without a name: those below are given
};

/// The graph in which an op on these inputs is recorded: theirs, or that of the active Recording
/// when all of them are weights of a file. Errors as for record().
Graph::Impl& graph_of(std::string_view op, std::span<const Tensor> inputs,
                      const std::source_location& where);

/// While one exists, ops that are recorded belong to the line of the op that is differentiated.
class Attribution {
 public:
  Attribution(Graph::Impl& graph, const std::source_location& where)
      : graph_(graph), outer_(graph.attributed_to) {
    graph_.attributed_to = &where;
  }
  ~Attribution() { graph_.attributed_to = outer_; }
  Attribution(const Attribution&) = delete;
  Attribution& operator=(const Attribution&) = delete;

 private:
  Graph::Impl& graph_;
  const std::source_location* outer_;  ///< of a gradient that differentiates a composition
};

/// A number that no other region of this process has.
std::uint64_t new_region() noexcept;

/// Access to the private parts of a Tensor for the library's own sources.
struct GraphAccess {
  static const Node& node(const Tensor& tensor,
                          const std::source_location& asked = std::source_location::current()) {
    return tensor.node(asked, "Tensor");
  }
  static std::uint32_t graph_id(const Tensor& tensor) { return tensor.graph_id_; }
  static Tensor make(const Node* node, std::uint32_t graph_id, const Shape* retagged = nullptr) {
    return {node, graph_id, retagged};
  }
};

/// Names a result in programs, before its number, where its op's name says little: errors of a run
/// name it.
inline void name_value(const Tensor& result, std::string_view base) {
  const_cast<Node&>(GraphAccess::node(result)).name = Name(base).text();
}

/// The structure of two functions: equal when they print the same.
bool same_function(const GraphFunction& a, const GraphFunction& b);

}  // namespace tenon
