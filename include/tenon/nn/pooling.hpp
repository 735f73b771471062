#pragma once

#include <tenon/tensor.hpp>

#include <source_location>

namespace tenon::nn {

/// Mean over the positions where `mask` is 1. x [B, S, D], mask f32 [B, S] of 0 and 1 -> [B, D].
Tensor mean_pool(const Tensor& x, const Tensor& mask,
                 const std::source_location& where = std::source_location::current());

/// The first position of each sequence: x [B, S, D] -> [B, D].
Tensor first_pool(const Tensor& x,
                  const std::source_location& where = std::source_location::current());

/// The last position of the sequences: x [B, S, D], mask f32 [B, S] with 1 for each of a sequence's positions, which come
/// first, and 0 behind -> [B, D]. When run: Errc::out_of_range for a sequence without positions.
Tensor last_pool(const Tensor& x, const Tensor& mask,
                 const std::source_location& where = std::source_location::current());

/// Scales rows to Euclidean length 1: x / max(|x|, eps). x [..., D].
Tensor normalize(const Tensor& x, double eps = 1e-12,
                 const std::source_location& where = std::source_location::current());

}  // namespace tenon::nn
