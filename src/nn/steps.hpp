// What layers with states share.
#pragma once

#include <tenon/tensor.hpp>

#include <cstdint>
#include <source_location>

namespace tenon::nn {

/// x itself, or x in another type.
Tensor of_type(const Tensor& x, DType type, const std::source_location& where);

/// The last `count` steps of x [B, count + S, C] or, with `lengths` (i32[B]), of each row's first
/// count + lengths[b].
Tensor last_steps(const Tensor& x, std::int64_t count, const Tensor& lengths,
                  const std::source_location& where);

}  // namespace tenon::nn
