// Which step computes the value that another reads, found from the bytes that both access.
#pragma once

#include <tenon/lowered.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace tenon::npu {

inline constexpr int no_step = -1;

/// Where an operand's bytes come from.
struct Origin {
  int step = no_step;  ///< the one step of the run that wrote them all, or none
  bool mixed = false;  ///< several steps wrote parts of them
};

struct ValueFlow {
  std::vector<std::vector<Origin>> inputs;  ///< per step and operand
  std::vector<int> uses;                    ///< per step: operands of the run that read it
  std::vector<bool> leaves;                 ///< per step: its bytes are read outside of the run
};

ValueFlow value_flow(const Lowered& program, std::span<const Step> steps);

/// The value whose bytes an operand holds when `steps` begin: an input of the program, or what a
/// step before them made. No name when it is not one value's.
struct OuterValue {
  std::string name;
  Operand operand;
};
OuterValue outer_value(const Lowered& program, std::span<const Step> steps, const Operand& operand);

}  // namespace tenon::npu
