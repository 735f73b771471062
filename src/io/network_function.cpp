// A function of a network's JSON: nodes by name, in any order, become instructions in one.
#include "base/immortal.hpp"
#include "graph/operand_count.hpp"
#include "names.hpp"
#include "network_json.hpp"
#include "program/limits.hpp"
#include "program/words.hpp"

#include <tenon/program.hpp>

#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <unordered_map>

#include <fmt/format.h>

namespace tenon::io::network {
namespace {

using Kind = Instruction::Kind;

/// The words that "op" may hold beside the names of ops.
const std::map<std::string_view, Kind>& words_of_kinds() {
  return process_wide([]() -> std::map<std::string_view, Kind> {
    return {{"const", Kind::constant}, {"scope", Kind::scope},   {"pack", Kind::pack},
            {"item", Kind::item},      {"repeat", Kind::repeat}, {"call", Kind::call}};
  });
}

class FunctionReader {
 public:
  FunctionReader(const JsonValue& json, WordBudget& words) : json_(json), words_(words) {}

  ReadFunction run();

 private:
  /// A node of the document.
  struct Node {
    Instruction instruction;  // without operands and result
    Value value;
    std::vector<std::uint32_t> inputs;  // numbers of parameters, then of nodes behind them
  };

  void parameters();
  void nodes();
  Node node(const JsonValue& json);
  void inputs(const JsonValue& json, Node& node);
  void results();
  void define(const JsonValue& place, const std::string& name);
  std::uint32_t resolve(const JsonValue& place, const std::string& name) const;
  std::vector<std::size_t> sorted() const;
  [[noreturn]] void fail_cycle(const std::vector<std::uint32_t>& open) const;

  const JsonValue& json_;
  WordBudget& words_;
  Function function_;
  std::vector<Node> nodes_;
  std::vector<std::uint32_t> results_;
  std::unordered_map<std::string, std::uint32_t> numbers_;
};

void FunctionReader::define(const JsonValue& place, const std::string& name) {
  if (!is_identifier(name) || is_keyword(name)) {
    place.fail(Errc::syntax, fmt::format("{} is no name for a value", quote_name(name)));
  }
  const auto number = static_cast<std::uint32_t>(numbers_.size());
  if (!numbers_.emplace(name, number).second) {
    place.fail(Errc::duplicate_name, fmt::format("a second value '{}'", name));
  }
}

std::uint32_t FunctionReader::resolve(const JsonValue& place, const std::string& name) const {
  const auto found = numbers_.find(name);
  if (found == numbers_.end()) {
    place.fail(Errc::bad_reference, fmt::format("no node or parameter makes {}", quote_name(name)));
  }
  return found->second;
}

void FunctionReader::parameters() {
  const JsonValue list = json_["parameters"];
  if (list.size() > program_limits::operands) {
    list.fail(Errc::limit_exceeded,
              fmt::format("{} parameters, at most {}", list.size(), program_limits::operands));
  }
  for (std::size_t i = 0; i < list.size(); ++i) {
    const JsonValue parameter = list[i];
    parameter.check_keys({"name", "kind", "type"});
    Value value{parameter["name"].text(), ValueKind::tensor, std::nullopt};
    if (parameter.has("kind")) {
      const JsonValue kind = parameter["kind"];
      if (kind.text() == "scope") {
        value.kind = ValueKind::scope;
      } else if (kind.text() != "tensor") {
        kind.fail(Errc::bad_type, fmt::format("{} is no kind of parameter: tensor or scope",
                                              quote_name(kind.text())));
      }
    }
    if (parameter.has("type")) {
      const JsonValue type = parameter["type"];
      if (value.kind != ValueKind::tensor) type.fail(Errc::bad_type, "only tensors have a type");
      value.shape = read_type(type, words_);
    }
    define(parameter, value.name);
    function_.add_value(std::move(value));
    ++function_.parameter_count;
  }
}

FunctionReader::Node FunctionReader::node(const JsonValue& json) {
  Node node;
  Instruction& instruction = node.instruction;
  node.value.name = json["name"].text();
  const JsonValue op = json["op"];
  const auto word = words_of_kinds().find(op.text());
  instruction.kind = word != words_of_kinds().end() ? word->second : Kind::op;
  switch (instruction.kind) {
    case Kind::op: {
      json.check_keys({"name", "op", "inputs", "attributes", "type"});
      const OpDef* def = find_op(op.text());
      if (def == nullptr) {
        op.fail(Errc::unknown_op, fmt::format("node '{}': there is no op {}", node.value.name,
                                              quote_name(op.text())));
      }
      instruction.op = OpInstance(*def);
      if (json.has("attributes")) {
        read_attributes(json["attributes"], node.value.name, instruction.op, words_);
      }
      break;
    }
    case Kind::constant:
      json.check_keys({"name", "op", "inputs", "constant", "type"});
      instruction.text = json["constant"].text();
      break;
    case Kind::scope:
      json.check_keys({"name", "op", "inputs", "prefix"});
      node.value.kind = ValueKind::scope;
      instruction.text = json["prefix"].text();
      break;
    case Kind::pack:
      json.check_keys({"name", "op", "inputs"});
      node.value.kind = ValueKind::tuple;
      break;
    case Kind::item:
      json.check_keys({"name", "op", "inputs", "index", "type"});
      instruction.index = json["index"].integer();
      break;
    case Kind::repeat:
      json.check_keys({"name", "op", "inputs", "function", "count", "first", "condition"});
      node.value.kind = ValueKind::tuple;
      instruction.function = json["function"].text();
      instruction.count = json["count"].integer();
      if (json.has("first")) instruction.first = json["first"].integer();
      if (json.has("condition")) {
        const JsonValue condition = json["condition"];
        instruction.condition = condition.integer();
        if (instruction.condition < 0) condition.fail(Errc::out_of_range, "is below 0");
      }
      break;
    case Kind::call:
      json.check_keys({"name", "op", "inputs", "function", "type"});
      instruction.function = json["function"].text();
      break;
  }
  if (json.has("type")) {
    const JsonValue type = json["type"];
    if (node.value.kind != ValueKind::tensor) type.fail(Errc::bad_type, "only tensors have a type");
    node.value.shape = read_type(type, words_);
  }
  return node;
}

void FunctionReader::nodes() {
  const JsonValue list = json_["nodes"];
  if (list.size() > static_cast<std::size_t>(program_limits::instructions)) {
    list.fail(Errc::limit_exceeded,
              fmt::format("{} nodes, at most {}", list.size(), program_limits::instructions));
  }
  for (std::size_t i = 0; i < list.size(); ++i) {
    const JsonValue json = list[i];
    nodes_.push_back(node(json));
    define(json, nodes_.back().value.name);
  }
  for (std::size_t i = 0; i < list.size(); ++i) inputs(list[i], nodes_[i]);
}

void FunctionReader::inputs(const JsonValue& json, Node& node) {
  if (!json.has("inputs")) return;
  const JsonValue list = json["inputs"];
  if (list.size() > program_limits::operands) {
    list.fail(Errc::limit_exceeded,
              fmt::format("{} inputs, at most {}", list.size(), program_limits::operands));
  }
  for (std::size_t i = 0; i < list.size(); ++i) {
    const JsonValue input = list[i];
    node.inputs.push_back(resolve(input, input.text()));
  }
  const OpDef* def = node.instruction.op.def();
  if (def == nullptr) return;
  if (const auto refused = refused_operand_count(*def, static_cast<int>(list.size()))) {
    list.fail(Errc::bad_argument, fmt::format("{} '{}' {}", def->name, node.value.name, *refused));
  }
}

void FunctionReader::results() {
  const JsonValue list = json_["results"];
  if (list.size() > program_limits::operands) {
    list.fail(Errc::limit_exceeded,
              fmt::format("{} results, at most {}", list.size(), program_limits::operands));
  }
  for (std::size_t i = 0; i < list.size(); ++i) {
    const JsonValue result = list[i];
    results_.push_back(resolve(result, result.text()));
  }
}

/// The nodes in topological order; among those that may come next, the first of the document.
std::vector<std::size_t> FunctionReader::sorted() const {
  std::vector<std::uint32_t> open(nodes_.size());  // inputs that are nodes not yet placed
  std::vector<std::vector<std::uint32_t>> readers(nodes_.size());
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    for (const std::uint32_t input : nodes_[i].inputs) {
      if (input < function_.parameter_count) continue;
      readers[input - function_.parameter_count].push_back(static_cast<std::uint32_t>(i));
      ++open[i];
    }
  }
  std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>> next;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (open[i] == 0) next.push(i);
  }
  std::vector<std::size_t> order;
  order.reserve(nodes_.size());
  while (!next.empty()) {
    const std::size_t i = next.top();
    next.pop();
    order.push_back(i);
    for (const std::uint32_t reader : readers[i]) {
      if (--open[reader] == 0) next.push(reader);
    }
  }
  if (order.size() != nodes_.size()) fail_cycle(open);
  return order;
}

