#include "graph/grad_impl.hpp"

#include <tenon/grad.hpp>
#include <tenon/ops/fill.hpp>

#include <map>
#include <unordered_map>

#include <fmt/format.h>

namespace tenon {
namespace {

/// A program's values recorded in a graph.
class Recorder {
 public:
  Recorder(const Program& program, Graph& graph) : program_(program), graph_(graph) {}

  void record_all() {
    const Function& main = program_.main();
    values_.resize(main.values.size());
    for (std::uint32_t i = 0; i < main.parameter_count; ++i) {
      const Value& value = main.values[i];
      if (!value.shape) refuse_untyped(value, {});
      values_[i] = graph_.input(value.name, *value.shape, nowhere_);
      named_.emplace(value.name, values_[i]);
    }
    for (const Instruction& instruction : main.body) {
      if (instruction.kind == Instruction::Kind::scope) {
        prefixes_[instruction.result] = full_name(instruction);
        continue;
      }
      if (instruction.kind == Instruction::Kind::repeat) {
        throw Error(
            Errc::unsupported, place_of(instruction.line),
            fmt::format("'{}' is of a loop with a condition, or a branch: a program's gradient is "
                        "computed of loops without one",
                        main.values[instruction.result].name));
      }
      if (instruction.kind != Instruction::Kind::op &&
          instruction.kind != Instruction::Kind::constant) {
        continue;  // a tuple, which only a result can be
      }
      values_[instruction.result] = record_one(main, instruction);
      lines_.emplace(&GraphAccess::node(values_[instruction.result]), instruction.line);
    }
  }

  const Tensor& value(ValueId id) const { return values_[id]; }

  Tensor named(const std::string& name) const {
    const auto known = named_.find(name);
    if (known != named_.end()) return known->second;
    throw Error(Errc::bad_reference, "gradient",
                fmt::format("the program has no input or constant '{}'", name));
  }

  std::string place_of(const Node& node) const {
    const auto line = lines_.find(&node);
    return line == lines_.end() ? program_.main().name : place_of(line->second);
  }

  /// "model.tenon:12:3", "model.py:12", a node of a model that was imported, or the name of the
  /// program's function.
  std::string place_of(const SourceLine& line) const {
    if (line.file.empty()) return program_.main().name;
    std::string place = line.file;
    if (line.line > 0) place += fmt::format(":{}", line.line);
    if (line.column > 0) place += fmt::format(":{}", line.column);
    return place;
  }

  /// What `call` returns; errors that have no place get this one.
  template <class Call>
  static auto placed(const std::string& place, Call&& call) {
    try {
      return std::forward<Call>(call)();
    } catch (const Error& error) {
      // of `nowhere_`: ":0", or ":0: op"
      if (!error.where().starts_with(to_string(std::source_location()))) throw;
      throw Error(error.code(), place, error.message());
    }
  }

 private:
  [[noreturn]] void refuse_untyped(const Value& value, const SourceLine& line) const {
    throw Error(Errc::bad_type, place_of(line),
                fmt::format("the type of '{}' is not stated", value.name));
  }

  /// The text of a constant or scope behind the prefix that its operand stands for.
  std::string full_name(const Instruction& instruction) const {
    if (instruction.operands.empty()) return instruction.text;
    const std::string& prefix = prefixes_.at(instruction.operands[0]);
    return prefix.empty() ? instruction.text : prefix + "." + instruction.text;
  }

  Tensor record_one(const Function& main, const Instruction& instruction) {
    if (instruction.kind == Instruction::Kind::constant) {
      const Value& value = main.values[instruction.result];
      const std::string name = full_name(instruction);
      const auto folded = program_.folded.find(name);
      if (!value.shape && folded == program_.folded.end()) {
        refuse_untyped(value, instruction.line);
      }
      const Shape& shape = value.shape ? *value.shape : folded->second.shape();
      const Tensor constant = graph_.constant(name, shape, nowhere_);
      named_.emplace(name, constant);
      return constant;
    }
    std::vector<Tensor> operands;
    for (const ValueId id : instruction.operands) operands.push_back(values_[id]);
    return placed(place_of(instruction.line), [&] {
      return record(*instruction.op.def(), instruction.op.attributes(), operands, nowhere_);
    });
  }

  const Program& program_;
  Graph& graph_;
  std::source_location nowhere_{};  ///< lines of programs are no lines of C++
  std::vector<Tensor> values_;
  std::unordered_map<ValueId, std::string> prefixes_;  ///< of scopes
  std::map<std::string, Tensor, std::less<>> named_;
  std::unordered_map<const Node*, SourceLine> lines_;
};

}  // namespace

Program gradient(const Program& program, std::span<const std::string> parameters) {
  Program flat = unroll(program);
  verify(flat);
  const Function& main = flat.main();
  // Backward programs are some times as long; a node takes a few hundred bytes.
  Graph graph(Graph::default_budget_bytes + main.body.size() * (std::size_t{64} << 10));
  const Graph::Recording active(graph);
  Recorder recorder(flat, graph);
  recorder.record_all();

  std::vector<Tensor> results, wanted;
  for (const ValueId id : main.results) results.push_back(recorder.value(id));
  for (const std::string& name : parameters) wanted.push_back(recorder.named(name));
  const Shape& loss = results.at(0).shape();
  if (loss.rank() != 0 || !is_floating(loss.dtype())) {
    throw Error(Errc::bad_argument, recorder.place_of(GraphAccess::node(results[0])),
                fmt::format("the program's first result '{}' is {}, not a floating scalar",
                            main.values[main.results[0]].name, to_string(loss)));
  }
  const Tensor one = scalar_like(results[0], 1, {});
  const auto gradients = Recorder::placed(main.name, [&] {
    return grad_placed({results.data(), 1}, {&one, 1}, wanted, {},
                       [&](const Node& node) { return recorder.place_of(node); });
  });
  results.insert(results.end(), gradients.begin(), gradients.end());
  Program made = graph.program(results, program.entry);
  made.name = program.name;
  made.weights_file = program.weights_file;
  made.weights_sha256 = program.weights_sha256;
  made.folded = flat.folded;
  return made;
}

}  // namespace tenon
