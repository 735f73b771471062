#pragma once

#include "../convolution_kernels.hpp"

#include <cstdint>

/// Convolutions of 3 by 3 taps by Winograd's minimal filtering F(4x4, 3x3) (Lavin and Gray, Fast
/// Algorithms for Convolutional Neural Networks, arXiv:1509.09308): 16 outputs of one channel take
/// 36 multiplications in place of 144.
///
/// Tiles of 4 by 4 outputs read 6 by 6 inputs d. Each axis of d is evaluated at six points, B'd B;
/// so is the filter, once, G g G' (filter.cpp); for each of the 36 pairs of points a GEMM over the
/// channels remains, done by the register tile of ../product_body.hpp; and A'm A of the 36 results
/// are the outputs. Per axis, for the points 0, +-a, +-b and infinity:
///
///   B'd = a^2 b^2 d0 - (a^2 + b^2) d2 + d4,
///         (d4 - b^2 d2) +- a (d3 - b^2 d1),  (d4 - a^2 d2) +- b (d3 - a^2 d1),
///         a^2 b^2 d1 - (a^2 + b^2) d3 + d5
///   A'm = m0 + (m1 + m2) + (m3 + m4),        a (m1 - m2) + b (m3 - m4),
///         a^2 (m1 + m2) + b^2 (m3 + m4),     a^3 (m1 - m2) + b^3 (m3 - m4) + m5
///   G g = (g0 + p g1 + p^2 g2) / N(p) at each point p, N the product of its distances to the other
///         finite points; g2 at infinity
///
/// The gradient of the filter is the adjoint of this: G'm G of the sums over all tiles of the
/// products of B'd B by A u A', u the 4 by 4 elements of the upstream gradient.
///
/// Numerics. All in f32, the filter's transform in f64 and rounded once. Points decide the error:
/// a = 5/8 and b = 3/2 have half the mean error of the usual 1 and 2, and a third of the largest;
/// twice that of the direct kernel, which benchmarks/convolution.cpp measures. Sums are cancelled
/// from larger numbers: a value of x that is not finite, or above about 1e36, can spoil all outputs
/// of the tiles that read it, where the direct kernel spoils those alone whose taps meet it.
///
/// An output depends on its own tile only, and tiles begin at the image's corner: bits depend
/// neither on how work is divided nor on other images of the batch.
namespace tenon::cpu::winograd {

inline constexpr int tile = 4;                            ///< outputs along an axis
inline constexpr int side = 6;                            ///< inputs along an axis
inline constexpr int numbers = side * side;               ///< of a tile, between the transforms
inline constexpr float point_a = 0.625f, point_b = 1.5f;  ///< squares and their products are exact

/// Tiles of one row of an image, side by side.
struct TileRun {
  std::int64_t row, column;  ///< of the first output of the first tile
  std::int64_t count;
};

/// B'd B of each tile: number n of tile t is numbers[n * number + t * tile + channel].
struct InputJob {
  Image<const float> x;  ///< channels last
  WindowAxis rows, columns;
  std::int64_t channels;
  float* numbers;
  std::int64_t number, tile;  ///< steps; a tile's is a multiple of 16, and as much is written
};

/// A'm A of each tile and what becomes of sums, for `channels` channels.
struct OutputJob {
  const float* numbers;
  std::int64_t number, tile;  ///< steps, multiples of 16
  std::int64_t channels;
  std::int64_t rows, columns;  ///< of the image
  Finish finish;               ///< beginning with the first of the channels, as y
  Image<float> y;
};

/// G'm G: number n of channel c is numbers[n * number + c], tap t is taps[t * tap + c].
struct TapsJob {
  const float* numbers;
  std::int64_t number;
  float* taps;
  std::int64_t tap;
  std::int64_t channels;  ///< a multiple of 16
};

struct Transforms {
  void (*input)(const InputJob&, const TileRun&) noexcept;
  /// A u A', of tiles of 4 by 4.
  void (*upstream)(const InputJob&, const TileRun&) noexcept;
  void (*output)(const OutputJob&, const TileRun&) noexcept;
  void (*taps)(const TapsJob&) noexcept;
};

/// The kernels of the active instruction set.
const Transforms& transforms() noexcept;

}  // namespace tenon::cpu::winograd

namespace tenon::cpu {
namespace portable {
extern const winograd::Transforms winograd_transforms;
}
namespace avx2 {
extern const winograd::Transforms winograd_transforms;
}
namespace avx512 {
extern const winograd::Transforms winograd_transforms;
}
}  // namespace tenon::cpu
