// What this machine can do at most, measured: f32 multiply-adds, integer dot products and reading
// memory. Other benchmarks print their fraction of these.
//
//   bench_limits [--threads N] [--seconds S]

#include "limits.hpp"

#include "backends/cpu/cpu_features.hpp"
#include "backends/cpu/thread_pool.hpp"

#include <cstdlib>
#include <string_view>

#include <fmt/format.h>

int main(int argc, char** argv) {
  int threads = 0;
  double seconds = 0.3;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view option = argv[i];
    if (option == "--threads") threads = std::atoi(argv[i + 1]);
    if (option == "--seconds") seconds = std::atof(argv[i + 1]);
  }
  tenon::cpu::ThreadPool pool(threads);
  const tenon::bench::Limits limits = tenon::bench::measure_limits(pool, seconds);
  fmt::print("level {}, {} threads\n", name(tenon::cpu::active_isa()), pool.threads());
  fmt::print("f32 multiply-add  {:8.1f} Gop/s\n", limits.f32_ops * 1e-9);
  fmt::print("int8 dot product  {:8.1f} Gop/s\n", limits.int8_ops * 1e-9);
  fmt::print("bf16 tiles        {:8.1f} Gop/s\n", limits.bf16_ops * 1e-9);
  fmt::print("reading memory    {:8.1f} GB/s\n", limits.read_bytes * 1e-9);
}
