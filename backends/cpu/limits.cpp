#include "limits.hpp"

#include "matmul/aligned_buffer.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <span>
#include <vector>

#include <fmt/format.h>
#include <immintrin.h>

namespace tenon::cpu {
namespace {

// Enough independent chains to hide the latency of an instruction on two ports.
constexpr int chains = 12;
constexpr int chain_steps = 2000;

// Keeps a vector alive without storing it. A macro, for a function would need the target of its
// caller.
#define KEEP(value) asm volatile("" : "+v"(value))

// A function `name` that does a step on each chain s over and over, and returns the operations
// done, `lanes` multiply-adds each. A macro for the same reason.
#define CHAINS(name, isa, Vector, lanes, a_is, b_is, ...)   \
  __attribute__((target(isa))) double name() {              \
    Vector sum[chains] = {};                                \
    auto a = a_is;                                          \
    auto b = b_is;                                          \
    for (int i = 0; i < chain_steps; ++i) {                 \
      _Pragma("GCC unroll 12") for (auto& s : sum) {        \
        KEEP(a);                                            \
        s = __VA_ARGS__;                                    \
      }                                                     \
      _Pragma("GCC unroll 12") for (auto& s : sum) KEEP(s); \
    }                                                       \
    return 2.0 * lanes * chains * chain_steps;              \
  }

CHAINS(fma_avx2, "avx2,fma", __m256, 8, _mm256_set1_ps(1.0f), _mm256_set1_ps(0.5f),
       _mm256_fmadd_ps(a, b, s))
CHAINS(fma_avx512, "avx512f", __m512, 16, _mm512_set1_ps(1.0f), _mm512_set1_ps(0.5f),
       _mm512_fmadd_ps(a, b, s))
CHAINS(dot_avx_vnni, "avx2,avxvnni", __m256i, 32, _mm256_set1_epi8(3), _mm256_set1_epi8(-2),
       _mm256_dpbusd_avx_epi32(s, a, b))
CHAINS(dot_avx512, "avx512f,avx512vnni", __m512i, 64, _mm512_set1_epi8(3), _mm512_set1_epi8(-2),
       _mm512_dpbusd_epi32(s, a, b))
CHAINS(bf16_avx512, "avx512f,avx512bf16", __m512, 32, _mm512_set1_ps(1.0f),
       _mm512_cvtne2ps_pbh(a, a), _mm512_dpbf16_ps(s, b, b))
// Without integer dot products: two multiplies and an add for each vector of products.
CHAINS(dot_avx2, "avx2", __m256i, 32, _mm256_set1_epi8(3), _mm256_set1_epi8(-2),
       _mm256_add_epi32(s, _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), _mm256_set1_epi16(1))))
CHAINS(dot_avx512_pairs, "avx512f,avx512bw", __m512i, 64, _mm512_set1_epi8(3), _mm512_set1_epi8(-2),
       _mm512_add_epi32(s, _mm512_madd_epi16(_mm512_maddubs_epi16(a, b), _mm512_set1_epi16(1))))
// Codes of four bits: eight sums of pairs fit 16 bits, so widening costs an eighth.
CHAINS(dot_avx2_delayed, "avx2", __m256i, 32, _mm256_set1_epi8(3), _mm256_set1_epi8(-2),
       _mm256_add_epi16(s, _mm256_maddubs_epi16(a, b)))

// Constants, since GCC's tile intrinsics do not say that they read memory.
struct alignas(64) TileConfiguration {
  std::uint8_t palette = 1, start = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
constinit const TileConfiguration tile_configuration;
alignas(64) constinit const std::uint16_t zeros[512] = {};

__attribute__((target("amx-tile,amx-bf16"))) double tiles_amx() {
  _tile_loadconfig(&tile_configuration);
  _tile_loadd(4, zeros, 64);
  _tile_loadd(5, zeros, 64);
  _tile_loadd(6, zeros, 64);
  _tile_loadd(7, zeros, 64);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int i = 0; i < chain_steps; ++i) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
  return 2.0 * 16 * 16 * 32 * 4 * chain_steps;
}

__attribute__((target("avx2"))) std::uint64_t read_all(const std::byte* data, std::size_t bytes) {
  __m256i sum[8];
#pragma GCC unroll 12
  for (auto& s : sum) s = _mm256_setzero_si256();
  for (std::size_t i = 0; i + 256 <= bytes; i += 256) {
#pragma GCC unroll 8
    for (std::size_t j = 0; j < 8; ++j) {
      const auto* p = reinterpret_cast<const __m256i*>(data + i + 32 * j);
      sum[j] = _mm256_xor_si256(sum[j], _mm256_load_si256(p));
    }
  }
#pragma GCC unroll 12
  for (auto& s : sum) KEEP(s);
  return bytes;
}

