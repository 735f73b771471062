#include "graph/grad_impl.hpp"
#include "program/unrolled.hpp"

#include <tenon/call.hpp>
#include <tenon/grad.hpp>
#include <tenon/ops/binary.hpp>
#include <tenon/ops/fill.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <unordered_map>

#include <fmt/format.h>

namespace tenon {
namespace {

/// Whether a function, or one that it calls or repeats, names constants by the scope that it gets:
/// weights of numbered layers. `seen`: functions that have been looked at.
bool uses_scope(const Program& program, const std::string& name, std::set<std::string>& seen) {
  if (!seen.insert(name).second) return false;
  return std::ranges::any_of(program.find(name)->body, [&](const Instruction& instruction) {
    if (instruction.kind == Instruction::Kind::constant ||
        instruction.kind == Instruction::Kind::scope) {
      return !instruction.operands.empty();
    }
    return !instruction.function.empty() && uses_scope(program, instruction.function, seen);
  });
}

bool uses_scope(const Program& program, const std::string& name) {
  std::set<std::string> seen;
  return uses_scope(program, name, seen);
}

/// Without its loops whose functions have weights of numbered layers, and verified.
Program flattened(const Program& program) {
  Program flat = unroll(program, max_unrolled, [&](const Instruction& repeat) {
    return repeat.count > 1 && !uses_scope(program, repeat.function);
  });
  verify(flat);
  return flat;
}

/// Whether a tensor may stand for a value of a declared type, of which symbols are any sizes.
bool fits(const Shape& declared, const Shape& given) {
  if (declared.rank() != given.rank() || declared.dtype() != given.dtype()) return false;
  for (int axis = 0; axis < given.rank(); ++axis) {
    if (is_static(declared[axis]) && is_static(given[axis]) && declared[axis] != given[axis])
      return false;
  }
  return true;
}

/// A program's values recorded in a graph, its loops as loops.
class Recorder {
 public:
  /// `where`: of what is recorded; lines of programs are no lines of C++.
  Recorder(const Program& program, Graph& graph, const std::source_location& where = {})
      : program_(program), graph_(graph), where_(where) {}

  void record_all() {
    const Function& main = program_.main();
    std::vector<Tensor> inputs;
    for (std::uint32_t i = 0; i < main.parameter_count; ++i) {
      const Value& value = main.values[i];
      if (!value.shape) refuse_untyped(value, {});
      inputs.push_back(graph_.input(value.name, *value.shape, where_));
      named_.emplace(value.name, inputs.back());
    }
    record_with(inputs, {});
  }

  /// With these tensors for the parameters, and for the constants of these names.
  void record_with(std::span<const Tensor> inputs, const std::map<std::string, Tensor>& weights) {
    weights_ = &weights;
    std::vector<Recorded> arguments;
    for (const Tensor& input : inputs) arguments.push_back({input, {}});
    values_ = record_body(program_.main(), std::move(arguments));
  }

  const Tensor& value(ValueId id) const { return values_[id].tensor; }

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
  auto placed(const std::string& place, Call&& call) const {
    try {
      return std::forward<Call>(call)();
    } catch (const Error& error) {
      // of `where_`: ":0", or ":0: op"
      if (!error.where().starts_with(to_string(where_))) throw;
      throw Error(error.code(), place, error.message());
    }
  }

 private:
  [[noreturn]] void refuse_untyped(const Value& value, const SourceLine& line) const {
    throw Error(Errc::bad_type, place_of(line),
                fmt::format("the type of '{}' is not stated", value.name));
  }

  /// A value, or the items of a tuple.
  struct Recorded {
    Tensor tensor;
    std::vector<Tensor> items;
  };

  /// The values of a function, of which the first are its arguments.
  std::vector<Recorded> record_body(const Function& function, std::vector<Recorded> values) {
    values.resize(function.values.size());
    for (const Instruction& instruction : function.body) {
      if (++recorded_ > max_unrolled) {
        throw Error(Errc::limit_exceeded, program_.name,
                    fmt::format("with its functions inlined, it has more than {} instructions",
                                max_unrolled));
      }
      values[instruction.result] = record_one(function, instruction, values);
    }
    return values;
  }

  Recorded record_one(const Function& function, const Instruction& instruction,
                      const std::vector<Recorded>& values) {
    const auto tensors = [&](std::size_t first) {
      std::vector<Tensor> operands;
      for (std::size_t i = first; i < instruction.operands.size(); ++i) {
        operands.push_back(values[instruction.operands[i]].tensor);
      }
      return operands;
    };
    switch (instruction.kind) {
      case Instruction::Kind::scope:
        if (&function == &program_.main()) {
          prefixes_[instruction.result] = full_name(instruction);
        }
        return {};
      case Instruction::Kind::pack:
        return {{}, tensors(0)};
      case Instruction::Kind::item: {
        const Recorded& tuple = values[instruction.operands[0]];
        return {tuple.items.at(static_cast<std::size_t>(instruction.index)), {}};
      }
      case Instruction::Kind::call: {
        const Function& callee = *program_.find(instruction.function);
        std::vector<Recorded> arguments;
        for (const ValueId id : instruction.operands) arguments.push_back(values[id]);
        std::vector<Tensor> results = record_function(callee, std::move(arguments));
        if (results.size() == 1) return {results[0], {}};
        return {{}, std::move(results)};
      }
      case Instruction::Kind::repeat:
        return {{}, record_loop(instruction, values[instruction.operands[0]].items, tensors(2))};
      case Instruction::Kind::constant:
        return {record_constant(function, instruction), {}};
      case Instruction::Kind::op:
        break;
    }
    const Tensor made = placed(place_of(instruction.line), [&] {
      return record(*instruction.op.def(), instruction.op.attributes(), tensors(0), where_);
    });
    lines_.emplace(&GraphAccess::node(made), instruction.line);
    return {made, {}};
  }

