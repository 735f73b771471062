#pragma once

#include <cstdint>

namespace tenon::cpu {

/// y[i] = log |gamma(x[i])|; y may be x.
void log_gamma(const float* x, float* y, std::int64_t count) noexcept;
/// Its derivative.
void digamma(const float* x, float* y, std::int64_t count) noexcept;

}  // namespace tenon::cpu
