#pragma once

#include <cstdint>

namespace tenon {

/// Lets two kinds of URL be opened. "npu://sim?mac=32x32&ocm=2MiB" is a simulated device, on a
/// thread of its own; docs/npu-device.md lists the keys. "npu://mock?..." with the same keys has
/// the memories and capabilities only, for allocating and for building snapshots: starting anything
/// on it is Errc::call_order. Calling this again does nothing.
void register_npu_sim();

/// Registers of the bank `simctl` of a simulated device: what no real one has, for tests and tools.
/// It keeps answering when the device is "removed".
namespace npu::simctl {

inline constexpr std::uint32_t schedule = 0x00;    ///< rw: 0 by time, 1 a random interleaving
inline constexpr std::uint32_t seed = 0x04;        ///< rw: of the next program's interleaving
inline constexpr std::uint32_t fault_kind = 0x08;  ///< rw: a FaultKind
inline constexpr std::uint32_t fault_nth =
    0x0C;  ///< rw: occurrence from now on, 1 the next; 0 at once
inline constexpr std::uint32_t fault_layer = 0x10;   ///< rw: only in this layer; all ones: in any
inline constexpr std::uint32_t fault_arm = 0x14;     ///< wo: arms the fault described above
inline constexpr std::uint32_t faults_fired = 0x18;  ///< ro: faults that happened
inline constexpr std::uint32_t faults_armed = 0x1C;  ///< ro: faults that still wait
inline constexpr std::uint32_t now_lo = 0x24;  ///< ro: simulated cycles since the device was opened
inline constexpr std::uint32_t now_hi = 0x28;  ///< ro: and their upper half
inline constexpr std::uint32_t replug = 0x2C;  ///< wo: a removed device comes back, all memory lost

/// What can go wrong on purpose, and what is counted to find the n-th occurrence.
enum class FaultKind : std::uint32_t {
  dma_timeout,  ///< a transfer of LD or ST never ends
  bus_error,    ///< a transfer of LD or ST is answered with an error
  illegal,      ///< a dispatched instruction cannot be decoded
  crc,          ///< a program's checksum does not match
  hang,         ///< a token that an instruction gives is lost
  removed,      ///< the device is gone when an instruction begins
  lost_irq,     ///< an interrupt is not raised
  flip_weight,  ///< a bit of segment weight flips when a program has ended
  flip_instr,   ///< a bit of segment instr flips when a program has ended
  flip_act,     ///< a bit of what a Requant, Elementwise or Pool wrote flips
};

}  // namespace npu::simctl
}  // namespace tenon
