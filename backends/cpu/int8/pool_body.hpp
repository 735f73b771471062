#pragma once

// Largest codes under a window. Included after int8_simd.hpp.
#include "../convolution/window_taps.hpp"
#include "int8_kernels.hpp"

#include <cstdint>

namespace tenon::cpu {
namespace {

constexpr std::int64_t pool_bytes = 64;
using PoolCodes = std::uint8_t __attribute__((vector_size(pool_bytes)));

/// One output pixel; x is where tap (0, 0) lies.
TENON_INLINE void max_codes(const Int8PoolJob& job, const std::uint8_t* x, Taps rows, Taps columns,
                            std::uint8_t* y) {
  const auto tap = [&](std::int64_t r, std::int64_t s) {
    return x + r * job.rows.dilation * job.x.row + s * job.columns.dilation * job.x.column;
  };
  std::int64_t c = 0;
  if (job.x.channel == 1 && job.y.channel == 1) {
    for (; c + pool_bytes <= job.channels; c += pool_bytes) {
      PoolCodes most{};
      for (std::int64_t r = rows.begin; r < rows.end; ++r) {
        for (std::int64_t s = columns.begin; s < columns.end; ++s) {
          PoolCodes codes;
          __builtin_memcpy(&codes, tap(r, s) + c, sizeof codes);
          most = codes > most ? codes : most;
        }
      }
      __builtin_memcpy(y + c, &most, sizeof most);
    }
  }
  for (; c < job.channels; ++c) {
    std::uint8_t most = 0;
    for (std::int64_t r = rows.begin; r < rows.end; ++r) {
      for (std::int64_t s = columns.begin; s < columns.end; ++s) {
        const std::uint8_t code = tap(r, s)[c * job.x.channel];
        most = code > most ? code : most;
      }
    }
    y[c * job.y.channel] = most;
  }
}

void run_int8_max_pool(const Int8PoolJob& job, std::int64_t first, std::int64_t last) noexcept {
  for (std::int64_t i = first; i < last; ++i) {
    const Taps rows = taps_inside(job.rows, i);
    const auto* line = job.x.at + (i * job.rows.stride - job.rows.before) * job.x.row;
    for (std::int64_t j = 0; j < job.columns.outputs; ++j) {
      const Taps columns = taps_inside(job.columns, j);
      max_codes(job, line + (j * job.columns.stride - job.columns.before) * job.x.column, rows,
                columns, job.y.at + i * job.y.row + j * job.y.column);
    }
  }
}

}  // namespace
}  // namespace tenon::cpu