// CPU time of this thread, so that noisy neighbours do not lower the results.
double thread_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// The best rate of `work`, which returns what it did, over calls on all threads of the pool at
// once.
template <class Work>
double rate(ThreadPool& pool, double seconds, const Work& work) {
  double best = 0.0;
  for (int round = 0; round < 5; ++round) {
    std::vector<double> rates(static_cast<std::size_t>(pool.threads()));
    pool.run([&](Worker& w) {
      if (!w.sync()) return;
      const double begin = thread_seconds();
      double done = 0.0, elapsed = 0.0;
      do {
        done += work(w);
        elapsed = thread_seconds() - begin;
      } while (elapsed < seconds / 5);
      rates[static_cast<std::size_t>(w.thread)] = done / elapsed;
    });
    double sum = 0.0;
    for (const double r : rates) sum += r;
    best = std::max(best, sum);
  }
  return best;
}

}  // namespace

std::span<const Peak> peaks() {
  static constexpr Peak all[] = {
      {"f32 FMA, 256 bits", Isa::avx2, Number::f32, fma_avx2},
      {"f32 FMA, 512 bits", Isa::avx512, Number::f32, fma_avx512},
      {"int8 maddubs + madd, 256 bits", Isa::avx2, Number::int8, dot_avx2},
      {"int8 maddubs, widened later, 256 bits", Isa::avx2, Number::int4, dot_avx2_delayed},
      {"int8 dpbusd, 256 bits", Isa::avx_vnni, Number::int8, dot_avx_vnni},
      {"int8 maddubs + madd, 512 bits", Isa::avx512, Number::int8, dot_avx512_pairs},
      {"int8 dpbusd, 512 bits", Isa::avx512_vnni, Number::int8, dot_avx512},
      {"bf16 dpbf16ps, 512 bits", Isa::amx, Number::bf16, bf16_avx512},
      {"bf16 AMX tiles", Isa::amx, Number::bf16, tiles_amx},
  };
  return all;
}

double measure(const Peak& peak, ThreadPool& pool, double seconds) {
  return supports(peak.needs) ? rate(pool, seconds, [&](Worker&) { return peak.run(); }) : 0.0;
}

double measure_reading(ThreadPool& pool, std::size_t bytes, double seconds) {
  if (!supports(Isa::avx2)) return 0.0;
  const std::size_t share = bytes / static_cast<std::size_t>(pool.threads()) / 256 * 256;
  AlignedBuffer memory(share * static_cast<std::size_t>(pool.threads()));
  const auto own = [&](const Worker& w) {
    return memory.data() + share * static_cast<std::size_t>(w.thread);
  };
  pool.run([&](Worker& w) { std::memset(own(w), 1, share); });
  return rate(pool, seconds,
              [&](Worker& w) { return static_cast<double>(read_all(own(w), share)); });
}

Limits measure_limits(ThreadPool& pool, double seconds) {
  const Isa level = active_isa();
  const auto is_allowed = [&](const Peak& peak) {
    if (!supports(peak.needs)) return false;
    if (peak.needs == Isa::avx_vnni) return level == Isa::avx_vnni;
    return peak.needs <= level && !(level == Isa::avx_vnni && peak.needs > Isa::avx_vnni);
  };
  // Of each kind the last allowed one, which is of the highest instruction set.
  const auto highest = [&](Number number) {
    const Peak* found = nullptr;
    for (const Peak& peak : peaks()) {
      if (peak.number == number && is_allowed(peak)) found = &peak;
    }
    return found == nullptr ? 0.0 : measure(*found, pool, seconds);
  };
  Limits limits{highest(Number::f32), highest(Number::int8), highest(Number::bf16), 0.0};
  const std::size_t large = (std::size_t{128} << 20) * static_cast<std::size_t>(pool.threads());
  limits.read_bytes = measure_reading(pool, large, seconds);
  return limits;
}

Limits measure_limits(int threads, double seconds) {
  if (threads < 0) {
    throw Error(Errc::bad_argument, "measure_limits", fmt::format("{} threads", threads));
  }
  ThreadPool pool(threads);
  return measure_limits(pool, seconds);
}

}  // namespace tenon::cpu
