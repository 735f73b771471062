// f32 matrix products beside OpenBLAS and oneDNN, in turns on the same arrays.
//
//   bench_products [--threads N] [--size S]
//
// On one thread times are processor times, else those of the clock. OpenBLAS picks its kernels by
// CPU model; where it does not know the model, OPENBLAS_CORETYPE (SkylakeX, Haswell, ...) tells it.
#include "backends/cpu/matmul/matmul.hpp"
#include "backends/cpu/thread_pool.hpp"
#include "limits.hpp"
#include "timing.hpp"

#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#ifdef TENON_HAS_OPENBLAS
#include <cblas-openblas.h>
#endif
#ifdef TENON_HAS_DNNL
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#endif

namespace {

using namespace tenon;
using namespace tenon::cpu;

struct Product {
  std::int64_t m, n, k;
};

void ours(ThreadPool& pool, const Product& p, const float* a, const float* b, float* c) {
  const MatmulArgs args{.m = p.m,
                        .n = p.n,
                        .k = p.k,
                        .a = a,
                        .a_row = p.k,
                        .b = b,
                        .b_row = p.n,
                        .c = c,
                        .c_row = p.n};
  pool.run([&](Worker& worker) { matmul(args, worker.thread, worker.threads); });
}

struct Times {
  double ours = 1e30, openblas = 1e30, dnnl = 1e30;
};

/// In turns, so that all meet the machine in the same state.
Times measure(ThreadPool& pool, const Product& p) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  const auto array = [&](std::int64_t count) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& v : values) v = normal(random);
    return values;
  };
  const std::vector<float> a = array(p.m * p.k), b = array(p.k * p.n);
  std::vector<float> c(static_cast<std::size_t>(p.m * p.n));
  const auto shortest = [&](const auto& run) {
    return pool.threads() == 1 ? bench::shortest_alone(run, 0.1) : bench::shortest(run, 0.1);
  };
  Times times;
  for (int round = 0; round < 5; ++round) {
    times.ours =
        std::min(times.ours, shortest([&] { ours(pool, p, a.data(), b.data(), c.data()); }));
#ifdef TENON_HAS_OPENBLAS
    times.openblas =
        std::min(times.openblas, shortest([&] {
                   cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, static_cast<int>(p.m),
                               static_cast<int>(p.n), static_cast<int>(p.k), 1.0f, a.data(),
                               static_cast<int>(p.k), b.data(), static_cast<int>(p.n), 0.0f,
                               c.data(), static_cast<int>(p.n));
                 }));
#endif
#ifdef TENON_HAS_DNNL
    times.dnnl = std::min(times.dnnl, shortest([&] {
                            dnnl_sgemm('N', 'N', p.m, p.n, p.k, 1.0f, a.data(), p.k, b.data(), p.n,
                                       0.0f, c.data(), p.n);
                          }));
#endif
  }
  return times;
}

}  // namespace

int main(int argc, char** argv) try {
  int threads = 0;
  std::int64_t size = 0;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    if (name == "--threads") threads = std::stoi(argv[i + 1]);
    if (name == "--size") size = std::stoll(argv[i + 1]);
  }
  ThreadPool pool(threads);
#ifdef TENON_HAS_OPENBLAS
  openblas_set_num_threads(pool.threads());
  fmt::print("OpenBLAS: {}\n", openblas_get_config());
#endif
#ifdef TENON_HAS_DNNL
  omp_set_num_threads(pool.threads());
#endif
  const bench::Limits limits = bench::measure_limits(pool, 0.3);
  fmt::print("level {}, {} threads, {:.1f} Gop/s of f32 at most\n", name(active_isa()),
             pool.threads(), limits.f32_ops * 1e-9);
  fmt::print("{:>6}{:>6}{:>6} {:>16} {:>16} {:>16}  Gop/s (share of the limit)\n", "m", "n", "k",
             "tenon", "OpenBLAS", "oneDNN");
  std::vector<Product> products;
  if (size > 0) {
    products.push_back({size, size, size});
  } else {
    products = {{128, 128, 128},    {256, 256, 256}, {512, 512, 512}, {1024, 1024, 1024},
                {2048, 2048, 2048}, {64, 3136, 576}, {512, 49, 4608}, {8, 2048, 2048},
                {1000, 1000, 1000}, {128, 8192, 128}};
  }
  for (const Product& p : products) {
    const Times times = measure(pool, p);
    const auto column = [&](double seconds) {
      if (seconds > 1e29) return std::string("-");
      const double rate = 2.0 * static_cast<double>(p.m * p.n * p.k) / seconds;
      return fmt::format("{:.1f} ({:.0f} %)", rate * 1e-9, 100 * rate / limits.f32_ops);
    };
    fmt::print("{:6}{:6}{:6} {:>16} {:>16} {:>16}\n", p.m, p.n, p.k, column(times.ours),
               column(times.openblas), column(times.dnnl));
  }
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 2;
}
