// Executes programs of docs/npu-isa.md, one instruction after the other.
#pragma once

#include "memory.hpp"

#include <tenon/npu/isa/program.hpp>

#include <array>
#include <cstdint>
#include <span>

namespace own {

/// Why the device stopped.
struct Stop {
  isa::ErrorCode error;
  std::uint32_t pc = 0;
  std::uint64_t address = 0;
};
/// An instruction waits for a token that none before it gave. Programs of the driver never do.
struct Stuck {};

struct Window {
  std::uint64_t base = 0, size = 0;
};
using Segments = std::array<Window, 5>;

class Interpreter {
 public:
  Interpreter(Memory& memory, const Segments& segments) : memory_(memory), segments_(segments) {}

  /// Runs a program with its header. Throws Stop or Stuck. Returns how many instructions it ran.
  std::uint32_t run(std::span<const std::byte> program, std::uint32_t& fence);

 private:
  void take_tokens(const isa::Instruction& instruction);
  void give_tokens(const isa::Instruction& instruction);

  void execute(const isa::Load& i);
  void execute(const isa::LoadP& i);
  void execute(const isa::Gemm& i);
  void execute(const isa::Conv& i);
  void execute(const isa::Depthwise& i);
  void execute(const isa::Requant& i);
  void execute(const isa::Elementwise& i);
  void execute(const isa::Pool& i);
  void execute(const isa::Store& i);
  void execute(const isa::Convert& i);
  void execute(const isa::Barrier&) {}
  void execute(const isa::Fence&) {}
  void execute(const isa::Halt&) {}

  /// The bytes at a place in OCM, ACC or a segment, all of them inside.
  std::byte* ocm(std::uint64_t byte, std::uint64_t size);
  std::int8_t& lane(std::uint64_t byte) { return *reinterpret_cast<std::int8_t*>(ocm(byte, 1)); }
  std::int32_t& acc(std::uint64_t row, std::uint64_t lane);
  std::byte* bytes(std::uint32_t place, std::uint64_t offset, std::uint64_t size);
  isa::QuantRecord record(const std::byte* at) const;

  /// The first pass over an instruction writes nothing: one that stops has changed nothing.
  template <class Value>
  void put(Value& to, Value value) {
    if (!dry_) to = value;
  }

  Memory& memory_;
  const Segments& segments_;
  std::array<std::array<int, 3>, 3> tokens_{};  ///< given by the first engine to the second
  std::uint32_t pc_ = 0;
  bool dry_ = false;
};

}  // namespace own
