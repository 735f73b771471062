// Which memory an operand may access: for barriers and passes over steps.
#pragma once

#include <tenon/lowered.hpp>

#include <cstdint>
#include <vector>

namespace tenon::lowering {

/// Whether an operand lies in memory that threads share and steps may write to.
bool is_memory(const Operand& operand) noexcept;

/// The bytes that an operand may access, in the address space of its place's kind and index. An
/// operand that moves with a loop counts as all of its storage.
struct Access {
  Place::Kind kind;
  std::uint32_t index;
  ByteRange bytes;
};

Access access_of(const Operand& operand);

bool overlap(const Access& a, const Access& b) noexcept;
/// Whether two operands in memory may have bytes in common.
bool overlap(const Operand& a, const Operand& b);

/// What a step that is no loop writes: its output, and what a FusedPoints stores besides.
std::vector<Operand> outputs_of(const Step& step);

/// Whether a step, or one of a loop's, may write some of these bytes.
bool writes_to(const Step& step, const Access& access);
/// The same of reading or writing.
bool accesses(const Step& step, const Access& access);

}  // namespace tenon::lowering
