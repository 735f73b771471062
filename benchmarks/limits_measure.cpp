#include "backends/cpu/matmul/aligned_buffer.hpp"
#include "limits.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <vector>

#include <immintrin.h>

namespace tenon::bench {
namespace {

using cpu::Isa;

// Enough independent chains to hide the latency of an instruction on two ports.
constexpr int chains = 12;
constexpr int steps = 2000;

// Keeps a vector alive without storing it. A macro, for a function would need the target of its
// caller.
#define KEEP(value) asm volatile("" : "+v"(value))

__attribute__((target("avx512f"))) double fma_avx512() {
  __m512 sum[chains];
#pragma GCC unroll 12
  for (auto& s : sum) s = _mm512_setzero_ps();
  const __m512 a = _mm512_set1_ps(1.0f), b = _mm512_set1_ps(0.5f);
  for (int i = 0; i < steps; ++i) {
#pragma GCC unroll 12
    for (auto& s : sum) s = _mm512_fmadd_ps(a, b, s);
#pragma GCC unroll 12
    for (auto& s : sum) KEEP(s);
  }
  return 2.0 * 16 * chains * steps;
}

__attribute__((target("avx2,fma"))) double fma_avx2() {
  __m256 sum[chains];
#pragma GCC unroll 12
  for (auto& s : sum) s = _mm256_setzero_ps();
  const __m256 a = _mm256_set1_ps(1.0f), b = _mm256_set1_ps(0.5f);
  for (int i = 0; i < steps; ++i) {
#pragma GCC unroll 12
    for (auto& s : sum) s = _mm256_fmadd_ps(a, b, s);
#pragma GCC unroll 12
    for (auto& s : sum) KEEP(s);
  }
  return 2.0 * 8 * chains * steps;
}

__attribute__((target("avx512f,avx512vnni"))) double dot_avx512() {
  __m512i sum[chains];
#pragma GCC unroll 12
  for (auto& s : sum) s = _mm512_setzero_si512();
  const __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(-2);
  for (int i = 0; i < steps; ++i) {
#pragma GCC unroll 12
    for (auto& s : sum) s = _mm512_dpbusd_epi32(s, a, b);
#pragma GCC unroll 12
    for (auto& s : sum) KEEP(s);
  }
  return 2.0 * 64 * chains * steps;
}

// Without integer dot products: two multiplies and an add per 32 products.
__attribute__((target("avx2"))) double dot_avx2() {
  __m256i sum[chains];
#pragma GCC unroll 12
  for (auto& s : sum) s = _mm256_setzero_si256();
  __m256i a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(-2), ones = _mm256_set1_epi16(1);
  for (int i = 0; i < steps; ++i) {
#pragma GCC unroll 12
    for (auto& s : sum) {
      KEEP(a);
      s = _mm256_add_epi32(s, _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), ones));
    }
#pragma GCC unroll 12
    for (auto& s : sum) KEEP(s);
  }
  return 2.0 * 32 * chains * steps;
}

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
  for (int i = 0; i < steps; ++i) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
  return 2.0 * 16 * 16 * 32 * 4 * steps;
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

// Time that this thread has had a core: other programs on the machine then lower no result.
double thread_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// The best rate of `work`, which returns what it did, over calls on all threads of the pool at
// once.
template <class Work>
double rate(cpu::ThreadPool& pool, double seconds, const Work& work) {
  double best = 0.0;
  for (int round = 0; round < 5; ++round) {
    std::vector<double> rates(static_cast<std::size_t>(pool.threads()));
    pool.run([&](cpu::Worker& w) {
      w.barrier.wait();
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

Limits measure_limits(cpu::ThreadPool& pool, double seconds) {
  Limits limits;
  if (supports(Isa::avx512)) {
    limits.f32_ops = rate(pool, seconds, [](cpu::Worker&) { return fma_avx512(); });
  } else if (supports(Isa::avx2)) {
    limits.f32_ops = rate(pool, seconds, [](cpu::Worker&) { return fma_avx2(); });
  }
  if (supports(Isa::avx512_vnni)) {
    limits.int8_ops = rate(pool, seconds, [](cpu::Worker&) { return dot_avx512(); });
  } else if (supports(Isa::avx2)) {
    limits.int8_ops = rate(pool, seconds, [](cpu::Worker&) { return dot_avx2(); });
  }
  if (supports(Isa::amx)) {
    limits.bf16_ops = rate(pool, seconds, [](cpu::Worker&) { return tiles_amx(); });
  }
  if (supports(Isa::avx2)) {
    constexpr std::size_t share = std::size_t{128} << 20;
    cpu::AlignedBuffer memory(share * static_cast<std::size_t>(pool.threads()));
    pool.run([&](cpu::Worker& w) {
      std::memset(memory.data() + share * static_cast<std::size_t>(w.thread), 1, share);
    });
    limits.read_bytes = rate(pool, seconds, [&](cpu::Worker& w) {
      return static_cast<double>(
          read_all(memory.data() + share * static_cast<std::size_t>(w.thread), share));
    });
  }
  return limits;
}

}  // namespace tenon::bench
