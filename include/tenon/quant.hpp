#pragma once

#include <tenon/dtype.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

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
/// and iq2_xs, which are of use only with importances.
bool is_quantizable(DType type) noexcept;

/// Whether quantize() with importances writes the type: what is_quantizable() names, and iq1_s, iq1_m,
/// iq2_xxs and iq2_xs.
bool is_quantizable_by_importance(DType type) noexcept;

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

/// As above, where errors of elements do not count alike: what is kept small is the sum of importance times squared error.
///
/// importance  a number for each column of the rows that `in` consists of, such as the mean square of the activations
///             that the column is multiplied with; only their ratios within a block matter. Below 2^-24 of the block's
///             largest they count as that much, and a block with zeros only is quantised as without importances.
///
/// q4_0, q4_1, q5_0 and q5_1 search for their scales, too. f16, bf16, f32, f64, q8_0, q8_k, q1_0, q2_0, tq1_0, tq2_0, mxfp4
/// and nvfp4 take no account of importances.
///
/// Errors  unsupported_dtype  not is_quantizable_by_importance(type)
///         bad_argument       `count` is negative or no multiple of block_size(type); importance.size() is no multiple of
///                            block_size(type) or does not divide `count`; an importance is negative, infinite or a NaN
void quantize(DType type, const float* in, std::byte* blocks, std::int64_t count,
              std::span<const float> importance);

}  // namespace tenon
