// Rows to block types and back.
#include "lanes.hpp"

#include <tenon/ops/quantize.hpp>
#include <tenon/quant.hpp>

namespace tenon::cpu {
namespace {

/// What every block's size divides.
constexpr std::int64_t max_block = 256;

class QuantizeTask final : public PartwiseTask {
 public:
  explicit QuantizeTask(const Step& step)
      : x_(step.inputs[0]), y_(step.output), rows_(x_, x_.shape.rank() - 1) {}
  void run(const TaskContext& context) const noexcept override {
    const DType dtype = y_.shape.dtype();
    const std::int64_t row_bytes = rows_.size() / block_size(dtype) * block_bytes(dtype);
    const auto* x = context.pointer<const std::byte>(x_);
    auto* y = context.pointer<std::byte>(y_);
    const Range range = context.share(rows_.count());
    for (std::int64_t row = range.begin; row < range.end; ++row) {
      for (std::int64_t i = 0; i < rows_.size(); i += max_block) {
        const std::int64_t count = std::min(max_block, rows_.size() - i);
        BlockBuffer buffer;
        const void* values = rows_.read(x + rows_.offset(row), i, count, buffer);
        quantize(dtype, static_cast<const float*>(values),
                 y + row * row_bytes + i / block_size(dtype) * block_bytes(dtype), count);
      }
    }
  }

 private:
  Operand x_, y_;
  Lanes rows_;
};

class DequantizeTask final : public PartwiseTask {
 public:
  explicit DequantizeTask(const Step& step)
      : x_(step.inputs[0]), y_(step.output), rows_(row_count(x_.shape)) {
    for (int i = 0; i + 1 < x_.shape.rank(); ++i) {
      outer_.push(x_.shape[i], x_.strides[static_cast<std::size_t>(i)]);
    }
  }
  void run(const TaskContext& context) const noexcept override {
    const std::int64_t size = row_size(x_.shape);
    const DType from = x_.shape.dtype(), to = y_.shape.dtype();
    const auto* x = context.pointer<const std::byte>(x_);
    auto* y = context.pointer<std::byte>(y_);
    const Range rows = context.share(rows_);
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      const std::byte* blocks = x + outer_.offset(row);
      for (std::int64_t i = 0; i < size; i += max_block) {
        const std::int64_t count = std::min(max_block, size - i);
        std::byte* const out = y + (row * size + i) * block_bytes(to);
        const std::byte* const in = blocks + i / block_size(from) * block_bytes(from);
        if (to == DType::f32) {
          dequantize(from, in, reinterpret_cast<float*>(out), count);
          continue;
        }
        float values[max_block];
        dequantize(from, in, values, count);
        if (to != DType::f64) {
          narrow(to, values, out, count);
        } else {
          for (std::int64_t j = 0; j < count; ++j) reinterpret_cast<double*>(out)[j] = values[j];
        }
      }
    }
  }

 private:
  Operand x_, y_;
  std::int64_t rows_;
  Loops outer_;
};

}  // namespace

extern const Kernel quantize_kernel, dequantize_kernel;
constinit const Kernel quantize_kernel{op_def<Quantize>, takes_everything,
                                       [](const Step& step, Compiler&) -> std::unique_ptr<Task> {
                                         return std::make_unique<QuantizeTask>(step);
                                       }};
constinit const Kernel dequantize_kernel{op_def<Dequantize>, takes_everything,
                                         [](const Step& step, Compiler&) -> std::unique_ptr<Task> {
                                           return std::make_unique<DequantizeTask>(step);
                                         }};

}  // namespace tenon::cpu
