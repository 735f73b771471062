#pragma once

#include <tenon/dtype.hpp>

#include <cstddef>
#include <cstdint>

namespace tenon {

/// Widens `count` elements of a floating or block type to f32.
///
/// blocks  `count` elements of `type`: count / block_size(type) blocks, at any alignment
/// out     `count` floats; must not overlap `blocks`
///
/// Requires is_floating(type) or is_block(type), and count >= 0 a multiple of block_size(type).
/// Block types, f16 and bf16 give the bits of Python's `gguf.quants.dequantize`, except for the
/// payload of a NaN. f64 rounds to nearest.
void dequantize(DType type, const std::byte* blocks, float* out, std::int64_t count) noexcept;

/// Whether `quantize` writes the type: floating types, and block types except iq1_s, iq1_m, iq2_xxs
/// and iq2_xs, which are of use only with an importance matrix.
bool is_quantizable(DType type) noexcept;

/// Narrows `count` floats to a floating or block type; the same input gives the same bytes on every
/// machine.
///
/// in      `count` floats
/// blocks  room for count / block_size(type) blocks, at any alignment; must not overlap `in`
///
/// q4_0, q4_1, q5_0, q5_1 and q8_0 give the bytes of Python's `gguf.quants.quantize` for finite
/// blocks whose scale is a normal float. The other block types search for the scales that minimise
/// the squared error of each sub-block. A block with an infinity or a NaN becomes NaN throughout
/// (mxfp4, which has none: infinite; nvfp4, which has neither: 2688, its largest number, throughout);
/// a block too small for its scale becomes zero; one too large for it infinite or NaN, of nvfp4 2688.
/// Of nvfp4, whose scales end at 2^-10, weights are scaled as a whole first, by a tensor of their own.
///
/// Errors  unsupported_dtype  not is_quantizable(type)
///         bad_argument       `count` is negative or no multiple of block_size(type)
void quantize(DType type, const float* in, std::byte* blocks, std::int64_t count);

}  // namespace tenon
