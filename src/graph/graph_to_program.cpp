#include "graph/graph_impl.hpp"
#include "graph/graph_registry.hpp"
#include "program/copies.hpp"
#include "program/words.hpp"

#include <tenon/error.hpp>
#include <tenon/graph.hpp>

#include <algorithm>
#include <cctype>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>

namespace tenon {
namespace {

/// Gives values readable names: an input's own, the last components of a weight's, an op's name
/// with a number.
class Namer {
 public:
  std::string unique(std::string base, bool numbered) {
    constexpr std::size_t longest = 200;  // leaves room for a number
    base.resize(std::min(base.size(), longest));
    for (char& c : base) {
      if (!is_identifier(std::string_view(&c, 1)) && (c < '0' || c > '9')) c = '_';
    }
    if (is_keyword(base)) base += '_';
    if (base.empty() || std::isdigit(static_cast<unsigned char>(base[0])) != 0) base = "v" + base;
    std::string name = base;
    int& next = next_[base];
    if (numbered) name = fmt::format("{}{}", base, next++);
    while (!taken_.insert(name).second) name = fmt::format("{}{}", base, next++);
    return name;
  }

 private:
  std::unordered_map<std::string, int> next_;
  std::unordered_set<std::string> taken_;
};

std::string last_words(std::string_view weight) {
  const std::size_t dot = weight.rfind('.');
  const std::size_t before = dot == std::string_view::npos || dot == 0 ? std::string_view::npos
                                                                       : weight.rfind('.', dot - 1);
  return std::string(before == std::string_view::npos ? weight : weight.substr(before + 1));
}

SourceLine source_line(const std::source_location& where) {
  std::string_view file = where.file_name();
  if (const auto slash = file.find_last_of('/'); slash != std::string_view::npos) {
    file.remove_prefix(slash + 1);
  }
  return {std::string(file), static_cast<int>(where.line()), static_cast<int>(where.column())};
}

/// Writes the nodes of a recorded function as instructions.
class FunctionWriter {
 public:
  explicit FunctionWriter(std::string_view name) { function_.name = name; }

  /// Carry, index, scope and captures; of the entry function, its inputs.
  void add_parameters(const GraphFunction& source, std::span<const Node* const> nodes);
  /// Everything but inputs; `callee`: of a repeat.
  void add(const Node& node, std::string callee);
  Function finish(std::span<Node* const> results);

 private:
  ValueId tensor(const std::string& base, bool numbered, const Node& node) {
    return function_.add_value(
        {namer_.unique(base, numbered), ValueKind::tensor, node.shape.without_tags()});
  }
  ValueId of_kind(ValueKind kind, const std::string& base, bool numbered) {
    return function_.add_value({namer_.unique(base, numbered), kind, std::nullopt});
  }
  Instruction instruction(Instruction::Kind kind, const Node& node) const;
  void add(Instruction instruction, const Node& node);
  void add_repeat(const Node& node, std::string callee);