  std::vector<Tensor> record_function(const Function& function, std::vector<Recorded> arguments) {
    const std::vector<Recorded> values = record_body(function, std::move(arguments));
    std::vector<Tensor> results;
    for (const ValueId id : function.results) results.push_back(values[id].tensor);
    return results;
  }

  std::vector<Tensor> record_loop(const Instruction& instruction, const std::vector<Tensor>& carry,
                                  const std::vector<Tensor>& extras) {
    const Function& callee = *program_.find(instruction.function);
    const std::string place = place_of(instruction.line);
    if (uses_scope(program_, callee.name)) {
      throw Error(Errc::unsupported, place,
                  fmt::format("the gradient of a loop with a condition whose function '{}' has "
                              "weights of numbered layers",
                              callee.name));
    }
    return placed(place, [&] {
      RepeatRecorder recorder(carry, where_);
      const RepeatRecorder::Frame frame = recorder.begin({});
      std::vector<Recorded> arguments;
      for (const Tensor& tensor : frame.carry) arguments.push_back({tensor, {}});
      Tensor index = frame.index;
      if (instruction.first != 0) {
        index =
            add(index, scalar_like(index, static_cast<double>(instruction.first), where_), where_);
      }
      arguments.push_back({index, {}});
      arguments.emplace_back();  // the scope
      for (const Tensor& extra : extras) arguments.push_back({extra, {}});
      recorder.end(record_function(callee, std::move(arguments)), instruction.count,
                   instruction.condition);
      std::vector<Tensor> items = recorder.finish();
      lines_.emplace(GraphAccess::node(items.at(0)).inputs[0], instruction.line);
      return items;
    });
  }

  /// The text of a constant or scope behind the prefix that its operand stands for.
  std::string full_name(const Instruction& instruction) const {
    if (instruction.operands.empty()) return instruction.text;
    const std::string& prefix = prefixes_.at(instruction.operands[0]);
    return prefix.empty() ? instruction.text : prefix + "." + instruction.text;
  }

  Tensor record_constant(const Function& function, const Instruction& instruction) {
    const Value& value = function.values[instruction.result];
    const std::string name = full_name(instruction);
    const auto folded = program_.folded.find(name);
    if (!value.shape && folded == program_.folded.end()) refuse_untyped(value, instruction.line);
    const Shape& shape = value.shape ? *value.shape : folded->second.shape();
    const auto given = weights_->find(name);
    if (given != weights_->end()) {
      const Shape& type = given->second.shape(where_);
      if (fits(shape, type)) return given->second;
      throw Error(Errc::shape_mismatch, fmt::format("{}: call", to_string(where_)),
                  fmt::format("weight '{}' is {}, the program's is {}", name, to_string(type),
                              to_string(shape)));
    }
    const Tensor constant = graph_.constant(name, shape, where_);
    named_.emplace(name, constant);
    lines_.emplace(&GraphAccess::node(constant), instruction.line);
    return constant;
  }

  const Program& program_;
  Graph& graph_;
  std::source_location where_;
  const std::map<std::string, Tensor>* weights_ = nullptr;
  std::vector<Recorded> values_;                       ///< of the main function
  std::size_t recorded_ = 0;                           ///< instructions
  std::unordered_map<ValueId, std::string> prefixes_;  ///< of its scopes
  std::map<std::string, Tensor, std::less<>> named_;
  std::unordered_map<const Node*, SourceLine> lines_;
};

}  // namespace

Program gradient(const Program& program, std::span<const std::string> parameters) {
  const Program flat = flattened(program);
  const Function& main = flat.main();
  // Backward programs are some times as long; a node takes a few hundred bytes.
  std::size_t instructions = 0;
  for (const Function& function : flat.functions) instructions += function.body.size();
  Graph graph(Graph::default_budget_bytes + instructions * (std::size_t{64} << 10));
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
  const auto gradients = recorder.placed(main.name, [&] {
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

std::vector<Tensor> call(Graph& graph, const Program& program, std::span<const Tensor> inputs,
                         const std::map<std::string, Tensor>& weights,
                         const std::source_location& where) {
  const std::string place = fmt::format("{}: call", to_string(where));
  const Program flat = flattened(program);
  const Function& main = flat.main();
  if (inputs.size() != main.parameter_count) {
    throw Error(Errc::bad_argument, place,
                fmt::format("{} inputs for '{}', which has {} parameters", inputs.size(),
                            program.name, main.parameter_count));
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Value& value = main.values[i];
    const Shape& given = inputs[i].shape(where);
    if (!value.shape || fits(*value.shape, given)) continue;
    throw Error(Errc::shape_mismatch, place,
                fmt::format("input '{}' is {}, the program's is {}", value.name, to_string(given),
                            to_string(*value.shape)));
  }
  const std::vector<std::string> known = constant_names(program);
  for (const auto& [name, tensor] : weights) {
    if (std::ranges::find(known, name) != known.end()) continue;
    throw Error(Errc::bad_argument, place, fmt::format("the program has no constant '{}'", name));
  }
  const Graph::Recording active(graph);
  Recorder recorder(flat, graph, where);
  recorder.record_with(inputs, weights);
  std::vector<Tensor> results;
  for (const ValueId id : main.results) results.push_back(recorder.value(id));
  return results;
}

}  // namespace tenon
