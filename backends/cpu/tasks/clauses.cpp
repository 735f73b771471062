#include "../task.hpp"

#include <fmt/format.h>

namespace tenon::cpu {

std::optional<std::string> takes_everything(const Step&) { return std::nullopt; }

std::optional<std::string> needs_dtype(const Operand& operand, DType dtype, std::string_view what) {
  if (operand.shape.dtype() == dtype) return std::nullopt;
  return fmt::format("{} is {}, needs {}", what, to_string(operand.shape), tenon::name(dtype));
}

std::optional<std::string> needs_f32(const Step& step) {
  for (const Operand& input : step.inputs) {
    if (auto why = needs_dtype(input, DType::f32, "an input")) return why;
  }
  return needs_dtype(step.output, DType::f32, "the output");
}

std::optional<std::string> needs_dense(const Operand& operand, std::string_view what) {
  if (operand.is_contiguous()) return std::nullopt;
  return fmt::format("{} is strided", what);
}

std::optional<std::string> needs_dense_rows(const Operand& operand, std::string_view what) {
  const int rank = operand.shape.rank();
  if (rank == 0 || operand.shape[rank - 1] <= 1 || operand.shape.elements() == 0 ||
      operand.strides[static_cast<std::size_t>(rank - 1)] == block_bytes(operand.shape.dtype())) {
    return std::nullopt;
  }
  return fmt::format("the last axis of {} is strided", what);
}

std::int64_t row_size(const Shape& shape) noexcept {
  return shape.rank() == 0 ? 1 : shape[shape.rank() - 1];
}

std::int64_t row_count(const Shape& shape) noexcept {
  std::int64_t count = 1;
  for (int i = 0; i + 1 < shape.rank(); ++i) count *= shape[i];
  return count;
}

std::optional<std::int64_t> even_row_step(const Operand& operand) noexcept {
  const Shape& shape = operand.shape;
  if (shape.elements() == 0) return row_size(shape);
  const std::int64_t size = block_bytes(shape.dtype());
  std::optional<std::int64_t> step;  // bytes between rows, by the innermost axis that has several
  std::int64_t rows = 1;
  for (int i = shape.rank() - 2; i >= 0; --i) {
    if (shape[i] == 1) continue;
    const std::int64_t stride = operand.strides[static_cast<std::size_t>(i)];
    if (!step) {
      step = stride;
    } else if (stride != *step * rows) {
      return std::nullopt;
    }
    rows *= shape[i];
  }
  if (!step) step = row_size(shape) * size;
  if (*step % size != 0 || *step < 0) return std::nullopt;
  return *step / size;
}

std::optional<std::string> needs_even_rows(const Operand& operand, std::string_view what) {
  if (auto why = needs_dense_rows(operand, what)) return why;
  if (even_row_step(operand)) return std::nullopt;
  return fmt::format("rows of {} lie unevenly", what);
}

}  // namespace tenon::cpu
