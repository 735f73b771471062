// Matrix multiplications y = x W^T (GEMM, with one row GEMV) by weight type and number of rows,
// compared with OpenBLAS, oneDNN and ggml, and as shares of the machine's limits: arithmetic for
// many rows, memory bandwidth for few.
//
//   bench_gemm [--threads N] [--outputs N] [--inputs K] [--rows M,...] [--type TYPE,...]
//              [--cube S,...] [--ggml FOLDER] [--isa LEVEL] [--seconds S] [--accuracy yes]
//
// Without --rows 1 to 2048 of them, without --type all; the type "blocks" is all of those.
// `--accuracy yes` measures errors instead of times, see gemm_accuracy.hpp.
//
// Weights are packed beforehand wherever a library can; Tenon's times include the quantisation of x
// that its block types take, ggml's as well. `--cube S` multiplies two S x S matrices of f32
// instead, neither packed beforehand. `--ggml` names a folder with libggml-base.so and
// libggml-cpu.so. Runs of all libraries are interleaved, `--seconds` each for a size; medians are
// printed, and for each other library Tenon's speed as a multiple of its own. OpenBLAS picks its
// kernels by CPU model; where it does not know the model, set OPENBLAS_CORETYPE (SkylakeX, Haswell,
// ...).
#include "backends/cpu/limits.hpp"
#include "backends/cpu/matmul/matmul.hpp"
#include "backends/cpu/thread_pool.hpp"
#include "gemm_accuracy.hpp"
#include "gemm_peers.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <chrono>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

namespace {

using namespace tenon;
using namespace tenon::cpu;
using bench::Product;
using bench::Run;

struct Options {
  int threads = 0;
  std::int64_t outputs = 2048, inputs = 2048;
  std::vector<std::int64_t> rows{1, 2, 4, 8, 16, 128, 512, 2048}, cubes;
  std::vector<std::string> types;  // empty: all
  std::string ggml;
  double seconds = 0.5;
  bool accuracy = false;
};

std::vector<std::string> words(const std::string& list) {
  std::vector<std::string> result;
  std::istringstream in(list);
  for (std::string word; std::getline(in, word, ',');) result.push_back(word);
  return result;
}

std::vector<std::int64_t> numbers(const std::string& list) {
  std::vector<std::int64_t> result;
  for (const std::string& word : words(list)) result.push_back(std::stoll(word));
  return result;
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view name = argv[i];
    if (i + 1 == argc) {
      throw Error(Errc::bad_argument, "bench_gemm", "no value for " + std::string(name));
    }
    const std::string value = argv[i + 1];
    if (name == "--threads") {
      options.threads = std::stoi(value);
    } else if (name == "--outputs") {
      options.outputs = std::stoll(value);
    } else if (name == "--inputs") {
      options.inputs = std::stoll(value);
    } else if (name == "--rows") {
      options.rows = numbers(value);
    } else if (name == "--cube") {
      options.cubes = numbers(value);
    } else if (name == "--type") {
      options.types = words(value);
    } else if (name == "--ggml") {
      options.ggml = value;
    } else if (name == "--seconds") {
      options.seconds = std::stod(value);
    } else if (name == "--accuracy") {
      options.accuracy = value == "yes";
    } else if (name == "--isa") {
      const auto isa = find_isa(value);
      if (!isa) throw Error(Errc::bad_argument, "bench_gemm", "no level " + value);
      set_active_isa(*isa);
    } else {
      throw Error(Errc::bad_argument, "bench_gemm", "no option " + std::string(name));
    }
  }
  return options;
}

