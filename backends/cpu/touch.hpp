// Which memory an operand may touch: what barriers and passes over steps ask.
#pragma once

#include <tenon/lowered.hpp>

#include <cstdint>

namespace tenon::cpu {

/// Whether an operand lies in memory that threads share and steps may write to.
bool is_memory(const Operand& operand) noexcept;

/// Bytes that an operand may touch, in the address space of its place's kind and index. What moves
/// with a loop counts as the whole of its storage.
struct Touch {
  Place::Kind kind;
  std::uint32_t index;
  ByteRange bytes;
};

Touch touch_of(const Operand& operand);

bool overlap(const Touch& a, const Touch& b) noexcept;
/// Whether two operands in memory may have bytes in common.
bool overlap(const Operand& a, const Operand& b);

/// Whether a step, or one of a loop's, may write some of these bytes.
bool writes_to(const Step& step, const Touch& touch);

}  // namespace tenon::cpu
