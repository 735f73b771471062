// Rows of any type as dense rows of bf16, for products in tensor cores. The depth is a multiple of 8,
// and the result begins at a multiple of 16.
#pragma once

#include "kernels/bf16_pieces.hpp"

#include <cstdint>

namespace tenon::cuda {

/// A warp takes 128 elements of each of eight rows, or of one: pieces of four lanes. Neighbouring
/// lanes exchange halves of theirs, so that each pair stores 32 bytes in a row.
template <class Type, bool is_aligned>
TENON_DEVICE void round_pieces(const Thread& thread, const RoundArgs& args) {
  const std::uint32_t parts = (args.depth + 127) / 128, count = args.rows * parts;
  const std::uint32_t lane = lane_of(thread), t = lane % 4;
  const bool is_second = t % 2 != 0;
  for (std::uint32_t first = first_of(thread) / warp_size * 8; first < count;
       first += stride_of(thread) / warp_size * 8) {
    const std::uint32_t number = first + lane / 4;
    const std::uint32_t part = number < count ? number : count - 1;
    const std::uint32_t row = part / parts, begin = part % parts * 128 + t / 2 * 64;
    const Address x = args.x + static_cast<Address>(row * args.x_step);
    SixteenOf<Type, is_aligned> pieces[2];
    TENON_UNROLL for (unsigned i = 0; i < 2; ++i) {
      pieces[i].load(x, begin + 32 * i + t % 2 * 16, args.depth);
    }
    TENON_UNROLL for (unsigned i = 0; i < 2; ++i) {
      const std::uint32_t from = begin + 32 * i + t % 2 * 16;
      const Scaling scaling = pieces[i].scaling(from, args.depth);
      std::uint32_t halves[2][4];
      pieces[i].pairs(from, 0, scaling, halves[0]);
      pieces[i].pairs(from, 1, scaling, halves[1]);
      // Of 32 elements the first lane has the first 16: it keeps 8, and gets those from 16 on.
      Words4 kept, got;
      TENON_UNROLL for (unsigned word = 0; word < 4; ++word) {
        kept.at[word] = is_second ? halves[1][word] : halves[0][word];
        got.at[word] = thread.shuffle(is_second ? halves[0][word] : halves[1][word], lane ^ 1u);
      }
      const std::uint32_t k = begin + 32 * i + (is_second ? 8 : 0);
      const Address y = args.y + 2 * (Address{row} * args.depth + k);
      if (number >= count) continue;
      if (k < args.depth) store_words(y, is_second ? got : kept);
      if (k + 16 < args.depth) store_words(y + 32, is_second ? kept : got);
    }
  }
}
template <class Type>
TENON_DEVICE void round_rows(const Thread& thread, const RoundArgs& args) {
  if (SixteenOf<Type, true>::may_be_aligned &&
      (args.x | static_cast<Address>(args.x_step)) % sizeof(Words4) == 0) {
    round_pieces<Type, true>(thread, args);
  } else {
    round_pieces<Type, false>(thread, args);
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
        const Words4 words = load_words(x + 4 * Address{i % eights * 8 + 4 * half});
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
