#include "graph/grad_impl.hpp"
#include "graph/graph_impl.hpp"
#include "graph/inline_repeats.hpp"
#include "ops/support.hpp"

#include <tenon/grad.hpp>
#include <tenon/ops/after.hpp>
#include <tenon/ops/binary.hpp>
#include <tenon/ops/broadcast_to.hpp>
#include <tenon/ops/fill.hpp>

#include <algorithm>
#include <iterator>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

namespace tenon {
namespace {

[[noreturn]] void refuse(const std::source_location& where, const std::string& why) {
  throw Error(Errc::bad_argument, fmt::format("{}: grad", to_string(where)), why);
}

/// "'up.weight' f32[8, 64]", or only the type where it has no name.
std::string described(const Tensor& tensor, std::size_t number) {
  const std::string_view own = tensor.name();
  return fmt::format("{} {}",
                     own.empty() ? fmt::format("parameter {}", number) : fmt::format("'{}'", own),
                     to_string(tensor.shape()));
}

/// The same dtype and rank, and sizes that may be equal.
bool agrees(const Shape& a, const Shape& b) {
  return a.dtype() == b.dtype() && std::ranges::equal(a.dims(), b.dims(), sizes_agree);
}

/// A tensor's value without axis tags: ops' gradients count axes.
Tensor plain(const Graph::Impl& graph, const Node* node) {
  const Tensor tensor = graph.handle(node);
  return node->shape.has_tags() ? tensor.with_tags({}) : tensor;
}

/// The backward pass over one function of a graph.
class BackwardPass {
 public:
  BackwardPass(Graph::Impl& graph, const std::source_location& where, const PlaceOf& place_of)
      : graph_(graph), where_(where), place_of_(place_of) {}

  /// The nodes that lie between the parameters and the outputs, in recording order.
  void find_path(std::span<Node* const> outputs, std::span<Node* const> parameters) {
    std::unordered_set<const Node*> needed(outputs.begin(), outputs.end());
    std::vector<const Node*> nodes;
    for (const Node* node = graph_.current->first; node != nullptr; node = node->next) {
      nodes.push_back(node);
      if (node->region != 0 && node->kind == Node::Kind::op) regions_[node->region].push_back(node);
    }
    for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
      if (needed.contains(*node)) needed.insert((*node)->inputs.begin(), (*node)->inputs.end());
    }
    depends_.insert(parameters.begin(), parameters.end());
    for (const Node* node : nodes) {
      const bool depends = std::ranges::any_of(
          node->inputs, [&](const Node* input) { return depends_.contains(input); });
      if (!depends || !needed.contains(node)) continue;
      depends_.insert(node);
      path_.push_back(node);
    }
  }

  void add(const Node* node, const Tensor& gradient) {
    const auto [entry, fresh] = gradients_.try_emplace(node, gradient);
    if (!fresh) entry->second = tenon::add(entry->second, gradient, where_);
  }

  void run() {
    for (auto node = path_.rbegin(); node != path_.rend(); ++node) {
      const auto known = gradients_.find(*node);
      if (known != gradients_.end()) differentiate(**node, known->second);
    }
  }

  /// The gradient that has reached a node; empty where none has.
  Tensor of(const Node* node) const {
    const auto known = gradients_.find(node);
    return known == gradients_.end() ? Tensor() : known->second;
  }

 private:
  void differentiate(const Node& node, const Tensor& upstream) {
    const Attribution attribution(graph_, node.where);
    const std::string place = fmt::format("{}: {}", place_of_(node), node.op->name);
    if (node.op->gradient == nullptr) {
      throw Error(Errc::unsupported, place,
                  "the op has no gradient, and the loss depends on a parameter through it; "
                  "stop_gradient(x) ends the dependence");
    }
    if (node.region != 0) compute_again(node.region, upstream);
    std::vector<Tensor> inputs;
    for (Node* input : node.inputs) {
      inputs.push_back(plain(graph_, kept(input, node.region, upstream)));
    }
    const Tensor output = plain(graph_, kept(&node, node.region, upstream));
    const std::vector<Tensor> gradients = gradients_of(node, {inputs, output, upstream}, place);
    if (gradients.size() != inputs.size()) {
      throw Error(Errc::shape_mismatch, place,
                  fmt::format("its gradient gave {} tensors for {} operands", gradients.size(),
                              inputs.size()));
    }
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      if (gradients[i].is_empty() || !depends_.contains(node.inputs[i])) continue;
      const Shape& want = inputs[i].shape();
      const Shape& got = gradients[i].shape();
      if (!agrees(got, want)) {
        throw Error(Errc::shape_mismatch, place,
                    fmt::format("its gradient gave {} for operand {}, which is {}", to_string(got),
                                i, to_string(want)));
      }
      const Tensor gradient = got.has_tags() ? gradients[i].with_tags({}) : gradients[i];
      // Sizes that turn out to differ, as an operand's 1 that has been broadcast, are refused then.
      const bool is_open = !(gradient.shape() == want.without_tags());
      add(node.inputs[i], is_open ? broadcast_like(gradient, inputs[i]) : gradient);
    }
  }

