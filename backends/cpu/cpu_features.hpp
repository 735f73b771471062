#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tenon::cpu {

/// Instruction-set levels that kernels are written for, each a superset of the one before it except
/// that `avx_vnni` (256-bit client CPUs) is not contained in `avx512`.
enum class Isa : std::uint8_t {
  portable,     ///< what every x86-64 CPU has
  avx2,         ///< AVX2, FMA, F16C
  avx_vnni,     ///< avx2 and 256-bit integer dot products
  avx512,       ///< AVX-512 F, BW, DQ, VL
  avx512_vnni,  ///< avx512 and 512-bit integer dot products
  amx,          ///< avx512_vnni, AVX512-BF16 and AMX tiles of bf16 and int8
};

inline constexpr int isa_count = static_cast<int>(Isa::amx) + 1;

/// "portable", "avx2", "avx_vnni", "avx512", "avx512_vnni", "amx".
std::string_view name(Isa isa) noexcept;

/// The level spelled `name`, if there is one.
std::optional<Isa> find_isa(std::string_view name) noexcept;

/// True if this CPU and operating system run the level. Detected once; for AMX that asks the kernel
/// for permission to use tile registers, which holds for the process from then on.
bool supports(Isa isa) noexcept;

/// True if this CPU reads one stream from memory at full speed by itself, and more slowly where
/// software prefetches as well: AMD's, as measured on Zen 4 (docs/kernels.md). Detected once.
bool prefetches_streams() noexcept;

/// The default level of kernels: the highest supported one, or the one named by the environment
/// variable TENON_CPU_ISA when that is supported. Read once.
Isa active_isa() noexcept;

/// Changes the process-wide level. Call between, not during, runs.
/// Throws Errc::unavailable if the machine does not support it.
void set_active_isa(Isa isa);

}  // namespace tenon::cpu
