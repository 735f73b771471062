#include "cpu_features.hpp"

#include "isa_variable.hpp"

#include <tenon/error.hpp>
#include <tenon/log.hpp>

#include <array>
#include <atomic>
#include <cstdlib>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace tenon::cpu {
namespace {

constexpr std::array<std::string_view, isa_count> isa_names = {
    "portable", "avx2", "avx_vnni", "avx512", "avx512_vnni", "amx"};

#if defined(__x86_64__)

struct Registers {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Registers cpuid(unsigned leaf, unsigned subleaf) {
  Registers r;
  __get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx);
  return r;
}

bool bit(unsigned word, int index) { return (word >> index & 1u) != 0; }

// Register files that the operating system saves on a context switch (XCR0).
std::uint64_t saved_state() {
  unsigned low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return static_cast<std::uint64_t>(high) << 32 | low;
}

// Linux hands out the 8 KiB of tile registers only to processes that ask (since 5.16).
bool may_use_tiles() {
#if defined(__linux__)
  constexpr long request_permission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long tile_data = 18;               // XFEATURE_XTILEDATA
  return ::syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
  return false;
#endif
}

// Feature bits: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, CPUID.
std::array<bool, isa_count> detect() {
  std::array<bool, isa_count> has{};
  has[static_cast<int>(Isa::portable)] = true;

  const Registers basic = cpuid(1, 0);
  const Registers extended = cpuid(7, 0);
  const Registers extended1 = cpuid(7, 1);
  const bool os_saves = bit(basic.ecx, 27);
  const std::uint64_t state = os_saves ? saved_state() : 0;
  const bool ymm = (state & 0x06) == 0x06;
  const bool zmm = (state & 0xE6) == 0xE6;
  const bool tiles = (state & 0x60000) == 0x60000;

  const bool fma = bit(basic.ecx, 12), f16c = bit(basic.ecx, 29), avx = bit(basic.ecx, 28);
  const bool avx2 = ymm && avx && fma && f16c && bit(extended.ebx, 5);
  const bool avx512 = avx2 && zmm && bit(extended.ebx, 16) && bit(extended.ebx, 17) &&
                      bit(extended.ebx, 30) && bit(extended.ebx, 31);
  const bool vnni = avx512 && bit(extended.ecx, 11);
  const bool bf16 = bit(extended1.eax, 5);
  const bool amx = vnni && bf16 && tiles && bit(extended.edx, 22) && bit(extended.edx, 24) &&
                   bit(extended.edx, 25);

  has[static_cast<int>(Isa::avx2)] = avx2;
#ifdef TENON_CPU_AVX2_ONLY
  return has;
#endif
  has[static_cast<int>(Isa::avx_vnni)] = avx2 && bit(extended1.eax, 4);
  has[static_cast<int>(Isa::avx512)] = avx512;
  has[static_cast<int>(Isa::avx512_vnni)] = vnni;
  has[static_cast<int>(Isa::amx)] = amx && may_use_tiles();
  return has;
}

// "AuthenticAMD" in ebx, edx, ecx (AMD64 Architecture Programmer's Manual, volume 3, CPUID).
bool is_amd() {
  const Registers vendor = cpuid(0, 0);
  return vendor.ebx == 0x68747541u && vendor.edx == 0x69746E65u && vendor.ecx == 0x444D4163u;
}

#else

std::array<bool, isa_count> detect() { return {true}; }

bool is_amd() { return false; }

#endif

// No static locals: their locks would stay locked in the child of a fork() in the middle.
constexpr int unknown = -1;
constinit std::atomic<int> supported{unknown};  // a bit for each Isa
constinit std::atomic<int> active{unknown};     // an Isa
constinit std::atomic<int> amd{unknown};        // 0 or 1

constexpr const char* isa_variable = "TENON_CPU_ISA";

std::string_view wanted_isa() {
  const char* const value = std::getenv(isa_variable);
  return value == nullptr ? std::string_view() : value;
}

/// Why an instruction set is not supported.
std::string refusal(Isa isa) {
#ifdef TENON_CPU_AVX2_ONLY
  if (isa > Isa::avx2) return "this build has no kernels above avx2";
#endif
  return fmt::format("this machine does not run {}", name(isa));
}

Isa choose() {
  const auto wanted = find_isa(wanted_isa());
  if (wanted && supports(*wanted)) return *wanted;
  for (int i = isa_count - 1; i > 0; --i) {
    if (supports(static_cast<Isa>(i))) return static_cast<Isa>(i);
  }
  return Isa::portable;
}

}  // namespace

std::string_view name(Isa isa) noexcept { return isa_names[static_cast<std::size_t>(isa)]; }

std::optional<Isa> find_isa(std::string_view name) noexcept {
  for (int i = 0; i < isa_count; ++i) {
    if (isa_names[static_cast<std::size_t>(i)] == name) return static_cast<Isa>(i);
  }
  return std::nullopt;
}

bool prefetches_streams() noexcept {
  int known = amd.load(std::memory_order_relaxed);
  if (known == unknown) {
    known = is_amd() ? 1 : 0;
    amd.store(known, std::memory_order_relaxed);
  }
  return known == 1;
}

bool supports(Isa isa) noexcept {
  int bits = supported.load(std::memory_order_relaxed);
  if (bits == unknown) {
    bits = 0;
    const std::array<bool, isa_count> levels = detect();
    for (std::size_t i = 0; i < levels.size(); ++i) bits |= int{levels[i]} << i;
    supported.store(bits, std::memory_order_relaxed);
  }
  return (bits >> static_cast<int>(isa) & 1) != 0;
}

void check_isa_variable() {
  const std::string_view wanted = wanted_isa();
  if (wanted.empty()) return;
  const auto isa = find_isa(wanted);
  if (!isa) {
    throw Error(
        Errc::bad_argument, isa_variable,
        fmt::format("no instruction set '{}'; known are {}", wanted, fmt::join(isa_names, ", ")));
  }
  if (!supports(*isa)) {
    log(LogLevel::warning,
        fmt::format("{}: {}, {} is used", isa_variable, refusal(*isa), name(active_isa())));
  }
}

Isa active_isa() noexcept {
  int isa = active.load(std::memory_order_relaxed);
  if (isa == unknown) {
    const int chosen = static_cast<int>(choose());
    // Not over one that was set meanwhile.
    if (active.compare_exchange_strong(isa, chosen, std::memory_order_relaxed)) isa = chosen;
  }
  return static_cast<Isa>(isa);
}

void set_active_isa(Isa isa) {
  if (!supports(isa)) {
    throw Error(Errc::unavailable, "set_active_isa", refusal(isa));
  }
  active.store(static_cast<int>(isa), std::memory_order_relaxed);
}

}  // namespace tenon::cpu
