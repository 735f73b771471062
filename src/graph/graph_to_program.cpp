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
  std::string name = fmt::format("layer{}", names_.size());
  names_.emplace(&function, name);
  return add(function, function.results, name);
}

std::string Translator::add(const GraphFunction& source, std::span<Node* const> results,
                            std::string_view name) {
  Function function;
  function.name = name;
  Namer namer;
  std::unordered_map<const Node*, ValueId> ids;
  const std::vector<const Node*> nodes = needed_nodes(source, results);

  // Parameters: carry, index, scope, captures; of the entry function, its inputs.
  std::optional<ValueId> scope;
  for (const Node* node : nodes) {
    if (node->kind != Node::Kind::input) continue;
    const std::string base =
        node->captured != nullptr && node->name.empty() ? "extra" : std::string(node->name);
    ids[node] = function.add_value(
        {namer.unique(base, node->name == "carry"), ValueKind::tensor, node->shape.without_tags()});
    if (node == source.index) {
      scope = function.add_value({namer.unique("s", false), ValueKind::scope, std::nullopt});
    }
  }
  function.parameter_count = static_cast<std::uint32_t>(function.values.size());

  for (const Node* node : nodes) {
    Instruction instruction;
    instruction.line = source_line(node->where);
    for (const Node* input : node->inputs) {
      if (const auto found = ids.find(input); found != ids.end())
        instruction.operands.push_back(found->second);
    }
    switch (node->kind) {
      case Node::Kind::input:
        continue;
      case Node::Kind::constant:
        instruction.kind = Instruction::Kind::constant;
        instruction.text = node->name;
        if (node->scoped) instruction.operands.push_back(scope.value());
        instruction.result = function.add_value({namer.unique(last_words(node->name), false),
                                                 ValueKind::tensor, node->shape.without_tags()});
        break;
      case Node::Kind::op:
        instruction.op = OpInstance(*node->op, node->attributes);
        instruction.result = function.add_value({namer.unique(std::string(node->op->name), true),
                                                 ValueKind::tensor, node->shape.without_tags()});
        break;
      case Node::Kind::repeat: {
        const std::size_t carried = node->callee->carry_count;
        Instruction pack;
        pack.kind = Instruction::Kind::pack;
        pack.line = instruction.line;
        pack.operands.assign(instruction.operands.begin(),
                             instruction.operands.begin() + static_cast<std::ptrdiff_t>(carried));
        pack.result =
            function.add_value({namer.unique("carry", true), ValueKind::tuple, std::nullopt});
        Instruction prefix;
        prefix.kind = Instruction::Kind::scope;
        prefix.line = instruction.line;
        prefix.text = node->name;
        prefix.result =
            function.add_value({namer.unique("scope", true), ValueKind::scope, std::nullopt});
        std::vector<ValueId> operands{pack.result, prefix.result};
        operands.insert(operands.end(),
                        instruction.operands.begin() + static_cast<std::ptrdiff_t>(carried),
                        instruction.operands.end());
        function.body.push_back(std::move(pack));
        function.body.push_back(std::move(prefix));
        instruction.kind = Instruction::Kind::repeat;
        instruction.function = callee_name(*node->callee);
        instruction.count = node->count;
        instruction.first = node->first;
        instruction.condition = node->condition;
        instruction.operands = std::move(operands);
        instruction.result =
            function.add_value({namer.unique("layers", true), ValueKind::tuple, std::nullopt});
        break;
      }
      case Node::Kind::item:
        instruction.kind = Instruction::Kind::item;
        instruction.index = node->count;
        instruction.result = function.add_value(
            {namer.unique("item", true), ValueKind::tensor, node->shape.without_tags()});
        break;
    }
    ids[node] = instruction.result;
    function.body.push_back(std::move(instruction));
  }
  for (const Node* result : results) function.results.push_back(ids.at(result));
  program_.functions.push_back(std::move(function));
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
