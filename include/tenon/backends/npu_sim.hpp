#pragma once

#include <cstdint>

namespace tenon {

/// Registers two kinds of device. "npu://sim?mac=32x32&ocm=2MiB" is a simulated device, on a thread
/// of its own; docs/npu-device.md lists the keys. "npu://mock?...", with the same keys, has the
/// memories and capabilities only, for allocating and for building snapshots: starting work on it
/// throws Errc::call_order. Idempotent.
void register_npu_sim();

/// Registers of the bank `simctl`, which only simulated devices have, for tests and tools. It stays
/// accessible when the device is "removed".
namespace npu::simctl {

inline constexpr std::uint32_t schedule = 0x00;      ///< rw: 0 by time, 1 a random interleaving
inline constexpr std::uint32_t seed = 0x04;          ///< rw: of the next program's interleaving
inline constexpr std::uint32_t fault_kind = 0x08;    ///< rw: a FaultKind
inline constexpr std::uint32_t fault_nth = 0x0C;     ///< rw: the n-th event from now on; 0: at once
inline constexpr std::uint32_t fault_layer = 0x10;   ///< rw: only in this layer; all ones: in any
inline constexpr std::uint32_t fault_arm = 0x14;     ///< wo: arms the fault described above
inline constexpr std::uint32_t faults_fired = 0x18;  ///< ro: faults that happened
inline constexpr std::uint32_t faults_armed = 0x1C;  ///< ro: armed faults that did not happen yet
inline constexpr std::uint32_t now_lo = 0x24;  ///< ro: simulated cycles since the device was opened
inline constexpr std::uint32_t now_hi = 0x28;  ///< ro: their upper half
inline constexpr std::uint32_t host_dmas = 0x20;  ///< ro: host DMAs that ended since it was opened
inline constexpr std::uint32_t replug = 0x2C;  ///< wo: reconnects a removed device; memory is lost

/// Faults that can be injected. The comment names the event, which fault_nth counts.
enum class FaultKind : std::uint32_t {
  dma_timeout,     ///< a transfer of LD or ST never ends
  bus_error,       ///< a transfer of LD or ST is answered with an error
  illegal,         ///< a dispatched instruction cannot be decoded
  crc,             ///< a program's checksum does not match
  hang,            ///< a sync token that an instruction signals is lost
  removed,         ///< the device is gone when an instruction begins
  lost_irq,        ///< an interrupt is not raised
  flip_weight,     ///< a bit of segment weight flips when a program has ended
  flip_instr,      ///< a bit of segment instr flips when a program has ended
  flip_act,        ///< a bit of the output of a Requant, Elementwise or Pool flips
  host_dma_error,  ///< a host DMA copies nothing and ends with dma_error
  host_dma_hang,   ///< a host DMA never ends
};

}  // namespace npu::simctl
}  // namespace tenon