  Function function_;
  Namer namer_;
  std::unordered_map<const Node*, ValueId> ids_;
  std::optional<ValueId> scope_;
};

void FunctionWriter::add_parameters(const GraphFunction& source,
                                    std::span<const Node* const> nodes) {
  for (const Node* node : nodes) {
    if (node->kind != Node::Kind::input) continue;
    const bool is_unnamed_capture = node->captured != nullptr && node->name.empty();
    ids_[node] = tensor(is_unnamed_capture ? "extra" : std::string(node->name),
                        node->name == "carry", *node);
    if (node == source.index) scope_ = of_kind(ValueKind::scope, "s", false);
  }
  function_.parameter_count = static_cast<std::uint32_t>(function_.values.size());
}

/// An instruction of a node's line and inputs.
Instruction FunctionWriter::instruction(Instruction::Kind kind, const Node& node) const {
  Instruction made;
  made.kind = kind;
  made.line = source_line(node.where);
  for (const Node* input : node.inputs) {
    if (const auto found = ids_.find(input); found != ids_.end()) {
      made.operands.push_back(found->second);
    }
  }
  return made;
}

void FunctionWriter::add(Instruction instruction, const Node& node) {
  ids_[&node] = instruction.result;
  function_.body.push_back(std::move(instruction));
}

void FunctionWriter::add(const Node& node, std::string callee) {
  switch (node.kind) {
    case Node::Kind::input:
      return;  // a parameter
    case Node::Kind::constant: {
      Instruction read = instruction(Instruction::Kind::constant, node);
      read.text = node.name;
      if (node.scoped) read.operands.push_back(scope_.value());
      read.result = tensor(last_words(node.name), false, node);
      return add(std::move(read), node);
    }
    case Node::Kind::op: {
      Instruction op = instruction(Instruction::Kind::op, node);
      op.op = OpInstance(*node.op, node.attributes);
      op.result = tensor(std::string(node.name.empty() ? node.op->name : node.name), true, node);
      return add(std::move(op), node);
    }
    case Node::Kind::item: {
      Instruction item = instruction(Instruction::Kind::item, node);
      item.index = node.count;
      item.result = tensor("item", true, node);
      return add(std::move(item), node);
    }
    case Node::Kind::repeat:
      return add_repeat(node, std::move(callee));
  }
}

void FunctionWriter::add_repeat(const Node& node, std::string callee) {
  Instruction repeat = instruction(Instruction::Kind::repeat, node);
  const auto carried =
      repeat.operands.begin() + static_cast<std::ptrdiff_t>(node.callee->carry_count);
  Instruction pack;
  pack.kind = Instruction::Kind::pack;
  pack.line = repeat.line;
  pack.operands.assign(repeat.operands.begin(), carried);
  pack.result = of_kind(ValueKind::tuple, "carry", true);
  Instruction prefix;
  prefix.kind = Instruction::Kind::scope;
  prefix.line = repeat.line;
  prefix.text = node.name;
  prefix.result = of_kind(ValueKind::scope, "scope", true);

  std::vector<ValueId> operands{pack.result, prefix.result};
  operands.insert(operands.end(), carried, repeat.operands.end());
  repeat.operands = std::move(operands);
  repeat.function = std::move(callee);
  repeat.count = node.count;
  repeat.first = node.first;
  repeat.condition = node.condition;
  repeat.result = of_kind(ValueKind::tuple, "layers", true);
  function_.body.push_back(std::move(pack));
  function_.body.push_back(std::move(prefix));
  add(std::move(repeat), node);
}

Function FunctionWriter::finish(std::span<Node* const> results) {
  for (const Node* result : results) function_.results.push_back(ids_.at(result));
  return std::move(function_);
}

class Translator {
 public:
  explicit Translator(Program& program) : program_(program) {}

  /// Adds the function, after its callees, and returns its name.
  std::string add(const GraphFunction& function, std::span<Node* const> results,
                  std::string_view name);

 private:
  std::string callee_name(const GraphFunction& function);

  Program& program_;
  std::unordered_map<const GraphFunction*, std::string> names_;
  int next_layer_ = 0;
};

/// Inputs and whatever the results need, in recording order.
std::vector<const Node*> needed_nodes(const GraphFunction& function,
                                      std::span<Node* const> results) {
  std::vector<const Node*> order;
  for (const Node* node = function.first; node != nullptr; node = node->next) order.push_back(node);
  std::unordered_set<const Node*> needed(results.begin(), results.end());
  std::vector<const Node*> kept;
  for (auto node = order.rbegin(); node != order.rend(); ++node) {
    if ((*node)->kind != Node::Kind::input && !needed.contains(*node)) continue;
    needed.insert((*node)->inputs.begin(), (*node)->inputs.end());
    kept.push_back(*node);
  }
  std::ranges::reverse(kept);
  return kept;
}

std::string Translator::callee_name(const GraphFunction& function) {
  if (const auto known = names_.find(&function); known != names_.end()) return known->second;
  for (const auto& [other, name] : names_) {
    if (same_function(function, *other)) return name;
  }
  std::string name;
  do name = fmt::format("layer{}", next_layer_++);
  while (name == program_.entry);
  names_.emplace(&function, name);
  return add(function, function.results, name);
}

std::string Translator::add(const GraphFunction& source, std::span<Node* const> results,
                            std::string_view name) {
  const std::vector<const Node*> nodes = needed_nodes(source, results);
  FunctionWriter writer(name);
  writer.add_parameters(source, nodes);
  for (const Node* node : nodes) {
    const bool is_repeat = node->kind == Node::Kind::repeat;
    writer.add(*node, is_repeat ? callee_name(*node->callee) : std::string());
  }
  program_.functions.push_back(writer.finish(results));
  return std::string(name);
}

}  // namespace

Program Graph::program(std::span<const Tensor> outputs, std::string_view name) const {
  if (outputs.empty()) throw Error(Errc::bad_argument, "Graph::program", "no outputs");
  std::vector<Node*> results;
  for (const Tensor& output : outputs) {
    if (output.is_empty()) {
      throw Error(
          Errc::stale_handle, "Graph::program",
          fmt::format("output {} of {} is an empty tensor", results.size(), outputs.size()));
    }
    results.push_back(impl_->import(output, "Graph::program"));
  }
  Program program;
  program.entry = name;
  Translator(program).add(impl_->root, results, name);
  if (impl_->has_gradients) copy_what_is_read_later(program);
  return program;
}

}  // namespace tenon
