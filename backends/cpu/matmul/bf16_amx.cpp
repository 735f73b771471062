// Linear layers of block types on bf16 rows, by AMX tiles: y = x W^T with products of bf16 numbers
// summed in f32.
//
// A scale per 32 elements would make integer tiles stop for a rescaling after every instruction.
// Widening the weights to bf16 once per block of rows costs less, keeps the sums in the tiles, and
// is closer to the f32 result than eight-bit activations are.

// The vectors first: the bodies are written in terms of them.
// clang-format off
#include "simd_avx512.hpp"
#include "panel_body.hpp"
#include "tiles_amx.hpp"
// clang-format on

#include <type_traits>

namespace tenon::cpu::amx {
namespace {

// Elements of k between visits to the sums. Sums stay in tiles for all of k unless K is larger;
// from level-two cache the widened weights come as fast as the tiles take them.
constexpr std::int64_t stretch = 2048;

struct TileScratch {
  alignas(64) std::uint16_t weights[2 * 16 * stretch];  // two panels, tiles of 32 elements of k
  alignas(64) float sums[max_tile_rows * 32];
};

/// Widens [first, last) of k of a panel to tiles of 16 pairs of k by 16 rows of W.
template <DType dtype>
void widen_panel(const LinearJob& job, const std::byte* bytes, std::int64_t first,
                 std::int64_t last, std::uint16_t* out) {
  using Packed = PackedPanel<dtype>;
  constexpr int subs = 32 / Packed::group;
  const auto* start = reinterpret_cast<const std::uint8_t*>(bytes);
  const Packed packed{start, start + job.scale_bytes, 0};
  for (std::int64_t g = first / 32; g < last / 32; g += Packed::groups_per_record) {
    const auto record = packed.record(g);
    for (int i = 0; i < Packed::groups_per_record; ++i) {
      const std::uint8_t* codes = packed.codes(g + i);
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
          const Int v = Packed::template vector<j>(codes);
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

/// Sixteen-bit weights: rows 2 i and 2 i + 1 of k, side by side.
template <DType dtype>
void interleave_panel(const std::byte* panel, std::int64_t first, std::int64_t last,
                      std::uint16_t* out) {
  const auto* in = reinterpret_cast<const std::uint16_t*>(panel);
  for (std::int64_t k = first; k < last; k += 2, out += 32) {
    const std::uint16_t* even = in + 16 * k;
    if constexpr (dtype == DType::f16) {
      Simd::store(out, pair(Simd::load_f16(even), Simd::load_f16(even + 16)));
    } else {
      const auto widened = [](const std::uint16_t* p) {
        return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
      };
      Simd::store(out, _mm512_or_si512(widened(even), _mm512_slli_epi32(widened(even + 16), 16)));
    }
  }
}

void widen_panel(const LinearJob& job, const std::byte* panel, std::int64_t first,
                 std::int64_t last, std::uint16_t* out) {
  switch (job.dtype) {
    case DType::f16:
      return interleave_panel<DType::f16>(panel, first, last, out);
    case DType::bf16:
      return interleave_panel<DType::bf16>(panel, first, last, out);
    case DType::q4_0:
      return widen_panel<DType::q4_0>(job, panel, first, last, out);
    case DType::q4_1:
      return widen_panel<DType::q4_1>(job, panel, first, last, out);
    case DType::q5_0:
      return widen_panel<DType::q5_0>(job, panel, first, last, out);
    case DType::q5_1:
      return widen_panel<DType::q5_1>(job, panel, first, last, out);
    case DType::q8_0:
      return widen_panel<DType::q8_0>(job, panel, first, last, out);
    case DType::q2_k:
      return widen_panel<DType::q2_k>(job, panel, first, last, out);
    case DType::q3_k:
      return widen_panel<DType::q3_k>(job, panel, first, last, out);
    case DType::q4_k:
      return widen_panel<DType::q4_k>(job, panel, first, last, out);
    case DType::q5_k:
      return widen_panel<DType::q5_k>(job, panel, first, last, out);
    case DType::q6_k:
      return widen_panel<DType::q6_k>(job, panel, first, last, out);
    case DType::iq4_nl:
      return widen_panel<DType::iq4_nl>(job, panel, first, last, out);
    case DType::iq4_xs:
      return widen_panel<DType::iq4_xs>(job, panel, first, last, out);
    default:
      return;
  }
}

}  // namespace

void linear_tiles(const LinearJob& job, const LinearBlock& block) noexcept {
  TileScratch scratch;
  _tile_loadconfig(&tile_configuration);
  const std::int64_t row_block = job.inputs / 32 * tile_elements;
  const std::int64_t rows = block.last_row - block.first_row;
  for (std::int64_t p = block.first_panel; p < block.last_panel; p += 2) {
    const std::byte* first = job.panels + static_cast<std::size_t>(p) * job.panel_bytes;
    const bool two = p + 1 < block.last_panel;
    for (std::int64_t k = 0; k == 0 || k < job.inputs; k += stretch) {
      const std::int64_t last = smaller(k + stretch, job.inputs);
      widen_panel(job, first, k, last, scratch.weights);
      // A single panel is multiplied twice; its second result is not read.
      const std::int64_t w_step = two ? 16 * stretch : 0;
      if (two) widen_panel(job, first + job.panel_bytes, k, last, scratch.weights + w_step);
      for (std::int64_t r = 0; r < rows; r += 32) {
        const std::int64_t row = block.first_row + r;
        const std::int64_t count = smaller(32, rows - r);
        float* sums = job.inputs <= stretch ? scratch.sums : scratch.sums + r * 32;
        const std::uint16_t* x = job.tiles + row / 16 * row_block + k / 32 * tile_elements;
        tile_32x32(x, row_block, scratch.weights, w_step, (last - k) / 32, k != 0, sums, 32);
        if (last < job.inputs) continue;
        write_rows(job, p, row, count, sums, 32);
        if (two) write_rows(job, p + 1, row, count, sums + 16, 32);
        activate(job, p, two ? 2 : 1, row, count);
      }
    }
  }
  _tile_release();
}

void round_rows(const float* x, std::int64_t stride, std::int64_t count, std::int64_t inputs,
                std::uint16_t* tiles) noexcept {
  // A few tiles at a time: lines of one tile follow one another, those of a row's tiles lie apart.
  constexpr std::int64_t at_once = 4 * 32;
  const std::int64_t row_block = inputs / 32 * tile_elements;
  for (std::int64_t half = 0; half < 32; half += 16) {
    std::uint16_t* const out = tiles + half / 16 * row_block;
    for (std::int64_t first = 0; first < inputs; first += at_once) {
      const std::int64_t last = smaller(first + at_once, inputs);
      for (std::int64_t r = 0; r < 16; ++r) {
        const float* row = x + (half + r) * stride;
        std::uint16_t* to = out + first / 32 * tile_elements + r * 32;
        for (std::int64_t k = first; k < last; k += 32, to += tile_elements) {
          __m512i rounded = _mm512_setzero_si512();
          if (half + r < count) {
            rounded = reinterpret_cast<__m512i>(
                _mm512_cvtne2ps_pbh(_mm512_loadu_ps(row + k + 16), _mm512_loadu_ps(row + k)));
          }
          Simd::store(to, rounded);
        }
      }
    }
  }
}

}  // namespace tenon::cpu::amx
