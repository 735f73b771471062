#pragma once

#include <tenon/npu/isa/instruction.hpp>
#include <tenon/npu/isa/structures.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tenon::npu::isa {

/// A program: the instructions in the order they are fetched, HALT last, and what they need.
struct Program {
  std::vector<Instruction> instructions;
  std::uint32_t ocm_bytes = 0;
  std::uint32_t acc_bytes = 0;
};

/// The bytes that RUN is given: header and instructions, with their checksums. Errc::bad_argument
/// unless HALT stands last and only there; encode()'s errors with the index of the instruction.
std::vector<std::byte> assemble(const Program& program);

/// The inverse, for tools and tests. Errc::truncated, bad_magic, unsupported_version, corrupt.
Program parse_program(std::span<const std::byte> bytes);

/// Instruction `index` of assembled bytes, unchecked but for the size (Errc::truncated).
Word word_at(std::span<const std::byte> program, std::size_t index);

/// One line per instruction, "   12  conv l=3 ...".
std::string disassemble(const Program& program);

}  // namespace tenon::npu::isa
