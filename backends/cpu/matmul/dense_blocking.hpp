#pragma once

#include "dense_kernels.hpp"

#include <tenon/dtype.hpp>

#include <cstddef>
#include <cstdint>

namespace tenon::cpu {

/// y[rows, outputs] = x[rows, inputs] * W[outputs, inputs]^T in f32, W being of `dtype`.
struct DenseSize {
  DType dtype = DType::f32;
  std::int64_t rows = 0, outputs = 0, inputs = 0;
};

/// Blocks that suit this machine's caches: the same for every instruction set and number of
/// threads.
DenseBlocking dense_blocking(const DenseSize& size) noexcept;

/// Memory that a thread needs for it; `gathers` where W is first gathered into panels.
std::size_t dense_scratch_bytes(const DenseSize& size, bool gathers) noexcept;

/// Parts of `memory`, which has that many bytes. `blocking`: dense_blocking(size).
DenseScratch dense_scratch(const DenseSize& size, const DenseBlocking& blocking, bool gathers,
                           std::byte* memory) noexcept;

}  // namespace tenon::cpu