/// Each remaining node depends on another remaining one: following the dependencies finds the
/// cycle.
void FunctionReader::fail_cycle(const std::vector<std::uint32_t>& open) const {
  std::size_t at = 0;
  while (open[at] == 0) ++at;
  std::vector<std::size_t> way;
  std::vector<bool> seen(nodes_.size());
  while (!seen[at]) {
    seen[at] = true;
    way.push_back(at);
    for (const std::uint32_t input : nodes_[at].inputs) {
      if (input < function_.parameter_count) continue;
      if (open[input - function_.parameter_count] > 0) {
        at = input - function_.parameter_count;
        break;
      }
    }
  }
  way.erase(way.begin(), std::ranges::find(way, at));
  constexpr std::size_t shown = 12;
  std::string names = nodes_[at].value.name;  // in the direction of the data, and closed
  for (auto node = way.rbegin(); node != way.rend(); ++node) {
    if (static_cast<std::size_t>(node - way.rbegin()) == shown) {
      names += " -> ...";
      break;
    }
    names += " -> " + nodes_[*node].value.name;
  }
  json_["nodes"].fail(Errc::cycle, fmt::format("nodes feed each other: {}", names));
}

ReadFunction FunctionReader::run() {
  json_.check_keys({"name", "parameters", "nodes", "results"});
  function_.name = json_["name"].text();
  parameters();
  nodes();
  results();

  ReadFunction result;
  result.order = sorted();
  std::vector<ValueId> ids(numbers_.size());
  for (ValueId i = 0; i < function_.parameter_count; ++i) ids[i] = i;
  for (const std::size_t i : result.order) {
    Node& node = nodes_[i];
    const auto id = function_.add_value(std::move(node.value));
    ids[function_.parameter_count + i] = id;
    node.instruction.result = id;
    for (const std::uint32_t input : node.inputs) {
      node.instruction.operands.push_back(ids[input]);
    }
    function_.body.push_back(std::move(node.instruction));
  }
  for (const std::uint32_t number : results_) function_.results.push_back(ids[number]);
  result.function = std::move(function_);
  return result;
}

}  // namespace

ReadFunction read_function(const JsonValue& function, WordBudget& words) {
  return FunctionReader(function, words).run();
}

}  // namespace tenon::io::network
