// What tasks that compute in f32 or in f64 share.
#pragma once

#include "../task.hpp"

#include <memory>
#include <optional>
#include <string>

namespace tenon::cpu {

inline bool is_f64(const Step& step) { return step.inputs[0].shape.dtype() == DType::f64; }

/// Every input and the output are f32, or every one is f64.
inline std::optional<std::string> needs_one_real(const Step& step) {
  if (!is_f64(step)) return needs_f32(step);
  for (const Operand& input : step.inputs) {
    if (auto why = needs_dtype(input, DType::f64, "an input")) return why;
  }
  return needs_dtype(step.output, DType::f64, "the output");
}

/// Kernel::make of a task that is a template of the type it computes in.
template <template <class> class TaskOf>
std::unique_ptr<Task> make_real_task(const Step& step, Compiler& compiler) {
  if (is_f64(step)) return make_task<TaskOf<double>>(step, compiler);
  return make_task<TaskOf<float>>(step, compiler);
}

}  // namespace tenon::cpu
