#pragma once

// Packed weights as bf16 tiles. Included after simd/avx512.hpp, panel_body.hpp and tiles_amx.hpp,
// by AMX sources only.
//
// Panels of bf16 weights are stored as tiles. Other types are widened, or rounded, to bf16 first:
// with a scale per 32 elements, integer tiles would have to be rescaled after every instruction.
// Widening the weights once per block of rows costs less, keeps the sums in the tiles, and is
// closer to the f32 result than 8-bit activations are.
#include <cstddef>
#include <cstdint>

namespace tenon::cpu::amx {
namespace {

// Elements of k of two panels that all rows are multiplied by before the next ones: these weights
// stay in L1 meanwhile. Tiles would wait if both operands came from L2; one operand and the sums
// come from there fast enough.
constexpr std::int64_t tile_depth = 256, max_tile_depth = 384;

/// Widens [first, last) of k of a panel to tiles of 16 pairs of k by 16 rows of W.
template <DType dtype>
void widen_panel(const LinearOperands& job, const std::byte* bytes, std::int64_t first,
                 std::int64_t last, std::uint16_t* out) {
  using Packed = PackedPanel<dtype>;
  constexpr int subs = 32 / Packed::group;
  const auto* start = reinterpret_cast<const std::uint8_t*>(bytes);
  const Packed packed = Packed::at(start, job, 0);
  for (std::int64_t g = first / 32; g < last / 32; g += Packed::groups_per_record) {
    const auto record = packed.record(g);
    const int groups = groups_of_record<Packed>(g, last / 32);
    for (int i = 0; i < groups; ++i) {
      const std::uint8_t* codes = packed.codes(g, i);
      std::uint16_t* tile = out + (g + i - first / 32) * tile_elements;
      unroll<subs>([&]<int sub>() __attribute__((always_inline)) {
        const Float scale = record.scale(i * subs + sub);
        Float base;
        if constexpr (Packed::has_min) {
          base = record.min(i * subs + sub);
        } else {
          base = Simd::mul(scale, _mm512_set1_ps(-static_cast<float>(Packed::offset)));
        }
        unroll<8 / subs>([&]<int q>() __attribute__((always_inline)) {
          constexpr int j = sub * (8 / subs) + q;
          const Int v = Packed::template vector<j>(codes, packed.book);
          const Float w0 = Simd::fma(Simd::byte_to_float<0>(v), scale, base);
          const Float w1 = Simd::fma(Simd::byte_to_float<1>(v), scale, base);
          const Float w2 = Simd::fma(Simd::byte_to_float<2>(v), scale, base);
          const Float w3 = Simd::fma(Simd::byte_to_float<3>(v), scale, base);
          Simd::store(tile + 64 * j, pair(w0, w1));
          Simd::store(tile + 64 * j + 32, pair(w2, w3));
        });
      });
    }
  }
}

/// f16: rows 2 i and 2 i + 1 of k, side by side.
void round_panel(const std::byte* panel, std::int64_t first, std::int64_t last,
                 std::uint16_t* out) {
  const auto* in = reinterpret_cast<const std::uint16_t*>(panel);
  for (std::int64_t k = first; k < last; k += 2, out += 32) {
    Simd::store(out, pair(Simd::load_f16(in + 16 * k), Simd::load_f16(in + 16 * k + 16)));
  }
}

void widen_panel(const LinearOperands& job, const std::byte* panel, std::int64_t first,
                 std::int64_t last, std::uint16_t* out) {
  if (job.dtype == DType::f16) return round_panel(panel, first, last, out);
  with_block_kernel(job.dtype,
                    [&]<DType dtype>() { widen_panel<dtype>(job, panel, first, last, out); });
}

/// bf16 numbers of a panel's longest range of k.
constexpr std::int64_t max_panel_elements = 16 * max_tile_depth;

/// Elements [first, last) of k of one panel, or of two where `two`, as tiles: in place, or at
/// `scratch`, which has room for max_panel_elements of two panels.
Tiles weight_tiles(const LinearOperands& job, const std::byte* panel, bool two, std::int64_t first,
                   std::int64_t last, std::uint16_t* scratch) {
  if (job.dtype == DType::bf16) {
    return {reinterpret_cast<const std::uint16_t*>(panel) + 16 * first,
            two ? static_cast<std::int64_t>(job.panel_bytes / sizeof(std::uint16_t)) : 0};
  }
  std::uint16_t* second = scratch + max_panel_elements;
  widen_panel(job, panel, first, last, scratch);
  if (two) widen_panel(job, panel + job.panel_bytes, first, last, second);
  return {scratch, two ? max_panel_elements : 0};
}

}  // namespace
}  // namespace tenon::cpu::amx
