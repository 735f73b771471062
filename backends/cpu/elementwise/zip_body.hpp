#pragma once

// Loops over two arrays, of which compilers make vectors of the instruction set whose source includes this.
#include "independent.hpp"

#include <cstdint>

namespace tenon::cpu {
namespace {

/// y[i] = f(a[i * a_step], b[i * b_step]), steps 0 or 1; y may be a or b.
template <class T, class Y, class F>
[[gnu::always_inline]] inline void zip(const void* a, std::int64_t a_step, const void* b,
                                       std::int64_t b_step, void* y, std::int64_t count, F f) {
  const auto* p = static_cast<const T*>(a);
  const auto* q = static_cast<const T*>(b);
  auto* out = static_cast<Y*>(y);
  if (count <= 0) return;
  if (a_step != 0 && b_step != 0) {
    TENON_INDEPENDENT for (std::int64_t i = 0; i < count; ++i) out[i] = f(p[i], q[i]);
  } else if (a_step != 0) {
    const T fixed = *q;
    TENON_INDEPENDENT for (std::int64_t i = 0; i < count; ++i) out[i] = f(p[i], fixed);
  } else if (b_step != 0) {
    const T fixed = *p;
    TENON_INDEPENDENT for (std::int64_t i = 0; i < count; ++i) out[i] = f(fixed, q[i]);
  } else {
    const Y value = f(*p, *q);
    for (std::int64_t i = 0; i < count; ++i) out[i] = value;
  }
}

}  // namespace
}  // namespace tenon::cpu
