#include "graph/graph_impl.hpp"
#include "graph/loop_values.hpp"

#include <tenon/control.hpp>
#include <tenon/error.hpp>

#include <algorithm>
#include <charconv>
#include <optional>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

namespace tenon {
namespace {

/// A layer's scope and number, from the names of its weights: "blk.3.attn_q.weight" and
/// "blk.3.ffn_up.weight" share "blk.3.", so the scope is "blk" and the number 3.
struct LayerName {
  std::string_view scope;
  std::string_view prefix;
  std::int64_t number = 0;
};

/// The innermost whole component of a name that is a number and has something before it.
std::optional<LayerName> innermost_number(std::string_view name) {
  std::size_t dot = name.rfind('.');
  while (dot != std::string_view::npos && dot > 0) {
    const std::size_t before = name.rfind('.', dot - 1);
    const std::size_t begin = before == std::string_view::npos ? 0 : before + 1;
    const std::string_view part = name.substr(begin, dot - begin);
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), number);
    if (error == std::errc() && end == part.data() + part.size() && number >= 0 && begin > 0) {
      return LayerName{name.substr(0, begin - 1), name.substr(0, dot + 1), number};
    }
    dot = before;
  }
  return std::nullopt;
}

/// The name of a layer; weights without a number belong to all layers and do not count.
std::optional<LayerName> layer_name(std::span<const Tensor> weights) {
  std::optional<std::string_view> common;
  for (const Tensor& weight : weights) {
    const std::string_view name = weight.name();
    if (!innermost_number(name)) continue;
    if (!common) common = name;
    const auto [end, unused] =
        std::mismatch(common->begin(), common->end(), name.begin(), name.end());
    common = common->substr(0, static_cast<std::size_t>(end - common->begin()));
  }
  return common ? innermost_number(*common) : std::nullopt;
}

using Positions = std::unordered_map<const Node*, std::size_t>;

Positions positions(const GraphFunction& function) {
  Positions result;
  for (const Node* node = function.first; node != nullptr; node = node->next) {
    result.emplace(node, result.size());
  }
  return result;
}

bool same_links(std::span<Node* const> a, const Positions& in_a, std::span<Node* const> b,
                const Positions& in_b) {
  return std::ranges::equal(a, b,
                            [&](const Node* x, const Node* y) { return in_a.at(x) == in_b.at(y); });
}

}  // namespace

bool same_function(const GraphFunction& a, const GraphFunction& b) {
  if (a.carry_count != b.carry_count || a.prefix.empty() != b.prefix.empty()) return false;
  const Positions in_a = positions(a);
  const Positions in_b = positions(b);
  if (in_a.size() != in_b.size()) return false;
  const Node* x = a.first;
  const Node* y = b.first;
  for (; x != nullptr; x = x->next, y = y->next) {
    const bool same_op = x->op == y->op && (x->op == nullptr ||
                                            equal_attributes(*x->op, x->attributes, y->attributes));
    const bool same_callee = (x->callee == nullptr) == (y->callee == nullptr) &&
                             (x->callee == nullptr || same_function(*x->callee, *y->callee));
    // Captures may be different outer values: those are operands of the repeat.
    const bool same_name = x->captured != nullptr ? y->captured != nullptr
                                                  : y->captured == nullptr && x->name == y->name;
    if (x->kind != y->kind || !same_op || !same_callee || !same_name || x->count != y->count ||
        x->first != y->first || x->condition != y->condition || x->scoped != y->scoped ||
        !(x->shape == y->shape) || !same_links(x->inputs, in_a, y->inputs, in_b)) {
      return false;
    }
  }
  return same_links(a.results, in_a, b.results, in_b);
}

struct RepeatRecorder::Impl {
  /// Consecutive layers that are one function.
  struct Run {
    const GraphFunction* function;
    std::int64_t first;
    std::int64_t count;
    std::int64_t condition;
    std::string scope;
    std::vector<Node*> captured;
  };

  Graph::Impl* graph = nullptr;
  GraphFunction* outer = nullptr;
  std::vector<Node*> carry;
  std::vector<Tensor> carry_handles;  // for their tags
  std::source_location where;
  std::vector<Run> runs;
  std::vector<const GraphFunction*> functions;

