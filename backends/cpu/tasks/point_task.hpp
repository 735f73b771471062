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

/// Every block of the output through a PointFunction: inputs in their compute type or as they are
/// stored; the output as it is stored, or narrowed from its compute type.
class PointTask final : public Task {
 public:
  PointTask(const Step& step, PointFunction function, Reader::As inputs, Reader::As output)
      : y_(step.output), op_(step.op), function_(function), count_(y_.shape.elements()) {
    for (const Operand& input : step.inputs) inputs_.emplace_back(input, y_.shape, inputs);
    narrows_ = output == Reader::As::computed && !is_computed_as_stored(y_.shape.dtype());
  }

  void run(const TaskContext& context) const noexcept override {
    const Range range = flat_share(context, count_);
    const std::int64_t unit = block_bytes(y_.shape.dtype());
    auto* y = context.pointer<std::byte>(y_);
    std::array<BlockBuffer, PointCall::max_inputs> buffers;
    BlockBuffer result;
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
  bool narrows_ = false;
};

inline std::unique_ptr<Task> point_task(const Step& step, PointFunction function,
                                        Reader::As inputs = Reader::As::computed,
                                        Reader::As output = Reader::As::computed) {
  return std::make_unique<PointTask>(step, function, inputs, output);
}

/// A PointFunction for each type that ops compute in.
struct PointFunctions {
  PointFunction f32, f64, i32, i64;
};

/// The one for the type that this output is computed in.
inline std::unique_ptr<Task> point_task(const Step& step, const PointFunctions& functions) {
  switch (compute_type(step.output.shape.dtype())) {
    case Compute::f32:
      return point_task(step, functions.f32);
    case Compute::f64:
      return point_task(step, functions.f64);
    case Compute::i32:
      return point_task(step, functions.i32);
    case Compute::i64:
      return point_task(step, functions.i64);
  }
  return nullptr;
}

}  // namespace tenon::cpu
