#include "lanes.hpp"

#include "array/transpose.hpp"

#include <algorithm>
#include <cstring>

namespace tenon::cpu {

Lanes::Lanes(const Operand& operand, int axis)
    : dtype_(operand.shape.dtype()),
      unit_(block_bytes(dtype_)),
      computed_unit_(compute_bytes(compute_type(dtype_))),
      size_(operand.shape[axis]),
      step_(size_ == 1 ? unit_ : operand.strides[static_cast<std::size_t>(axis)]) {
  for (int i = 0; i < operand.shape.rank(); ++i) {
    if (i == axis) continue;
    count_ *= operand.shape[i];
    outer_.push(operand.shape[i], operand.strides[static_cast<std::size_t>(i)]);
  }
}

std::int64_t Lanes::offset(std::int64_t i) const noexcept { return outer_.offset(i); }

bool Lanes::is_direct() const noexcept { return step_ == unit_ && is_computed_as_stored(dtype_); }

std::int64_t Lanes::adjacent() const noexcept {
  if (outer_.rank == 0) return 1;
  const auto last = static_cast<std::size_t>(outer_.rank - 1);
  return outer_.steps[last] == unit_ ? std::max<std::int64_t>(outer_.sizes[last], 1) : 1;
}

bool Lanes::lie_close() const noexcept {
  return step_ == unit_ &&
         (outer_.rank == 0 || (outer_.rank == 1 && outer_.steps[0] == size_ * unit_));
}

const void* Lanes::read(const std::byte* lane, std::int64_t first, std::int64_t count,
                        BlockBuffer& buffer) const noexcept {
  const std::byte* from = lane + first * step_;
  if (is_direct()) return from;
  if (step_ == unit_) {
    widen(dtype_, from, buffer.bytes, count);
    return buffer.bytes;
  }
  BlockBuffer stored;
  const bool converts = !is_computed_as_stored(dtype_);
  copy_run(from, step_, unit_, count, converts ? stored.bytes : buffer.bytes);
  if (converts) widen(dtype_, stored.bytes, buffer.bytes, count);
  return buffer.bytes;
}

void Lanes::read_all(const std::byte* lane, std::byte* to) const noexcept {
  if (step_ == unit_) return widen(dtype_, lane, to, size_);
  for (std::int64_t i = 0; i < size_; i += block_elements) {
    const std::int64_t count = std::min(block_elements, size_ - i);
    BlockBuffer buffer;
    std::memcpy(to + i * computed_unit_, read(lane, i, count, buffer),
                static_cast<std::size_t>(count * computed_unit_));
  }
}

void Lanes::write_all(const std::byte* from, std::byte* lane) const noexcept {
  if (step_ == unit_) return narrow(dtype_, from, lane, size_);
  for (std::int64_t i = 0; i < size_; i += block_elements) {
    const std::int64_t count = std::min(block_elements, size_ - i);
    BlockBuffer buffer;
    narrow(dtype_, from + i * computed_unit_, buffer.bytes, count);
    spread_run(buffer.bytes, unit_, count, lane + i * step_, step_);
  }
}

void Lanes::read_close(const std::byte* lane, std::int64_t count, std::byte* to) const noexcept {
  widen(dtype_, lane, to, count * size_);
}

void Lanes::write_close(const std::byte* from, std::int64_t count, std::byte* lane) const noexcept {
  narrow(dtype_, from, lane, count * size_);
}

void Lanes::read_adjacent(const std::byte* lane, std::int64_t count, std::byte* to,
                          std::int64_t step) const noexcept {
  if (is_computed_as_stored(dtype_)) return transpose(lane, step_, to, step, count, size_, unit_);
  BlockBuffer turned;
  const std::int64_t at_once = static_cast<std::int64_t>(sizeof turned) / (count * unit_);
  for (std::int64_t i = 0; i < size_; i += at_once) {
    const std::int64_t some = std::min(at_once, size_ - i);
    transpose(lane + i * step_, step_, turned.bytes, some * unit_, count, some, unit_);
    for (std::int64_t r = 0; r < count; ++r) {
      widen(dtype_, turned.bytes + r * some * unit_, to + r * step + i * computed_unit_, some);
    }
  }
}

void Lanes::write_adjacent(const std::byte* from, std::int64_t step, std::int64_t count,
                           std::byte* lane) const noexcept {
  if (is_computed_as_stored(dtype_)) return transpose(from, step, lane, step_, size_, count, unit_);
  BlockBuffer narrowed;
  const std::int64_t at_once = static_cast<std::int64_t>(sizeof narrowed) / (count * unit_);
  for (std::int64_t i = 0; i < size_; i += at_once) {
    const std::int64_t some = std::min(at_once, size_ - i);
    for (std::int64_t r = 0; r < count; ++r) {
      narrow(dtype_, from + r * step + i * computed_unit_, narrowed.bytes + r * some * unit_, some);
    }
    transpose(narrowed.bytes, some * unit_, lane + i * step_, step_, some, count, unit_);
  }
}

}  // namespace tenon::cpu
