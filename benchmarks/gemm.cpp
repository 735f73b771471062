// Speed of linear layers by weight type and number of rows, as a fraction of what the machine can
// do: one row against reading memory, many rows against integer dot products or bf16 tiles.
//
//   bench_gemm [--threads N] [--outputs N] [--inputs K] [--isa LEVEL] [--type TYPE]

#include "backends/cpu/matmul/matmul.hpp"
#include "backends/cpu/thread_pool.hpp"
#include "limits.hpp"
#include "timing.hpp"

#include <tenon/error.hpp>
#include <tenon/quant.hpp>

#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

namespace {

using namespace tenon;
using namespace tenon::cpu;

struct Options {
  int threads = 0;
  std::int64_t outputs = 2048, inputs = 2048;
  std::string type;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    const std::string value = argv[i + 1];
    if (name == "--threads") options.threads = std::stoi(value);
    if (name == "--outputs") options.outputs = std::stoll(value);
    if (name == "--inputs") options.inputs = std::stoll(value);
    if (name == "--type") options.type = value;
    if (name == "--isa") {
      const auto isa = find_isa(value);
      if (!isa) throw Error(Errc::bad_argument, "bench_gemm", "no level " + value);
      set_active_isa(*isa);
    }
  }
  return options;
}

// Copies of one matrix, enough that one row's worth of work comes from memory, not from cache.
std::vector<PackedWeights> copies(ThreadPool& pool, DType dtype, const Options& options,
                                  std::mt19937& random) {
  std::normal_distribution<float> normal(0.0f, 0.02f);
  std::vector<float> values(static_cast<std::size_t>(options.outputs * options.inputs));
  for (float& v : values) v = normal(random);
  const std::int64_t count = options.outputs * options.inputs;
  std::vector<std::byte> blocks(
      static_cast<std::size_t>(count / block_size(dtype) * block_bytes(dtype)));
  quantize(dtype, values.data(), blocks.data(), count);
  std::vector<PackedWeights> weights;
  std::size_t bytes = 0;
  while (bytes < (std::size_t{256} << 20)) {
    PackedWeights& w = weights.emplace_back(dtype, options.outputs, options.inputs);
    pool.run([&](Worker& worker) { w.pack(blocks.data(), worker.thread, worker.threads); });
    bytes += w.bytes().size();
  }
  return weights;
}

void measure(ThreadPool& pool, DType dtype, const Options& options, const bench::Limits& limits) {
  std::mt19937 random(1);
  const std::vector<PackedWeights> weights = copies(pool, dtype, options, random);
  const std::int64_t n = options.outputs, k = options.inputs;
  std::normal_distribution<float> normal;
  for (const std::int64_t rows : {1, 4, 8, 32, 128, 512}) {
    std::vector<float> x(static_cast<std::size_t>(rows * k)), y(static_cast<std::size_t>(rows * n));
    for (float& v : x) v = normal(random);
    const RowForm form = PreparedRows::preferred_form(rows);
    AlignedBuffer memory(is_block(dtype) ? PreparedRows::size_bytes(form, rows, k) : 0);
    const PreparedRows prepared(form, rows, k, memory.data());
    std::size_t next = 0;
    const double seconds = bench::shortest([&] {
      LinearArgs args;
      args.weights = &weights[next++ % weights.size()];
      args.rows = rows;
      args.y = y.data();
      args.y_stride = n;
      pool.run([&](Worker& worker) {
        if (is_block(dtype)) {
          args.prepared = &prepared;
          prepare_rows(x.data(), k, prepared, worker.thread, worker.threads);
          worker.barrier.wait();
        } else {
          args.x = x.data();
          args.x_stride = k;
        }
        linear(args, worker.thread, worker.threads);
      });
    });
    const double ops = 2.0 * static_cast<double>(rows * n * k) / seconds;
    const double bytes = static_cast<double>(weights[0].bytes().size()) / seconds;
    const double peak = !is_block(dtype)        ? limits.f32_ops
                        : form == RowForm::bf16 ? limits.bf16_ops
                                                : limits.int8_ops;
    fmt::print("{:7} {:5} {:10.3f} {:10.1f} {:5.0f} % {:10.1f} {:5.0f} %\n", name(dtype), rows,
               seconds * 1e3, ops * 1e-9, peak > 0 ? 100.0 * ops / peak : 0.0, bytes * 1e-9,
               100.0 * bytes / limits.read_bytes);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  const Options options = parse(argc, argv);
  ThreadPool pool(options.threads);
  const bench::Limits limits = bench::measure_limits(pool, 0.3);
  fmt::print("level {}, {} threads; W [{}, {}]\n", name(active_isa()), pool.threads(),
             options.outputs, options.inputs);
  fmt::print("limits: f32 {:.0f}, int8 {:.0f}, bf16 tiles {:.0f} Gop/s, reading {:.1f} GB/s\n",
             limits.f32_ops * 1e-9, limits.int8_ops * 1e-9, limits.bf16_ops * 1e-9,
             limits.read_bytes * 1e-9);
  fmt::print("type     rows         ms     Gop/s of limit  weight GB/s of limit\n");
  for (int i = 0; i < dtype_count; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (!PackedWeights::is_packable(dtype) || options.inputs % block_size(dtype) != 0) continue;
    if (options.type.empty() || name(dtype) == options.type) {
      measure(pool, dtype, options, limits);
    }
  }
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 2;
}
