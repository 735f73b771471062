// The walk back over a function's nodes that records gradients. Private to the core.
#pragma once

#include "graph/grad_impl.hpp"
#include "graph/graph_impl.hpp"

#include <cstdint>
#include <map>
#include <set>
#include <source_location>
#include <span>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace tenon {

using NodeSet = std::unordered_set<const Node*>;

/// Constants by which gradients are wanted, by their names: each function has a node of its own for
/// one. Those of numbered layers are not among them (`inline_repeats`).
using ConstantNames = std::set<std::string_view>;

/// Values of a function whose backward pass is recorded in another one.
class FunctionValues {
 public:
  virtual ~FunctionValues() = default;
  /// What stands for the value in the graph's current function.
  virtual const Node* of(const Node* node) = 0;
  /// Whether the value is one of outside of the function, of which an iteration may read slices.
  virtual bool is_outer(const Node* node) const = 0;
};

/// The gradient of a slice that an iteration reads of an outer value.
struct SliceGradient {
  const Node* of;
  const Node* index;
  Tensor gradient;
};

/// The backward pass over one function of a graph.
class BackwardPass {
 public:
  /// `values`: where the function's values are found in the current one; null: it is the current
  /// one.
  BackwardPass(Graph::Impl& graph, const GraphFunction& function, const std::source_location& where,
               const PlaceOf& place_of, ConstantNames constants, FunctionValues* values)
      : graph_(graph),
        function_(function),
        where_(where),
        place_of_(place_of),
        constants_(std::move(constants)),
        values_(values) {}

  /// Finds the nodes that lie between the parameters and the outputs.
  void find_path(std::span<const Node* const> outputs, std::span<const Node* const> parameters);

  void add(const Node* node, const Tensor& gradient);
  void run();

  /// The gradient that has reached a node; empty where none has.
  Tensor of(const Node* node) const;
  Tensor of_constant(std::string_view name) const;
  /// Gradients of slices of outer values, one for each value and index; in no other result.
  std::span<const SliceGradient> slices() const { return slices_; }

 private:
  void differentiate(const Node& node, const Tensor& upstream);
  void differentiate_loop(const Node& repeat, std::vector<Tensor> upstream);
  void add_slice(const Node& select, const Tensor& gradient);
  void add_to(Tensor& sum, const Tensor& gradient) const;
  void compute_again(std::uint64_t region, const Tensor& event);
  const Node* kept(const Node* node, std::uint64_t region, const Tensor& event);

  Graph::Impl& graph_;
  const GraphFunction& function_;
  const std::source_location& where_;
  const PlaceOf& place_of_;
  const ConstantNames constants_;
  FunctionValues* const values_;

  std::unordered_map<std::uint64_t, std::vector<const Node*>> regions_;  ///< not computed again yet
  std::unordered_map<const Node*, const Node*> again_;
  std::map<std::pair<std::uint64_t, const Node*>, const Node*> outer_;
  NodeSet depends_;  ///< on a parameter
  std::vector<const Node*> path_;
  std::unordered_map<const Node*, Tensor> gradients_;
  std::map<std::string_view, Tensor> constant_gradients_;
  std::unordered_map<const Node*, std::vector<Tensor>> item_gradients_;  ///< of repeats
  std::vector<SliceGradient> slices_;
};

/// The nodes that `results` are made from, and themselves.
NodeSet needed_for(const GraphFunction& function, std::span<const Node* const> results);

/// `gradient` in exactly the sizes of `like`, whose sizes it has when the program runs.
Tensor in_sizes_of(const Tensor& gradient, const Tensor& like);

/// Adds to `depends` the function's nodes that depend on one of its nodes, or on a constant of
/// `constants`.
void add_dependents(const GraphFunction& function, const ConstantNames& constants,
                    NodeSet& depends);

}  // namespace tenon
