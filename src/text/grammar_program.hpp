#pragma once

#include "grammar_syntax.hpp"

#include <array>
#include <cstdint>
#include <vector>

namespace tenon::text {

using ByteSet = std::array<std::uint64_t, 4>;  ///< a bit for each byte

/// A grammar as instructions that read bytes. Characters are spelled out as the bytes of their UTF-8, so that
/// a text may stop and go on between any two bytes.
struct GrammarProgram {
  enum class Op : std::uint8_t {
    bytes,  ///< reads a byte of sets[a]
    call,   ///< goes on at a, up to its end, then behind this instruction
    split,  ///< goes on at a and at b
    jump,   ///< goes on at a
    end,    ///< of what was called, or of the text
  };
  struct Instruction {
    Op op = Op::end;
    std::uint32_t a = 0;
    std::uint32_t b = 0;
  };

  std::vector<Instruction> code;
  std::vector<ByteSet> sets;
  std::uint32_t start = 0;

  bool reads(std::uint32_t at, unsigned char byte) const noexcept {
    return ((sets[code[at].a][byte >> 6] >> (byte & 63)) & 1) != 0;
  }
};

/// Errors: cycle, limit_exceeded; see Grammar::parse().
GrammarProgram compile_grammar(const GrammarSyntax& syntax);

}  // namespace tenon::text
