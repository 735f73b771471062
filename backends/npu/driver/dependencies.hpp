// Tokens between the engines, found from what instructions touch.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <npu/isa/instruction.hpp>

namespace tenon::npu {

/// A memory that instructions of several engines touch. CVT's plain side is in the segments input
/// and output, which only ST touches.
enum class Space : std::uint8_t { ocm, acc, weight, ftmp, outside };

using TouchVisitor =
    std::function<void(Space space, std::uint64_t begin, std::uint64_t end, bool writes)>;

/// Calls `visit` with every range of bytes (rows, for ACC) that the instruction reads or writes;
/// ranges may be larger than what is touched, never smaller.
void for_each_touch(const isa::Instruction& instruction, const TouchVisitor& visit);

/// Sets the tokens of a program whose order of instructions is right when executed one by one: a
/// token wherever an engine touches what another one has touched before, one of them writing,
/// unless tokens that are there already order the two. HALT is not among the instructions.
void set_tokens(std::vector<isa::Instruction>& instructions);

}  // namespace tenon::npu