  /// What the op's gradient records. Where sizes are not known, an error in it means that it needs
  /// one of them.
  static std::vector<Tensor> gradients_of(const Node& node, const Backward& at,
                                          const std::string& place) {
    try {
      return node.op->gradient(node.attributes, at);
    } catch (const Error& error) {
      const bool is_open =
          !at.output.shape().is_static() || std::ranges::any_of(at.inputs, [](const Tensor& input) {
            return !input.shape().is_static();
          });
      const ErrorClass kind = error_class(error.code());
      if (!is_open || kind == ErrorClass::machine || kind == ErrorClass::internal) throw;
      throw Error(Errc::unsupported, place,
                  fmt::format("its gradient needs sizes that are not known: {}", error.message()));
    }
  }

  /// Copies the ops of a checkpointed region behind `event`. What nobody uses is not in a program.
  void compute_again(std::uint64_t region, const Tensor& event) {
    const auto found = regions_.find(region);
    if (found == regions_.end()) return;
    const std::vector<const Node*> nodes = std::move(found->second);
    regions_.erase(found);
    for (const Node* node : nodes) {
      const Attribution attribution(graph_, node->where);
      if (node->op->traits.updates_input >= 0) {
        throw Error(Errc::unsupported, fmt::format("{}: {}", place_of_(*node), node->op->name),
                    "a gradient through a checkpointed body that updates a value");
      }
      std::vector<Node*> inputs;
      for (Node* input : node->inputs) {
        inputs.push_back(const_cast<Node*>(kept(input, region, event)));
      }
      Node copy = *node;
      copy.region = 0;
      copy.inputs = graph_.arena.copy(std::span<Node* const>(inputs));
      copy.next = nullptr;
      again_[node] = graph_.append(copy);
    }
  }

  /// What stands for a value in the backward pass of a region: its copy; of what comes from
  /// outside, a value behind `event`. Constants, which are there anyway, stand for themselves.
  const Node* kept(const Node* node, std::uint64_t region, const Tensor& event) {
    if (region == 0 || node->kind == Node::Kind::constant) return node;
    if (const auto copy = again_.find(node); copy != again_.end() && node->region == region) {
      return copy->second;
    }
    const Node*& outer = outer_[{region, node}];
    if (outer == nullptr) {
      outer = &GraphAccess::node(after(graph_.handle(node), event, node->where));
    }
    return outer;
  }

  Graph::Impl& graph_;
  const std::source_location& where_;
  const PlaceOf& place_of_;
  std::unordered_map<std::uint64_t, std::vector<const Node*>> regions_;  ///< not computed again yet
  std::unordered_map<const Node*, const Node*> again_;
  std::map<std::pair<std::uint64_t, const Node*>, const Node*> outer_;
  std::unordered_set<const Node*> depends_;  ///< on a parameter
  std::vector<const Node*> path_;
  std::unordered_map<const Node*, Tensor> gradients_;
};

}  // namespace

std::vector<Tensor> grad_placed(std::span<const Tensor> outputs, std::span<const Tensor> upstream,
                                std::span<const Tensor> parameters,
                                const std::source_location& where, const PlaceOf& place_of) {
  if (outputs.empty() || outputs.size() != upstream.size()) {
    refuse(where, fmt::format("{} outputs, {} gradients of them", outputs.size(), upstream.size()));
  }
  Graph::Impl& graph = graph_of("grad", outputs, where);
  const auto imported = [&](const Tensor& tensor) {
    if (!is_floating(tensor.dtype(where)) && !is_complex(tensor.dtype(where))) {
      refuse(where,
             fmt::format("{} has no gradient: it is not floating", to_string(tensor.shape(where))));
    }
    return graph.import(tensor, "grad");
  };
  std::vector<Node*> ends, starts;
  for (const Tensor& output : outputs) ends.push_back(imported(output));
  for (const Tensor& parameter : parameters) starts.push_back(imported(parameter));
  inline_repeats(graph, starts, ends);

  BackwardPass pass(graph, where, place_of);
  pass.find_path(ends, starts);
  for (std::size_t i = 0; i < ends.size(); ++i) {
    if (!(upstream[i].shape(where).without_tags() == ends[i]->shape.without_tags())) {
      refuse(where, fmt::format("a gradient {} for an output {}", to_string(upstream[i].shape()),
                                to_string(ends[i]->shape)));
    }
    pass.add(ends[i], upstream[i].with_tags({}));
  }
  pass.run();

  std::vector<Tensor> result;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    Tensor gradient = pass.of(starts[i]);
    if (gradient.is_empty()) {
      refuse(where, fmt::format("the loss does not depend on {}", described(parameters[i], i)));
    }
    const Shape& own = parameters[i].shape();
    if (own.has_tags()) {
      std::vector<Name> tags;
      for (int axis = 0; axis < own.rank(); ++axis) tags.push_back(own.tag(axis));
      gradient = gradient.with_tags(std::span<const Name>(tags));
    }
    result.push_back(gradient);
  }
  return result;
}

std::vector<Tensor> grad(std::span<const Tensor> outputs, std::span<const Tensor> upstream,
                         std::span<const Tensor> parameters, const std::source_location& where) {
  return grad_placed(outputs, upstream, parameters, where,
                     [](const Node& node) { return to_string(node.where); });
}

std::vector<Tensor> grad(const Tensor& loss, std::span<const Tensor> parameters,
                         const std::source_location& where) {
  const Shape& shape = loss.shape(where);
  if (shape.rank() != 0 || !is_floating(shape.dtype())) {
    refuse(where, fmt::format("the loss is {}, not a floating scalar", to_string(shape)));
  }
  const Tensor one = scalar_like(loss, 1.0, where);
  return grad({&loss, 1}, {&one, 1}, parameters, where);
}

}  // namespace tenon
