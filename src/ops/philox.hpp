// Philox4x32-10: Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3 (2011). A header
// without dependencies, for the reference and for kernels.
#pragma once

#include <array>
#include <cstdint>

namespace tenon::philox {

inline constexpr int rounds = 10;
inline constexpr std::uint32_t multipliers[2] = {0xD2511F53u, 0xCD9E8D57u};
inline constexpr std::uint32_t key_steps[2] = {0x9E3779B9u, 0xBB67AE85u};

using Block = std::array<std::uint32_t, 4>;

/// The four words of a counter, whose word 0 is the lowest.
constexpr Block block(Block counter, std::uint32_t key0, std::uint32_t key1) noexcept {
  for (int i = 0; i < rounds; ++i) {
    const std::uint64_t p = std::uint64_t{multipliers[0]} * counter[0];
    const std::uint64_t q = std::uint64_t{multipliers[1]} * counter[2];
    counter = {
        static_cast<std::uint32_t>(q >> 32) ^ counter[1] ^ key0, static_cast<std::uint32_t>(q),
        static_cast<std::uint32_t>(p >> 32) ^ counter[3] ^ key1, static_cast<std::uint32_t>(p)};
    key0 += key_steps[0];
    key1 += key_steps[1];
  }
  return counter;
}

/// The counter with these halves.
constexpr Block counter(std::uint64_t low, std::uint64_t high) noexcept {
  return {static_cast<std::uint32_t>(low), static_cast<std::uint32_t>(low >> 32),
          static_cast<std::uint32_t>(high), static_cast<std::uint32_t>(high >> 32)};
}

}  // namespace tenon::philox
