// Products of 16 by 16 and 16 by 8 tiles that a warp holds in fragments, with sums in f32.
//
// Lane 4 g + t of a warp has, in pairs of 16-bit elements along k (the lower k in the lower half):
//   a[0], a[1]   rows g and g + 8 of A at k = 2 t;   a[2], a[3]   the same at k = 2 t + 8
//   b[0], b[1]   column g of B at k = 2 t and 2 t + 8
//   c[0], c[1]   row g of C at columns 2 t and 2 t + 1;   c[2], c[3]   row g + 8
// Source: PTX ISA, matrix fragments for mma.m16n8k16 with .f16 and .bf16.
#pragma once

#include "kernels/values.hpp"

#include <cstdint>

namespace tenon::cuda {

struct FragmentA {
  std::uint32_t pairs[4];
};
struct FragmentB {
  std::uint32_t pairs[2];
};
struct FragmentC {
  float sums[4] = {};
};

/// A fragment of rows of words from `at` on, `line` words apart: A's of 16 rows, B's of 8 columns.
template <class Tile>
TENON_DEVICE FragmentA load_a(const Thread& thread, const Tile& tile, std::uint32_t at,
                              std::uint32_t line) {
  at += lane_of(thread) / 4 * line + lane_of(thread) % 4;
  return {{tile[at], tile[at + 8 * line], tile[at + 4], tile[at + 8 * line + 4]}};
}
template <class Tile>
TENON_DEVICE FragmentB load_b(const Thread& thread, const Tile& tile, std::uint32_t at,
                              std::uint32_t line) {
  at += lane_of(thread) / 4 * line + lane_of(thread) % 4;
  return {{tile[at], tile[at + 4]}};
}

/// Four matrices of 8 rows of 8 elements of 16 bits, a Words4 each: lane 8 i + r says where row r of matrix i is. Lane 4 g + t
/// has of each its row g at columns 2 t and 2 t + 1, or if they are turned its column g at rows 2 t
/// and 2 t + 1. For whole warps.
template <bool is_turned, class Rows>
TENON_DEVICE FragmentA load_matrices(const Thread& thread, const Rows& rows, std::uint32_t at) {
  FragmentA matrices;
#if defined(__CUDA_ARCH__)
  (void)thread;
  const auto from = static_cast<std::uint32_t>(__cvta_generic_to_shared(&rows[at]));
  std::uint32_t(&words)[4] = matrices.pairs;
  if (is_turned) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(from)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(from)
                 : "memory");
  }
#else
  const unsigned g = lane_of(thread) / 4, t = lane_of(thread) % 4;
  for (unsigned i = 0; i < 4; ++i) {
    if (is_turned) {
      const std::uint32_t low = rows[thread.shuffle(at, 8 * i + 2 * t)].at[g / 2];
      const std::uint32_t high = rows[thread.shuffle(at, 8 * i + 2 * t + 1)].at[g / 2];
      matrices.pairs[i] = g % 2 == 0 ? (low & 0xFFFFu) | high << 16 : low >> 16 | (high & ~0xFFFFu);
    } else {
      matrices.pairs[i] = rows[thread.shuffle(at, 8 * i + g)].at[t];
    }
  }
#endif
  return matrices;
}

template <bool is_half>
TENON_DEVICE std::uint16_t narrow_to(float value) {
  return is_half ? narrow_half(value) : narrow_bfloat16(value);
}

/// Two values as f16 or bf16, the first in the lower half.
template <bool is_half>
TENON_DEVICE std::uint32_t narrow_two(float first, float second) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  std::uint32_t pair;
  if (is_half) {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  } else {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  }
  return pair;
#else
  return narrow_to<is_half>(first) | std::uint32_t{narrow_to<is_half>(second)} << 16;
#endif
}

/// 2^x within 2^-22 of it; 0 where that is below 2^-126.
TENON_DEVICE float exp2_of(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return exp2f(x);
#endif
}

/// 1 / x within 2^-22 of it.
TENON_DEVICE float reciprocal_of(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return 1 / x;
#endif
}

template <bool is_half>
TENON_DEVICE float widen_part(std::uint32_t pair, unsigned part) {
  const auto bits = static_cast<std::uint16_t>(pair >> (16 * part));
  return is_half ? widen_half(bits) : widen_bfloat16(bits);
}

