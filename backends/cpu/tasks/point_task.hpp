// Element-wise ops, for every element type and every stride.
#pragma once

#include "reader.hpp"

#include <tenon/op.hpp>

#include <algorithm>
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

/// Computes y[i] = f(x[0][i], ...), for any count if make_point_task is to take it. `op` has the attributes.
using PointFunction = void (*)(const PointCall& call, const OpInstance& op) noexcept;

/// A step that is computed block by block: inputs in their compute type or as they are stored; the
/// output as it is stored, or narrowed from its compute type.
struct PointStep {
  Step step;  ///< its inputs broadcast to the output as numpy's do
  PointFunction function;
  Reader::As inputs = Reader::As::computed;
  Reader::As output = Reader::As::computed;

  bool widens() const noexcept {
    return inputs == Reader::As::computed &&
           std::ranges::any_of(step.inputs, [](const Operand& input) {
             return !is_computed_as_stored(input.shape.dtype());
           });
  }
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

/// Elements that the function reads and writes where they lie, without blocks: it is called for all of them, or, where
/// operands broadcast, for rows of the axes that are dense or constant for every operand together.
class DensePointTask final : public PartwiseTask {
 public:
  explicit DensePointTask(const PointStep& point)
      : y_(point.step.output),
        op_(point.step.op),
        function_(point.function),
        inputs_(point.step.inputs.size()) {
    const int rank = y_.shape.rank();
    for (std::size_t n = 0; n < inputs_.size(); ++n) {
      Input& input = inputs_[n];
      input.operand = point.step.inputs[n];
      for (int i = 0; i < rank; ++i) {
        input.steps[static_cast<std::size_t>(i)] = broadcast_step(input.operand, i, rank);
      }
    }
    int inner_axis = rank;
    while (inner_axis > 0) {
      const auto axis = static_cast<std::size_t>(inner_axis - 1);
      const std::int64_t size = y_.shape[inner_axis - 1];
      if (size != 1) {
        if (!std::ranges::all_of(inputs_, [&](const Input& x) { return joins(x, axis); })) break;
        for (Input& input : inputs_) {
          if (input.inner < 0) input.inner = input.steps[axis] / unit(input);
        }
      }
      row_ *= size;
      --inner_axis;
    }
    for (Input& input : inputs_) {
      input.inner = std::max<std::int64_t>(input.inner, 0);
    }
    outer_axes_ = inner_axis;
    for (int i = 0; i < inner_axis; ++i) rows_ *= y_.shape[i];
  }

  /// Whether rows are worth a call each, and enough for so many threads; others are gathered to blocks.
  bool has_long_rows(int threads) const noexcept {
    constexpr std::int64_t short_row = 64;
    return rows_ == 1 || (row_ >= short_row && rows_ >= threads);
  }

  void run(const TaskContext& context) const noexcept override {
    Offsets offsets{};
    if (rows_ == 1) {
      const Range range = flat_share(context, row_);
      if (range.begin >= range.end) return;
      for (std::size_t n = 0; n < inputs_.size(); ++n) {
        offsets[n] = range.begin * inputs_[n].inner * unit(inputs_[n]);
      }
      compute(context, offsets, range.begin, range.end - range.begin);
      return;
    }
    const Range rows = context.share(rows_);
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      std::int64_t rest = row;
      offsets = {};
      for (int i = outer_axes_ - 1; i >= 0; --i) {
        const std::int64_t index = rest % y_.shape[i];
        rest /= y_.shape[i];
        for (std::size_t n = 0; n < inputs_.size(); ++n) {
          offsets[n] += index * inputs_[n].steps[static_cast<std::size_t>(i)];
        }
      }
      compute(context, offsets, row * row_, row_);
    }
  }

 private:
  struct Input {
    Operand operand;
    std::array<std::int64_t, max_rank> steps{};  ///< bytes along the axes of y
    std::int64_t inner = -1;                     ///< elements from one of a row to the next: 0 or 1
  };
  using Offsets = std::array<std::int64_t, PointCall::max_inputs>;

  static std::int64_t unit(const Input& input) { return block_bytes(input.operand.shape.dtype()); }
  static std::int64_t broadcast_step(const Operand& operand, int axis, int rank) {
    const int own = axis - (rank - operand.shape.rank());
    if (own < 0 || operand.shape[own] == 1) return 0;
    return operand.strides[static_cast<std::size_t>(own)];
  }

  /// Whether an axis continues what the inner axes have joined to a row.
  bool joins(const Input& input, std::size_t axis) const {
    const std::int64_t step = input.steps[axis];
    if (input.inner < 0) return step == 0 || step == unit(input);
    return step == input.inner * row_ * unit(input);
  }

  /// `count` results from the first-th on, of the elements at these offsets in bytes.
  void compute(const TaskContext& context, const Offsets& offsets, std::int64_t first,
               std::int64_t count) const noexcept {
    PointCall call{};
    for (std::size_t n = 0; n < inputs_.size(); ++n) {
      call.x[n] = context.pointer<const std::byte>(inputs_[n].operand) + offsets[n];
      call.step[n] = inputs_[n].inner;
    }
    call.y = context.pointer<std::byte>(y_) + first * block_bytes(y_.shape.dtype());
    call.count = count;
    function_(call, op_);
  }

  Operand y_;
  OpInstance op_;
  PointFunction function_;
  std::vector<Input> inputs_;
  std::int64_t row_ = 1, rows_ = 1;
  int outer_axes_ = 0;
};

inline std::unique_ptr<Task> make_point_task(const PointStep& point, Compiler& compiler) {
  if (!point.widens() && !point.narrows()) {
    auto task = std::make_unique<DensePointTask>(point);
    if (task->has_long_rows(compiler.threads())) return task;
  }
  return std::make_unique<PointTask>(point, compiler);
}

/// Kernel::make of a kernel whose Kernel::point is `point`.
template <PointStep (*point)(const Step& step)>
std::unique_ptr<Task> make_point_task(const Step& step, Compiler& compiler) {
  return make_point_task(point(step), compiler);
}

/// The kernel of `Op` that computes every step so.
template <class Op, PointStep (*point)(const Step& step)>
constexpr Kernel point_kernel() {
  return {op_def<Op>, takes_everything, make_point_task<point>, nullptr, point};
}

}  // namespace tenon::cpu
