#pragma once

#include <tenon/npu/isa/caps.hpp>
#include <tenon/npu/isa/instruction.hpp>

#include <cstdint>

namespace tenon::npu::isa {

/// Cycles of the array for an M x N x K matrix multiplication. With R rows, C columns of the array:
///
///   flow ws, wbuf 1   F (2R + C + T - 2)                       F = ceil(K/R) ceil(N/C), T = M
///   flow ws, wbuf 2   R + (F - 1) max(T, R) + T + R + C - 2
///   flow is           the same with F = ceil(K/R) ceil(M/C), T = N
///   flow os           F (R + C + T - 2)                        F = ceil(M/R) ceil(N/C), T = K
std::uint64_t array_cycles(const Caps& caps, std::uint64_t m, std::uint64_t n, std::uint64_t k);

/// Bytes that enter and leave the array for the same matrix multiplication.
struct ArrayTraffic {
  std::uint64_t input_reads = 0;
  std::uint64_t weight_reads = 0;
  std::uint64_t output_writes = 0;
};
ArrayTraffic array_traffic(const Caps& caps, std::uint64_t m, std::uint64_t n, std::uint64_t k);
/// Of a GEMM or CONV; zeros for others.
ArrayTraffic array_traffic(const Caps& caps, const Instruction& instruction);

/// Cycles of the vector unit for so many lines of 32 lanes: lines + 8.
constexpr std::uint64_t vector_cycles(std::uint64_t lines) noexcept { return lines + 8; }

inline constexpr std::uint64_t burst_bytes = 64;  ///< of the DDR port

/// What an instruction asks of the DDR port. Rows are rounded up to bursts of 64 bytes each; rows
/// that follow one another without a gap are one row.
struct Transfer {
  std::uint64_t read_bytes = 0;   ///< as counted by perf::ddr_read
  std::uint64_t write_bytes = 0;  ///< as counted by perf::ddr_write
  std::uint64_t read_bursts = 0;  ///< bursts of 64 bytes
  std::uint64_t write_bursts = 0;
};
Transfer transfer(const Instruction& instruction);

/// Cycles of an instruction that does not move data through the DDR port: those of EX, and Convert
/// with both sides in OCM. 0 for others.
std::uint64_t execute_cycles(const Caps& caps, const Instruction& instruction);

/// Cycles of a transfer without contention: latency + ceil(64 bursts * freq / bandwidth).
std::uint64_t transfer_cycles(const Caps& caps, const Transfer& transfer);

/// Multiplications of an instruction: rows x columns x sum; taps outside of the tile count, lanes
/// past the last channel do not.
std::uint64_t macs(const Instruction& instruction);

}  // namespace tenon::npu::isa
