#include "array/size_text.hpp"
#include "graph/graph_impl.hpp"
#include "graph/graph_registry.hpp"
#include "graph/operand_count.hpp"
#include "ops/composed.hpp"

#include <tenon/exe.hpp>
#include <tenon/grad.hpp>
#include <tenon/graph.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <optional>
#include <vector>

#include <fmt/format.h>

namespace tenon {
namespace {

thread_local Graph* recording = nullptr;
thread_local std::uint64_t recorded_region = 0;  ///< of checkpointed(); 0: none

std::string_view kind_word(const Node& node) {
  switch (node.kind) {
    case Node::Kind::input:
      return "input";
    case Node::Kind::constant:
      return "constant";
    case Node::Kind::op:
      return node.op->name;
    case Node::Kind::repeat:
      return "repeat";
    case Node::Kind::item:
      return "item";
  }
  return "";
}

/// "x = f32[8, 784] (input, main.cpp:12)": an operand in an error message.
std::string describe(const Tensor& tensor) {
  const Node& node = GraphAccess::node(tensor);
  std::string made = std::string(kind_word(node));
  if (!node.name.empty() && node.captured == nullptr) made += fmt::format(" '{}'", node.name);
  return fmt::format("{} ({}, {})", to_string(tensor.shape()), made, to_string(node.where));
}

std::string operand_list(std::span<const Tensor> inputs) {
  std::string text;
  for (const Tensor& input : inputs) {
    text += text.empty() ? "; operands: " : ", ";
    text += describe(input);
  }
  return text;
}

/// "model.cpp:31: softmax".
std::string place_of(const std::source_location& where, std::string_view op) {
  return fmt::format("{}: {}", to_string(where), op);
}

/// `name`: the role of the tensor for the caller.
[[noreturn]] void throw_stale(const Tensor& tensor, std::string place, std::string_view name) {
  throw Error(Errc::stale_handle, std::move(place),
              tensor.is_empty()
                  ? fmt::format("{} is empty", name)
                  : fmt::format("the graph of {} has been destroyed: the Graph, or the File or "
                                "WeightsView that declared it, must outlive it",
                                name));
}

Graph::Impl& live_graph(const Tensor& tensor, std::string_view place, std::string_view name) {
  Graph::Impl* graph = graph_registry::find(GraphAccess::graph_id(tensor));
  if (graph == nullptr) throw_stale(tensor, std::string(place), name);
  return *graph;
}

/// Runs `make`, which allocates from the graph's arena. The error of a full arena names the
/// location and how to enlarge it.
template <class Make>
auto in_arena(const Graph::Impl& graph, const std::source_location& where, std::string_view op,
              Make&& make) {
  try {
    return std::forward<Make>(make)();
  } catch (const Error& error) {
    if (error.code() != Errc::out_of_arena) throw;
    throw Error(Errc::out_of_arena, place_of(where, op),
                fmt::format("the graph's budget of {} bytes is used up: {}; Graph, "
                            "CompileOptions::arena_bytes and Python's export(budget_bytes=) take "
                            "a larger one",
                            graph.arena.budget(), error.message()));
  }
}

bool is_inside(const GraphFunction* inner, const GraphFunction* outer) {
  for (; inner != nullptr; inner = inner->parent) {
    if (inner == outer) return true;
  }
  return false;
}

}  // namespace

std::uint64_t new_region() noexcept {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

detail::CheckpointedRegion::CheckpointedRegion() noexcept : is_outermost_(recorded_region == 0) {
  if (is_outermost_) recorded_region = new_region();
}
detail::CheckpointedRegion::~CheckpointedRegion() {
  if (is_outermost_) recorded_region = 0;
}

Graph::Impl& graph_of(std::string_view op, std::span<const Tensor> inputs,
                      const std::source_location& where) {
  Graph::Impl* found = nullptr;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Graph::Impl* const graph = graph_registry::find(GraphAccess::graph_id(inputs[i]));
    if (graph == nullptr) {
      throw_stale(inputs[i], place_of(where, op), fmt::format("operand {}", i));
    }
    if (graph->declares_only) continue;
    if (found != nullptr && found != graph) {
      throw Error(Errc::context_mismatch, place_of(where, op),
                  "operands of two graphs" + operand_list(inputs));
    }
    found = graph;
  }
  if (found == nullptr && recording != nullptr) found = &recording->impl();
  if (found == nullptr) {
    throw Error(Errc::call_order, place_of(where, op),
                "no operand belongs to a graph and no Graph::Recording is active");
  }
  return *found;
}

Node* Graph::Impl::append(const Node& node) {
  Node* stored = arena.make(node);
  if (node.kind == Node::Kind::input || node.kind == Node::Kind::constant) {
    given_names.emplace(node.name);
  }
  stored->function = current;
  if (stored->region == 0) stored->region = recorded_region;
  if (current->last == nullptr) {
    current->first = stored;
  } else {
    current->last->next = stored;
  }
  current->last = stored;
  if (node.kind == Node::Kind::constant) {
    found[current].constants[node.scoped ? 1 : 0].emplace(node.name, stored);
  }
  if (node.captured != nullptr) found[current].captures.emplace(node.captured, stored);
  return stored;
}

/// Of a function of which a part is behind the nodes that are recorded, what `found` has may be there.
Node* Graph::Impl::find_constant(std::string_view name, bool scoped) const {
  if (current->is_split) {
    for (Node* node = current->first; node != nullptr; node = node->next) {
      if (node->kind == Node::Kind::constant && node->scoped == scoped && node->name == name)
        return node;
    }
    return nullptr;
  }
  const auto in = found.find(current);
  if (in == found.end()) return nullptr;
  const auto& constants = in->second.constants[scoped ? 1 : 0];
  const auto at = constants.find(name);
  return at == constants.end() ? nullptr : at->second;
}

Node* Graph::Impl::find_capture(const Node* captured) const {
  if (current->is_split) {
    for (Node* node = current->first; node != nullptr; node = node->next) {
      if (node->captured == captured) return node;
    }
    return nullptr;
  }
  const auto in = found.find(current);
  if (in == found.end()) return nullptr;
  const auto at = in->second.captures.find(captured);
  return at == in->second.captures.end() ? nullptr : at->second;
}

GraphFunction* Graph::Impl::make_function(GraphFunction* parent) {
  auto* const made = arena.make(GraphFunction{.name = {}, .parent = parent});
  functions.push_back(made);
  return made;
}

void Graph::Impl::drop_function(const GraphFunction& function, std::size_t mark) {
  while (functions.back() != &function) {
    found.erase(functions.back());
    functions.pop_back();
  }
  found.erase(&function);
  functions.pop_back();
  arena.rewind(mark);
}

Node* Graph::Impl::append_copy(const Node& node, std::span<Node* const> inputs,
                               std::uint64_t region) {
  Node copy = node;
  copy.inputs = arena.copy(inputs);
  copy.region = region;
  copy.next = nullptr;
  return append(copy);
}

Tensor Graph::Impl::handle(const Node* node) const { return GraphAccess::make(node, id); }

Node* Graph::Impl::constant(std::string_view name, const Shape& shape,
                            const std::source_location& where) {
  const bool scoped = !current->prefix.empty() && name.starts_with(current->prefix);
  const std::string_view own = scoped ? name.substr(current->prefix.size()) : name;
  if (Node* const node = find_constant(own, scoped)) {
    if (!(node->shape == shape)) {
      throw Error(Errc::shape_mismatch, where,
                  fmt::format("constant '{}' is {} and {}", name, to_string(node->shape),
                              to_string(shape)));
    }
    return node;
  }
  return append({.kind = Node::Kind::constant,
                 .shape = shape,
                 .name = arena.copy(own),
                 .scoped = scoped,
                 .where = where});
}

Node* Graph::Impl::import(const Tensor& tensor, std::string_view op) {
  Graph::Impl& owner = live_graph(tensor, op, "an operand");
  const Node& node = GraphAccess::node(tensor);
  if (&owner != this) {
    if (!owner.declares_only) {
      throw Error(Errc::context_mismatch, std::string(op),
                  "a tensor of another graph: " + describe(tensor));
    }
    if (admitted && !admitted->contains(node.name)) {
      throw Error(
          Errc::bad_reference, std::string(op),
          fmt::format("the model uses weight '{}' of {}, but no field lists it; add the member "
                      "that holds it to TENON_FIELDS",
                      node.name, owner.origin));
    }
    return constant(node.name, tensor.shape(), node.where);
  }
  auto* own = const_cast<Node*>(&node);  // nodes of this graph are ours to link to
  if (own->function == current) return own;
  if (own->kind == Node::Kind::constant && !own->scoped) {
    return constant(own->name, own->shape, own->where);
  }
  if (!is_inside(current, own->function)) {
    throw Error(Errc::context_mismatch, std::string(op),
                "an operand belongs to a layer that has ended: " + describe(tensor));
  }
  if (Node* const known = find_capture(own)) return known;
  // A value of an enclosing function becomes an extra input of the layer. Layers in between pass it
  // on.
  GraphFunction* const inner = current;
  current = inner->parent;
  Node* outer = import(tensor, op);
  current = inner;
  return append({.kind = Node::Kind::input,
                 .shape = tensor.shape(),
                 .name = outer->name,
                 .where = node.where,
                 .captured = outer});
}

Graph::Graph(std::size_t budget_bytes) {
  const std::uint32_t id = graph_registry::add();
  try {
    impl_ = std::make_unique<Impl>(budget_bytes, id);
  } catch (...) {
    graph_registry::remove(id);
    throw;
  }
  graph_registry::attach(id, impl_.get());
}

Graph::~Graph() { graph_registry::remove(impl_->id); }

std::size_t Graph::budget() const noexcept { return impl_->arena.budget(); }
std::size_t Graph::used() const noexcept { return impl_->arena.used(); }

Tensor Graph::input(std::string_view name, const Shape& shape, const std::source_location& where) {
  const auto known = [&](std::string_view other) -> const Node* {
    if (!impl_->given_names.contains(other)) return nullptr;
    for (const Node* node = impl_->root.first; node != nullptr; node = node->next) {
      if (node->kind == Node::Kind::input && node->name == other) return node;
    }
    return nullptr;
  };
  std::string made(name);
  while (name.empty() && (made.empty() || known(made) != nullptr)) {
    made = fmt::format("x{}", impl_->next_input++);
  }
  if (const Node* node = known(made)) {
    throw Error(Errc::duplicate_name, where,
                fmt::format("input '{}' exists already, from {}", made, to_string(node->where)));
  }
  return in_arena(*impl_, where, "input", [&] {
    return impl_->handle(impl_->append({.kind = Node::Kind::input,
                                        .shape = shape,
                                        .name = impl_->arena.copy(std::string_view(made)),
                                        .where = where}));
  });
}

Tensor Graph::constant(std::string_view name, const Shape& shape,
                       const std::source_location& where) {
  return in_arena(*impl_, where, "constant",
                  [&] { return impl_->handle(impl_->constant(name, shape, where)); });
}

void Graph::admit_only(std::vector<std::string> names) {
  impl_->admitted.emplace(std::make_move_iterator(names.begin()),
                          std::make_move_iterator(names.end()));
}

Graph::Recording::Recording(Graph& graph) noexcept : outer_(recording) { recording = &graph; }
Graph::Recording::~Recording() { recording = outer_; }

namespace {

/// By other ops, once the op itself has found the operands' sizes right.
Tensor compose(Graph::Impl& graph, const Composition& composition, const OpDef& op,
               const void* attributes, std::span<const Tensor> inputs, std::vector<Shape> types,
               const std::source_location& where) {
  if (composition.checked_as) {
    for (Shape& type : types) {
      if (is_stored(type.dtype())) type = type.with_dtype(*composition.checked_as);
    }
    try {
      static_cast<void>(op.infer(attributes, types));
    } catch (const Error& error) {
      throw Error(error.code(), place_of(where, op.name), error.message() + operand_list(inputs));
    }
  }
  const Attribution attribution(graph, where);
  return composition.record(op, attributes, inputs);
}

/// A named size is a number only in a run, and no attribute.
void require_numbers(const OpDef& op, const void* attributes, std::span<const Tensor> inputs,
                     const std::string& place) {
  for (const AttributeField& field : op.fields) {
    const AttributeValue value = field.get(attributes);
    const auto* list = std::get_if<IntList>(&value);
    const auto* integer = std::get_if<std::int64_t>(&value);
    const bool is_open = (integer != nullptr && is_symbol(*integer)) ||
                         (list != nullptr && std::ranges::any_of(list->span(), is_symbol));
    if (!is_open) continue;
    throw Error(
        Errc::bad_shape, place,
        fmt::format("attribute '{}' is {}, with a size that is known in a run only: it takes "
                    "numbers{}",
                    field.name, list != nullptr ? sizes_text(list->span()) : size_text(*integer),
                    operand_list(inputs)));
  }
}

Tensor record_into(Graph::Impl& graph, const OpDef& op, const void* attributes,
                   std::span<const Tensor> inputs, const std::source_location& where) {
  if (auto refused = refused_operand_count(op, static_cast<int>(inputs.size()))) {
    throw Error(Errc::bad_argument, place_of(where, op.name), *std::move(refused));
  }
  std::vector<Shape> types;
  std::vector<Node*> nodes;
  types.reserve(inputs.size());
  nodes.reserve(inputs.size());
  const std::string place = place_of(where, op.name);
  for (const Tensor& input : inputs) {
    types.push_back(input.shape());
    nodes.push_back(graph.import(input, place));
  }
  require_numbers(op, attributes, inputs, place);
  if (const auto composition = find_composition(op, attributes, types)) {
    return compose(graph, *composition, op, attributes, inputs, std::move(types), where);
  }
  try {
    const Shape shape = op.infer(attributes, types);
    void* own = graph.arena.allocate(op.attribute_bytes, alignof(std::max_align_t));
    std::memcpy(own, attributes, op.attribute_bytes);
    return graph.handle(graph.append({.kind = Node::Kind::op,
                                      .shape = shape,
                                      .op = &op,
                                      .attributes = own,
                                      .inputs = graph.arena.copy(std::span<Node* const>(nodes)),
                                      .where = where}));
  } catch (const Error& error) {
    if (error.code() == Errc::out_of_arena) throw;
    throw Error(error.code(), place, error.message() + operand_list(inputs));
  }
}

}  // namespace

Tensor record(const OpDef& op, const void* attributes, std::span<const Tensor> inputs,
              const std::source_location& where) {
  Graph::Impl& graph = graph_of(op.name, inputs, where);
  const std::source_location& line = graph.attributed_to ? *graph.attributed_to : where;
  return in_arena(graph, line, op.name,
                  [&] { return record_into(graph, op, attributes, inputs, line); });
}

Tensor record_beside(const Tensor& neighbour, const OpDef& op, const void* attributes,
                     const std::source_location& where) {
  Graph::Impl& graph = graph_of(op.name, {&neighbour, 1}, where);
  const std::source_location& line = graph.attributed_to ? *graph.attributed_to : where;
  return in_arena(graph, line, op.name,
                  [&] { return record_into(graph, op, attributes, {}, line); });
}

const Node& Tensor::node(const std::source_location& asked, std::string_view what) const {
  if (node_ == nullptr || graph_registry::find(graph_id_) == nullptr) {
    throw_stale(*this, place_of(asked, what), "the tensor");
  }
  return *node_;
}

std::shared_ptr<const void> detail::declaration_of(const Tensor& tensor, const std::string& path) {
  return live_graph(tensor, "compile", fmt::format("field '{}'", path)).declared_by.lock();
}

const Shape& Tensor::shape(const std::source_location& asked) const {
  const Node& live = node(asked, "Tensor::shape");
  return retagged_ != nullptr ? *retagged_ : live.shape;
}

std::string_view Tensor::op(const std::source_location& asked) const {
  return kind_word(node(asked, "Tensor::op"));
}
std::string_view Tensor::name(const std::source_location& asked) const {
  return node(asked, "Tensor::name").name;
}
const std::source_location& Tensor::where(const std::source_location& asked) const {
  return node(asked, "Tensor::where").where;
}

Tensor Tensor::with_tags(std::initializer_list<Name> tags,
                         const std::source_location& asked) const {
  return with_tags(std::span<const Name>(tags.begin(), tags.size()), asked);
}

Tensor Tensor::with_tags(std::span<const Name> tags, const std::source_location& asked) const {
  const Shape& own = shape(asked);
  // A copy takes memory of the graph. That of weights has room for what it declares, and every program reads it.
  if (tags.empty() && !own.has_tags()) return *this;
  const Shape renamed = tags.empty() ? own.without_tags() : own.with_tags(tags);
  return {node_, graph_id_, graph_registry::find(graph_id_)->arena.make(renamed)};
}

Tensor Tensor::rename(const AxisRef& axis, Name tag, const std::source_location& asked) const {
  const Shape& own = shape(asked);
  const Shape renamed = own.with_tag(own.axis(axis), tag);
  return {node_, graph_id_, graph_registry::find(graph_id_)->arena.make(renamed)};
}

}  // namespace tenon
