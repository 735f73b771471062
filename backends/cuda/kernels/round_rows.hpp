// Rows of any type as dense rows of bf16, for products in tensor cores. The depth is a multiple of 8,
// and the result begins at a multiple of 16.
#pragma once

#include "kernels/bf16_pieces.hpp"

#include <cstdint>

namespace tenon::cuda {

/// A warp takes 128 elements of each of eight rows, or of one: pieces of four lanes. Neighbouring
/// lanes exchange halves of theirs, so that each pair stores 32 bytes in a row.
template <class Type>
TENON_DEVICE void round_rows(const Thread& thread, const RoundArgs& args) {
  const std::uint32_t parts = (args.depth + 127) / 128, count = args.rows * parts;
  const bool is_aligned = (args.x | static_cast<Address>(args.x_step)) % sizeof(Words4) == 0;
  const std::uint32_t lane = lane_of(thread), t = lane % 4;
  const bool is_second = t % 2 != 0;
  for (std::uint32_t first = first_of(thread) / warp_size * 8; first < count;
       first += stride_of(thread) / warp_size * 8) {
    const std::uint32_t number = first + lane / 4;
    const std::uint32_t part = number < count ? number : count - 1;
    const std::uint32_t row = part / parts, begin = part % parts * 128 + t / 2 * 64;
    Pieces<Type> pieces;
    pieces.load(args.x + static_cast<Address>(row * args.x_step), begin + t % 2 * 16, args.depth,
                is_aligned);
    TENON_UNROLL for (unsigned piece = 0; piece < 2; ++piece) {
      const Scaling scaling = pieces.scaling(piece);
      std::uint32_t halves[2][4];
      pieces.pairs(piece, 0, scaling, halves[0]);
      pieces.pairs(piece, 1, scaling, halves[1]);
      // Of 32 elements the first lane has the first 16: it keeps 8, and gets those from 16 on.
      Words4 kept, got;
      TENON_UNROLL for (unsigned i = 0; i < 4; ++i) {
        kept.at[i] = is_second ? halves[1][i] : halves[0][i];
        got.at[i] = thread.shuffle(is_second ? halves[0][i] : halves[1][i], lane ^ 1u);
      }
      const std::uint32_t k = begin + 32 * piece + (is_second ? 8 : 0);
      const Address y = args.y + 2 * (Address{row} * args.depth + k);
      if (number >= count) continue;
      if (k < args.depth) store_words(y, is_second ? got : kept);
      if (k + 16 < args.depth) store_words(y + 32, is_second ? kept : got);
    }
  }
}

/// Eight elements of f32 per thread.
TENON_DEVICE void round_floats(const Thread& thread, const RoundArgs& args) {
  const std::uint32_t eights = args.depth / 8, count = args.rows * eights;
  const bool is_aligned = (args.x | static_cast<Address>(args.x_step)) % sizeof(Words4) == 0;
  for (std::uint32_t i = first_of(thread); i < count; i += stride_of(thread)) {
    const Address x = args.x + static_cast<Address>(i / eights * args.x_step);
    float values[8];
    if (is_aligned) {
      TENON_UNROLL for (std::uint32_t half = 0; half < 2; ++half) {
        const Words4 words = load_aligned_words(x + 4 * Address{i % eights * 8 + 4 * half});
        TENON_UNROLL for (unsigned j = 0; j < 4; ++j) {
          values[4 * half + j] = bits_to_float(words.at[j]);
        }
      }
    } else {
      Row<PlainF32>::load_eight(x, i % eights * 8, args.depth, values);
    }
    store_bfloat16(args.y + 16 * Address{i}, values);
  }
}

}  // namespace tenon::cuda
