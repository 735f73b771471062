// What tasks of recurrences over steps share.
#pragma once

#include "../recurrence/recurrence_kernels.hpp"
#include "real.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>

namespace tenon::cpu {

/// The steps that each row of a recurrence has.
class RowLengths {
 public:
  RowLengths(const std::optional<Operand>& lengths, std::int64_t rows, std::int64_t steps)
      : lengths_(lengths), rows_(rows), steps_(steps) {}

  std::int64_t of(const TaskContext& context, std::int64_t row) const noexcept {
    if (!lengths_) return steps_;
    return *reinterpret_cast<const std::int32_t*>(context.pointer<const std::byte>(*lengths_) +
                                                  row * lengths_->strides[0]);
  }
  /// Whether all are within [0, steps]; else reports the first that is not.
  bool are_valid(const TaskContext& context, const char* what) const noexcept {
    for (std::int64_t row = 0; row < rows_; ++row) {
      const std::int64_t length = of(context, row);
      if (length >= 0 && length <= steps_) continue;
      context.fault.report(Errc::out_of_range, what, length, steps_ + 1, row);
      return false;
    }
    return true;
  }

 private:
  std::optional<Operand> lengths_;
  std::int64_t rows_, steps_;
};

/// Elements from one place along an axis to the next.
inline std::int64_t element_stride(const Operand& operand, std::size_t axis) noexcept {
  return operand.strides[axis] / block_bytes(operand.shape.dtype());
}

/// Writes zeros for the steps [length, steps) and the last states [states, vector's lanes] behind
/// them, at lanes of the result y [steps + states, width].
template <class T>
void finish_recurrence(T* y, std::int64_t width, std::int64_t lanes, std::int64_t length,
                       std::int64_t steps, const T* h, std::int64_t states) noexcept {
  for (std::int64_t s = length; s < steps; ++s) std::fill_n(y + s * width, lanes, T{});
  for (std::int64_t n = 0; n < states; ++n) {
    std::copy_n(h + n * recurrence_kernels<T>().lanes, lanes, y + (steps + n) * width);
  }
}

}  // namespace tenon::cpu