  // The layer being traced.
  std::size_t mark = 0;
  const Node* outer_last = nullptr;
  GraphFunction* layer = nullptr;
  LayerName name;
  std::int64_t traced = 0;
};

RepeatRecorder::RepeatRecorder(std::span<const Tensor> carry, const std::source_location& where)
    : impl_(std::make_unique<Impl>()) {
  if (carry.empty())
    throw Error(Errc::bad_argument, where, "repeat: nothing is carried from layer to layer");
  impl_->graph = &graph_of("repeat", carry, where);
  impl_->outer = impl_->graph->current;
  impl_->where = where;
  for (const Tensor& tensor : carry) {
    impl_->carry.push_back(impl_->graph->import(tensor, "repeat"));
    impl_->carry_handles.push_back(tensor);
  }
}

RepeatRecorder::~RepeatRecorder() {
  if (impl_->layer != nullptr) impl_->graph->current = impl_->outer;  // a layer threw while tracing
}

RepeatRecorder::Frame RepeatRecorder::begin(std::span<const Tensor> weights) {
  Impl& self = *impl_;
  Graph::Impl& graph = *self.graph;
  self.mark = graph.arena.used();
  self.outer_last = self.outer->last;
  self.name = layer_name(weights).value_or(LayerName{"layers", {}, self.traced});
  self.layer = graph.make_function(self.outer);
  self.layer->prefix = graph.arena.copy(self.name.prefix);
  self.layer->carry_count = static_cast<std::uint32_t>(self.carry.size());
  graph.current = self.layer;
  Frame frame;
  for (std::size_t i = 0; i < self.carry.size(); ++i) {
    Node* input = graph.append({.kind = Node::Kind::input,
                                .shape = self.carry_handles[i].shape(),
                                .name = "carry",
                                .where = self.where});
    frame.carry.push_back(graph.handle(input));
  }
  self.layer->index = graph.append({.kind = Node::Kind::input,
                                    .shape = Shape(std::span<const Axis>(), i64),
                                    .name = "index",
                                    .where = self.where});
  frame.index = graph.handle(self.layer->index);
  return frame;
}

Tensor RepeatRecorder::carry(const Tensor& start) {
  Impl& self = *impl_;
  Graph::Impl& graph = *self.graph;
  if (self.layer == nullptr || self.traced > 0) {
    throw Error(Errc::call_order, self.where, "repeat: carry() outside of the first layer");
  }
  graph.current = self.outer;
  self.carry.push_back(graph.import(start, "repeat"));
  graph.current = self.layer;
  self.carry_handles.push_back(start);
  ++self.layer->carry_count;
  Node* last_carry = self.layer->first;
  while (last_carry->next != self.layer->index) last_carry = last_carry->next;
  const RecordingIn place(graph, last_carry);
  return graph.handle(graph.append(
      {.kind = Node::Kind::input, .shape = start.shape(), .name = "carry", .where = self.where}));
}