/// c + a b, from what the other lanes hold: for the emulation, and for devices whose tensor cores
/// have not this type.
template <bool is_half>
TENON_CALLED FragmentC product_by_shuffles(const Thread& thread, FragmentA a, FragmentB b,
                                           FragmentC c) {
  const unsigned g = lane_of(thread) / 4, t = lane_of(thread) % 4;
  for (unsigned q = 0; q < 4; ++q) {
    std::uint32_t row_pairs[4], column_pairs[2][2];
    for (unsigned i = 0; i < 4; ++i) row_pairs[i] = thread.shuffle(a.pairs[i], 4 * g + q);
    for (unsigned n = 0; n < 2; ++n) {
      for (unsigned i = 0; i < 2; ++i) {
        column_pairs[n][i] = thread.shuffle(b.pairs[i], 4 * (2 * t + n) + q);
      }
    }
    for (unsigned i = 0; i < 4; ++i) {
      const unsigned lower = i / 2, n = i % 2;  // row g or g + 8, column 2 t or 2 t + 1
      for (unsigned far = 0; far < 2; ++far) {
        for (unsigned part = 0; part < 2; ++part) {
          c.sums[i] += widen_part<is_half>(row_pairs[2 * far + lower], part) *
                       widen_part<is_half>(column_pairs[n][far], part);
        }
      }
    }
  }
  return c;
}

/// c += a b, of f16 or bf16. For whole warps.
template <bool is_half>
TENON_DEVICE void multiply_fragments(const Thread& thread, const FragmentA& a, const FragmentB& b,
                                     FragmentC& c) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  (void)thread;
  if (is_half) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c.sums[0]), "+f"(c.sums[1]), "+f"(c.sums[2]), "+f"(c.sums[3])
        : "r"(a.pairs[0]), "r"(a.pairs[1]), "r"(a.pairs[2]), "r"(a.pairs[3]), "r"(b.pairs[0]),
          "r"(b.pairs[1]));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c.sums[0]), "+f"(c.sums[1]), "+f"(c.sums[2]), "+f"(c.sums[3])
        : "r"(a.pairs[0]), "r"(a.pairs[1]), "r"(a.pairs[2]), "r"(a.pairs[3]), "r"(b.pairs[0]),
          "r"(b.pairs[1]));
  }
#elif defined(__CUDA_ARCH__)
  if (is_half) {
    for (int far = 0; far < 2; ++far) {
      asm volatile(
          "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
          "{%0,%1,%2,%3};"
          : "+f"(c.sums[0]), "+f"(c.sums[1]), "+f"(c.sums[2]), "+f"(c.sums[3])
          : "r"(a.pairs[2 * far]), "r"(a.pairs[2 * far + 1]), "r"(b.pairs[far]));
    }
  } else {
    c = product_by_shuffles<is_half>(thread, a, b, c);
  }
#else
  c = product_by_shuffles<is_half>(thread, a, b, c);
#endif
}

/// Sums in i32 of products of 8-bit codes, four of which a word has: fragments of 16 by 32 and 32 by
/// 8 codes, whose words lie as those of pairs do above.
struct FragmentOfCodes {
  std::int32_t sums[4] = {};
};

TENON_DEVICE std::int32_t product_of_words(std::uint32_t a, std::uint32_t b) {
  std::int32_t sum = 0;
  for (unsigned shift = 0; shift < 32; shift += 8) {
    sum += static_cast<std::int8_t>(a >> shift) * static_cast<std::int8_t>(b >> shift);
  }
  return sum;
}

/// c += a b, of i8; modulo 2^32. For whole warps.
TENON_DEVICE void multiply_codes(const Thread& thread, const FragmentA& a, const FragmentB& b,
                                 FragmentOfCodes& c) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  (void)thread;
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+r"(c.sums[0]), "+r"(c.sums[1]), "+r"(c.sums[2]), "+r"(c.sums[3])
      : "r"(a.pairs[0]), "r"(a.pairs[1]), "r"(a.pairs[2]), "r"(a.pairs[3]), "r"(b.pairs[0]),
        "r"(b.pairs[1]));
#elif defined(__CUDA_ARCH__)
  (void)thread;
  for (int far = 0; far < 2; ++far) {
    for (int lower = 0; lower < 2; ++lower) {
      asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%0,%1};"
                   : "+r"(c.sums[2 * lower]), "+r"(c.sums[2 * lower + 1])
                   : "r"(a.pairs[2 * far + lower]), "r"(b.pairs[far]));
    }
  }
#else
  const unsigned g = lane_of(thread) / 4, t = lane_of(thread) % 4;
  for (unsigned q = 0; q < 4; ++q) {
    for (unsigned far = 0; far < 2; ++far) {
      std::uint32_t rows[2], columns[2];
      for (unsigned i = 0; i < 2; ++i) {
        rows[i] = thread.shuffle(a.pairs[2 * far + i], 4 * g + q);
        columns[i] = thread.shuffle(b.pairs[far], 4 * (2 * t + i) + q);
      }
      for (unsigned i = 0; i < 4; ++i) {
        const std::int32_t product = product_of_words(rows[i / 2], columns[i % 2]);
        c.sums[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(c.sums[i]) +
                                              static_cast<std::uint32_t>(product));
      }
    }
  }
#endif
}

}  // namespace tenon::cuda