std::size_t round_to_line(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

/// Memory that each thread of a pool needs, side by side.
class ThreadMemory {
 public:
  ThreadMemory(std::size_t bytes, int threads)
      : step_(round_to_line(bytes)), memory_(step_ * static_cast<std::size_t>(threads)) {}
  std::byte* of(int thread) { return memory_.data() + step_ * static_cast<std::size_t>(thread); }

 private:
  std::size_t step_;
  AlignedBuffer memory_;
};

/// A linear layer as the CPU backend runs it in fast precision.
Run tenon_run(ThreadPool& pool, const Product& p) {
  struct State {
    std::vector<PackedWeights> weights;
    std::vector<float> y;
    AlignedBuffer prepared;
    std::optional<ThreadMemory> scratch;
    PreparedRows rows;
    LinearArgs args;
    std::size_t next = 0;
  };
  auto state = std::make_shared<State>();
  const std::vector<std::byte> stored = bench::stored(p.dtype, p.weights);
  for (int i = 0; i < p.copies; ++i) {
    PackedWeights& w = state->weights.emplace_back(p.dtype, p.outputs, p.inputs);
    pool.run([&](Worker& worker) { w.pack(stored.data(), worker.thread, worker.threads); });
  }
  if (p.y.empty()) state->y.resize(static_cast<std::size_t>(p.rows * p.outputs));
  LinearArgs& args = state->args;
  args.weights = state->weights.data();
  args.rows = p.rows;
  args.y = p.y.empty() ? state->y.data() : p.y.data();
  args.y_stride = p.outputs;
  if (const auto form = PreparedRows::form_for(p.dtype, p.rows, p.inputs)) {
    state->prepared = AlignedBuffer(PreparedRows::size_bytes(*form, p.rows, p.inputs));
    state->rows = PreparedRows(*form, p.rows, p.inputs, state->prepared.data());
    args.prepared = &state->rows;
  } else {
    args.x = p.x.data();
    args.x_stride = p.inputs;
  }
  state->scratch.emplace(linear_scratch_bytes(args), pool.threads());
  return [&pool, state, x = p.x.data(), inputs = p.inputs] {
    const PackedWeights& w = state->weights[state->next++ % state->weights.size()];
    pool.run([&](Worker& worker) {
      LinearArgs mine = state->args;
      RowCopy copy;
      mine.weights = &w;
      mine.copy = &copy;
      mine.scratch = state->scratch->of(worker.thread);
      if (mine.prepared != nullptr) {
        prepare_rows(x, inputs, *mine.prepared, worker.thread, worker.threads);
        if (!worker.sync()) return;
      }
      worker.share(linear_items(mine), 1,
                   [&](std::int64_t begin, std::int64_t end) { linear_range(mine, begin, end); });
    });
  };
}

/// Both operands as the caller stores them.
Run tenon_unpacked_run(ThreadPool& pool, const Product& p) {
  struct State {
    std::vector<float> y;
    std::optional<ThreadMemory> scratch;
    MatmulArgs args;
  };
  auto state = std::make_shared<State>();
  state->y.resize(static_cast<std::size_t>(p.rows * p.outputs));
  state->args = {.m = p.rows,
                 .n = p.outputs,
                 .k = p.inputs,
                 .a = p.x.data(),
                 .a_row = p.inputs,
                 .b = p.weights.data(),
                 .b_row = p.outputs,
                 .c = state->y.data(),
                 .c_row = p.outputs};
  state->scratch.emplace(matmul_scratch_bytes(state->args), pool.threads());
  return [&pool, state] {
    pool.run([&](Worker& worker) {
      MatmulArgs mine = state->args;
      mine.scratch = state->scratch->of(worker.thread);
      matmul(mine, worker.thread, worker.threads);
    });
  };
}

struct Peer {
  std::string name;
  Run run;
  std::vector<double> times{};
};

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

/// Interleaved, so that all run in the same state of the machine.
void measure(std::vector<Peer>& peers, double seconds) {
  using Clock = std::chrono::steady_clock;
  constexpr int rounds = 10;
  std::erase_if(peers, [](const Peer& peer) { return !peer.run; });
  for (Peer& peer : peers) peer.run();
  for (int round = 0; round < rounds; ++round) {
    for (Peer& peer : peers) {
      double total = 0;
      while (total < seconds / rounds) {
        const auto begin = Clock::now();
        peer.run();
        peer.times.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
        total += peer.times.back();
      }
    }
  }
}

void print_header() {
  fmt::print("{:7} {:>5} {:>10} {:>10} {:>9} {:>9} {:>9}\n", "type", "rows", "ms", "Gop/s",
             "of limit", "GB/s", "of memory");
}

void print(const Product& p, double weight_bytes, std::vector<Peer>& peers, const Limits& limits) {
  const double ours = median(peers.front().times);
  const double ops = 2.0 * static_cast<double>(p.rows * p.outputs * p.inputs) / ours;
  const auto form = PreparedRows::form_for(p.dtype, p.rows, p.inputs);
  const double most = !form                    ? limits.f32_ops
                      : *form == RowForm::bf16 ? limits.bf16_ops
                                               : limits.int8_ops;
  fmt::print("{:7} {:5} {:10.3f} {:10.1f} {:7.0f} % {:9.1f} {:7.0f} %", name(p.dtype), p.rows,
             ours * 1e3, ops * 1e-9, most > 0 ? 100 * ops / most : 0.0, weight_bytes / ours * 1e-9,
             100 * weight_bytes / ours / limits.read_bytes);
  for (std::size_t i = 1; i < peers.size(); ++i) {
    const double theirs = median(peers[i].times);
    fmt::print("   {} {:.2f} x", peers[i].name, theirs / ours);
  }
  fmt::print("\n");
  std::fflush(stdout);
}

void measure_type(ThreadPool& pool, DType dtype, const Options& options,
                  const std::optional<bench::Ggml>& ggml, const Limits& limits) {
  const std::vector<float> weights = bench::normals(options.outputs * options.inputs, 0.02f);
  for (const std::int64_t rows : options.rows) {
    const std::vector<float> x = bench::normals(rows * options.inputs, 1.0f);
    Product p{dtype, rows, options.outputs, options.inputs, x, weights};
    const auto bytes =
        static_cast<double>(PackedWeights::packed_bytes(dtype, options.outputs, options.inputs));
    constexpr double beyond_cache = 64 << 20;
    p.copies = rows > 16 ? 1 : static_cast<int>(beyond_cache / bytes) + 1;
    p.threads = pool.threads();
    std::vector<Peer> peers;
    peers.push_back({"Tenon", tenon_run(pool, p)});
    peers.push_back({"OpenBLAS", bench::openblas_run(p)});
    peers.push_back({"oneDNN", bench::dnnl_run(p)});
    if (ggml) peers.push_back({"ggml", ggml->run(p)});
    measure(peers, options.seconds);
    print(p, bytes, peers, limits);
  }
}

void measure_cube(ThreadPool& pool, std::int64_t size, const Options& options,
                  const Limits& limits) {
  const std::vector<float> x = bench::normals(size * size, 1.0f),
                           w = bench::normals(size * size, 1.0f);
  Product p{DType::f32, size, size, size, x, w};
  p.by_output = false;
  p.threads = pool.threads();
  std::vector<Peer> peers;
  peers.push_back({"Tenon", tenon_unpacked_run(pool, p)});
  peers.push_back({"Tenon with packed weights", tenon_run(pool, p)});
  peers.push_back({"OpenBLAS", bench::openblas_run(p)});
  peers.push_back({"oneDNN", bench::dnnl_sgemm_run(p)});
  measure(peers, options.seconds);
  print(p, static_cast<double>(4 * size * size), peers, limits);
}

bool wanted(const Options& options, DType dtype) {
  if (!PackedWeights::is_packable(dtype) || options.inputs % block_size(dtype) != 0) return false;
  return options.types.empty() || std::ranges::any_of(options.types, [&](const std::string& type) {
           return type == name(dtype) || (type == "blocks" && is_block(dtype));
         });
}

}  // namespace

