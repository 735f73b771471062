// Sync tokens between the engines, from the memory that instructions access.
#pragma once

#include <tenon/npu/isa/instruction.hpp>

#include <cstdint>
#include <functional>
#include <vector>

namespace tenon::npu {

/// A memory that instructions of several engines access. CVT's plain side is in the segments input
/// and output, which only ST accesses.
enum class Space : std::uint8_t { ocm, acc, weight, ftmp, outside };

using AccessVisitor =
    std::function<void(Space space, std::uint64_t begin, std::uint64_t end, bool writes)>;

/// Calls `visit` with every range of bytes (rows, for ACC) that the instruction reads or writes;
/// ranges may be larger than what is accessed, never smaller.
void for_each_access(const isa::Instruction& instruction, const AccessVisitor& visit);

/// Inserts the sync tokens of a program that is correct when its instructions are executed one by
/// one: a token wherever two engines access the same line and one of them writes, unless earlier
/// tokens already order the two accesses. HALT is not among the instructions.
void set_tokens(std::vector<isa::Instruction>& instructions);

}  // namespace tenon::npu
