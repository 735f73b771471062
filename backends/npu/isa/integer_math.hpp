// Division of sizes and counts, rounded up: in 64 bits, whatever the operands have.
#pragma once

#include <concepts>
#include <cstdint>

namespace tenon::npu {

/// a / b rounded up, for a >= 0 and b > 0.
constexpr std::uint64_t ceil_div(std::unsigned_integral auto a, std::unsigned_integral auto b) {
  return (std::uint64_t{a} + b - 1) / b;
}
constexpr std::int64_t ceil_div(std::signed_integral auto a, std::signed_integral auto b) {
  return (std::int64_t{a} + b - 1) / b;
}

/// The smallest multiple of `step` that is not below `a`.
constexpr auto round_up(std::integral auto a, std::integral auto step) {
  return ceil_div(a, step) * step;
}

}  // namespace tenon::npu