void RepeatRecorder::end(std::span<const Tensor> results, std::int64_t times,
                         std::int64_t condition) {
  Impl& self = *impl_;
  Graph::Impl& graph = *self.graph;
  if (self.layer == nullptr)
    throw Error(Errc::call_order, self.where, "repeat: end() without begin()");
  if (times < 0 || (times != 1 && !self.name.prefix.empty())) {
    throw Error(Errc::bad_argument, self.where,
                fmt::format("repeat: {} times{}", times,
                            self.name.prefix.empty() ? "" : " of a layer with numbered weights"));
  }
  if (results.size() != self.carry.size()) {
    throw Error(Errc::bad_argument, self.where,
                fmt::format("repeat: layer {} returns {} tensors, {} are carried", self.traced,
                            results.size(), self.carry.size()));
  }
  if (condition >= 0) {
    const bool is_carried = condition < static_cast<std::int64_t>(self.carry.size());
    const Shape* const shape =
        is_carried ? &self.carry_handles[static_cast<std::size_t>(condition)].shape() : nullptr;
    if (shape == nullptr || shape->dtype() != boolean || shape->rank() != 0) {
      throw Error(
          Errc::bad_type, self.where,
          fmt::format("a loop's condition is bool[], not {}",
                      shape == nullptr ? "a value that is not carried" : to_string(*shape)));
    }
  }
  std::vector<Node*> nodes;
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!(results[i].shape() == self.carry_handles[i].shape())) {
      throw Error(
          Errc::shape_mismatch, self.where,
          fmt::format("repeat: layer {} turns {} into {}", self.traced,
                      to_string(self.carry_handles[i].shape()), to_string(results[i].shape())));
    }
    nodes.push_back(graph.import(results[i], "repeat"));
  }
  self.layer->results = graph.arena.copy(std::span<Node* const>(nodes));
  std::vector<Node*> captured;
  for (Node* node = self.layer->first; node != nullptr; node = node->next) {
    if (node->captured != nullptr) captured.push_back(node->captured);
  }

  const auto known = std::ranges::find_if(self.functions, [&](const GraphFunction* other) {
    return same_function(*self.layer, *other);
  });
  const GraphFunction* function = self.layer;
  std::string scope(self.name.scope);
  if (known != self.functions.end()) {
    function = *known;
    // Nothing outside may point into the freed memory.
    if (self.outer->last == self.outer_last) graph.drop_function(*self.layer, self.mark);
  } else {
    self.functions.push_back(function);
  }
  graph.current = self.outer;
  self.layer = nullptr;
  if (!self.runs.empty()) {
    Impl::Run& last = self.runs.back();
    if (last.function == function && last.scope == scope && last.captured == captured &&
        condition < 0 && last.condition < 0 && last.first + last.count == self.name.number) {
      last.count += times;
      ++self.traced;
      return;
    }
  }
  self.runs.push_back(
      {function, self.name.number, times, condition, std::move(scope), std::move(captured)});
  ++self.traced;
}

std::vector<Tensor> RepeatRecorder::finish() {
  Impl& self = *impl_;
  Graph::Impl& graph = *self.graph;
  for (const Impl::Run& run : self.runs) {
    std::vector<Node*> inputs = self.carry;
    inputs.insert(inputs.end(), run.captured.begin(), run.captured.end());
    Node* repeat = graph.append({.kind = Node::Kind::repeat,
                                 .inputs = graph.arena.copy(std::span<Node* const>(inputs)),
                                 .name = graph.arena.copy(std::string_view(run.scope)),
                                 .callee = run.function,
                                 .count = run.count,
                                 .first = run.first,
                                 .condition = run.condition,
                                 .where = self.where});
    const auto repeat_input = graph.arena.copy(std::span<Node* const>(&repeat, 1));
    for (std::size_t i = 0; i < self.carry.size(); ++i) {
      self.carry[i] = graph.append({.kind = Node::Kind::item,
                                    .shape = self.carry_handles[i].shape(),
                                    .inputs = repeat_input,
                                    .count = static_cast<std::int64_t>(i),
                                    .where = self.where});
    }
  }
  std::vector<Tensor> results;
  for (const Node* node : self.carry) results.push_back(graph.handle(node));
  return results;
}

namespace detail {

void check_condition(std::string_view loop, const Tensor& condition,
                     const std::source_location& where) {
  const Shape& shape = condition.shape(where);
  if (shape.dtype() == boolean && shape.rank() == 0) return;
  throw Error(Errc::bad_type, where,
              fmt::format("{}: its condition is bool[], not {}", loop, to_string(shape)));
}

void check_same_types(std::string_view loop, std::string_view name, std::span<const Tensor> made,
                      std::string_view wanted_name, std::span<const Tensor> wanted,
                      const std::source_location& where) {
  if (made.size() != wanted.size()) {
    throw Error(Errc::shape_mismatch, where,
                fmt::format("{}: {} has {} tensors, {} {}: they have the same types", loop, name,
                            made.size(), wanted_name, wanted.size()));
  }
  for (std::size_t i = 0; i < made.size(); ++i) {
    const Shape &is = made[i].shape(where), &wants = wanted[i].shape(where);
    if (is == wants) continue;
    const std::string tensor = made.size() == 1 ? "" : fmt::format(" as tensor {}", i);
    throw Error(Errc::shape_mismatch, where,
                fmt::format("{}: {} has {}{}, {} {}: they have the same types", loop, name,
                            to_string(is), tensor, wanted_name, to_string(wants)));
  }
}

}  // namespace detail

}  // namespace tenon
