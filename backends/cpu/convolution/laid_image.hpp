#pragma once

#include "../task.hpp"
#include "convolution.hpp"
#include "plan.hpp"

#include <cstdint>

namespace tenon::cpu {

/// Where a convolution reads its image: in place, or laid into scratch memory by a task before it,
/// channels last and the zeros beside it.
class LaidImage {
 public:
  static LaidImage in_place() { return {}; }
  /// Asks for the task, and turns the plan to what it makes.
  static LaidImage ask(const Convolution& conv, ConvolutionPlan& plan, Compiler& compiler);

  const float* at(const TaskContext& context, const Operand& x) const noexcept {
    return offset_ < 0 ? context.pointer<const float>(x)
                       : reinterpret_cast<const float*>(context.scratch(offset_));
  }

 private:
  std::int64_t offset_ = -1;
};

}  // namespace tenon::cpu
