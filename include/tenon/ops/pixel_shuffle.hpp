// Blocks of pixels to channels and back: views and one copy.
#pragma once

#include <tenon/name.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <source_location>

namespace tenon {

/// x [..., C * r * r, H, W] to y [..., C, H * r, W * r]: y[c, h * r + i, w * r + j] =
/// x[(c * r + i) * r + j, h, w]. PyTorch's pixel_shuffle.
///
/// Errors  x of rank below 3                                    Errc::shape_mismatch
///         r below 1                                            Errc::bad_attribute
///         sizes that r does not divide                         Errc::bad_shape
Tensor pixel_shuffle(const Tensor& x, std::int64_t r,
                     const std::source_location& where = std::source_location::current());
/// The way back, with the same errors: x [..., C, H * r, W * r] to [..., C * r * r, H, W].
Tensor pixel_unshuffle(const Tensor& x, std::int64_t r,
                       const std::source_location& where = std::source_location::current());

/// ONNX's DepthToSpace: mode "CRD" is pixel_shuffle; "DCR" (the default) takes channels as
/// [r, r, C]: y[c, h * r + i, w * r + j] = x[(i * r + j) * C + c, h, w]. Errors as above; another
/// mode is Errc::bad_attribute.
Tensor depth_to_space(const Tensor& x, std::int64_t r, Name mode = {},
                      const std::source_location& where = std::source_location::current());
/// ONNX's SpaceToDepth, the way back from mode "DCR".
Tensor space_to_depth(const Tensor& x, std::int64_t r,
                      const std::source_location& where = std::source_location::current());

}  // namespace tenon