int main(int argc, char** argv) try {
  const Options options = parse(argc, argv);
  ThreadPool pool(options.threads);
  std::optional<bench::Ggml> ggml;
  if (!options.ggml.empty()) ggml.emplace(options.ggml);
  std::vector<DType> types;
  for (int i = 0; i < dtype_count; ++i) {
    if (wanted(options, static_cast<DType>(i))) types.push_back(static_cast<DType>(i));
  }
  if (options.accuracy) {
    fmt::print("level {}; W [2048, 2048]\n", name(active_isa()));
    bench::report_accuracy(
        types, [&](const Product& p) { return tenon_run(pool, p); }, ggml, pool.threads());
    return 0;
  }
  const Limits limits = cpu::measure_limits(pool, 0.3);
  fmt::print("level {}, {} threads", name(active_isa()), pool.threads());
  if (options.cubes.empty()) fmt::print("; W [{}, {}]", options.outputs, options.inputs);
  fmt::print("\nlimits: f32 {:.0f}, int8 {:.0f}, bf16 tiles {:.0f} Gop/s, reading {:.1f} GB/s\n",
             limits.f32_ops * 1e-9, limits.int8_ops * 1e-9, limits.bf16_ops * 1e-9,
             limits.read_bytes * 1e-9);
  print_header();
  for (const std::int64_t size : options.cubes) measure_cube(pool, size, options, limits);
  if (!options.cubes.empty()) return 0;
  for (const DType dtype : types) measure_type(pool, dtype, options, ggml, limits);
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 2;
}
