// Computing what a builder records, with the references of the ops.
#pragma once

#include "support/op_testing.hpp"
#include "support/small_graph.hpp"

#include <tenon/graph.hpp>

#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace tenon::testing {

/// A graph whose inputs have values.
class ValuedGraph {
 public:
  /// An input of the value's type and tags.
  Tensor input(const HostBuffer& value) {
    const std::string name = "in" + std::to_string(values_.size());
    values_.emplace(name, value);
    return graph_.input(name, value.shape());
  }

  /// What `result` comes to. Straight-line graphs only.
  HostBuffer value(const Tensor& result) const {
    const Program program = graph_.program(std::span(&result, 1));
    const Function& function = program.main();
    std::vector<HostBuffer> known(function.values.size());
    for (std::uint32_t i = 0; i < function.parameter_count; ++i) {
      const HostBuffer& value = values_.at(function.values[i].name);
      known[i] = value.with_shape(value.shape().without_tags());  // programs have none
    }
    for (const Instruction& instruction : function.body) {
      if (instruction.kind != Instruction::Kind::op) throw std::logic_error("not a straight line");
      std::vector<HostBuffer> operands;
      for (const ValueId id : instruction.operands) operands.push_back(known[id]);
      known[instruction.result] = run_reference(instruction.op, operands);
    }
    return known[function.results[0]];
  }

 private:
  Graph graph_{8 * small_graph_bytes};
  std::map<std::string, HostBuffer> values_;
};

}  // namespace tenon::testing
