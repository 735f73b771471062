// Element-wise ops, for every element type and every stride.
#pragma once

#include "reader.hpp"

#include <tenon/op.hpp>

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

namespace tenon::cpu {

/// One call of a kernel: input i is x[i], which steps by step[i] (0 or 1) elements; y is dense.
struct PointCall {
  static constexpr int max_inputs = 3;
  const void* x[max_inputs];
  std::int64_t step[max_inputs];
  void* y;
  std::int64_t count;
};

/// Computes y[i] = f(x[0][i], ...). `op` has the attributes.
using PointFunction = void (*)(const PointCall& call, const OpInstance& op) noexcept;

/// A step that is computed block by block: inputs in their compute type or as they are stored; the
/// output as it is stored, or narrowed from its compute type.
struct PointStep {
  Step step;  ///< its inputs broadcast to the output as numpy's do
  PointFunction function;
  Reader::As inputs = Reader::As::computed;
  Reader::As output = Reader::As::computed;

  bool narrows() const noexcept {
    return output == Reader::As::computed && !is_computed_as_stored(step.output.shape.dtype());
  }
};

/// A PointFunction for each type that ops compute in.
struct PointFunctions {
  PointFunction f32, f64, i32, i64;
};

/// With the function for the type that this output is computed in.
inline PointStep point_step(const Step& step, const PointFunctions& functions) {
  switch (compute_type(step.output.shape.dtype())) {
    case Compute::f32:
      return {step, functions.f32};
    case Compute::f64:
      return {step, functions.f64};
    case Compute::i32:
      return {step, functions.i32};
    case Compute::i64:
      break;
  }
  return {step, functions.i64};
}

/// Every block of the output through the function.
class PointTask final : public PartwiseTask {
 public:
  PointTask(const PointStep& point, Compiler& compiler)
      : y_(point.step.output),
        op_(point.step.op),
        function_(point.function),
        count_(y_.shape.elements()),
        narrows_(point.narrows()) {
    for (const Operand& input : point.step.inputs) {
      inputs_.emplace_back(input, y_.shape, point.inputs, compiler);
    }
  }

  void run(const TaskContext& context) const noexcept override {
    const Range range = flat_share(context, count_);
    const std::int64_t unit = block_bytes(y_.shape.dtype());
    auto* y = context.pointer<std::byte>(y_);
    std::array<BlockBuffer, PointCall::max_inputs> buffers;
    BlockBuffer result;
    for (const Reader& input : inputs_) input.begin(context);
    for (std::int64_t first = range.begin; first < range.end; first += block_elements) {
      PointCall call{};
      call.count = std::min(block_elements, range.end - first);
      for (std::size_t i = 0; i < inputs_.size(); ++i) {
        const auto block = inputs_[i].read(context, first, call.count, buffers[i]);
        call.x[i] = block.data;
        call.step[i] = block.step;
      }
      call.y = narrows_ ? result.bytes : y + first * unit;
      function_(call, op_);
      if (narrows_) narrow(y_.shape.dtype(), result.bytes, y + first * unit, call.count);
    }
  }

 private:
  std::vector<Reader> inputs_;
  Operand y_;
  OpInstance op_;
  PointFunction function_;
  std::int64_t count_;
  bool narrows_;
};

/// Kernel::make of a kernel whose Kernel::point is `point`.
template <PointStep (*point)(const Step& step)>
std::unique_ptr<Task> make_point_task(const Step& step, Compiler& compiler) {
  return std::make_unique<PointTask>(point(step), compiler);
}

/// The kernel of `Op` that computes every step so.
template <class Op, PointStep (*point)(const Step& step)>
constexpr Kernel point_kernel() {
  return {op_def<Op>, takes_everything, make_point_task<point>, nullptr, point};
}

}  // namespace tenon::cpu
