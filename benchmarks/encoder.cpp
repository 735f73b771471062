// Speed of a sentence encoder by batch and sequence: ids and mask in, embeddings out.
//
//   bench_encoder FOLDER [--threads N] [--weights TYPE]           a table
//   bench_encoder FOLDER [--threads N] [--weights TYPE] --serve   for encoder.py: see serve()
#include "backends/cpu/limits.hpp"
#include "backends/cpu/thread_pool.hpp"

#include <tenon/error.hpp>
#include <tenon/tenon.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

namespace {

using namespace tenon;

struct Options {
  std::string model;
  int threads = 0;
  std::optional<DType> weights;
  bool serve = false;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const auto value = [&] {
      if (i + 1 == argc) {
        throw Error(Errc::bad_argument, "bench_encoder", "no value for " + std::string(word));
      }
      return std::string(argv[++i]);
    };
    if (word == "--threads") {
      options.threads = std::stoi(value());
    } else if (word == "--weights") {
      const std::string name = value();
      options.weights = find_dtype(name);
      if (!options.weights) throw Error(Errc::bad_argument, "bench_encoder", "no type " + name);
    } else if (word == "--serve") {
      options.serve = true;
    } else {
      options.model = word;
    }
  }
  return options;
}

/// Multiply-adds count as two. Projections, scores and mixtures of values; the rest is not counted.
double operations(const models::EncoderConfig& c, std::int64_t batch, std::int64_t sequence) {
  const double tokens = static_cast<double>(batch * sequence);
  const double width = static_cast<double>(c.width);
  const double intermediate = static_cast<double>(c.intermediate_size);
  const double products = 4 * width * width + 2 * width * intermediate;
  const double scores = 2 * static_cast<double>(sequence) * width;
  return 2 * static_cast<double>(c.layers) * tokens * (products + scores);
}

/// Median seconds of runs that fill `seconds`, at least three, after one that is not counted.
double measure(const models::SentenceEncoder& encoder, std::int64_t batch, std::int64_t sequence,
               double seconds) {
  using Clock = std::chrono::steady_clock;
  HostBuffer ids = HostBuffer::zeros(Shape({batch, sequence}, i32));
  HostBuffer mask = HostBuffer::zeros(Shape({batch, sequence}, f32));
  std::ranges::fill(mask.mutable_values<float>(), 1.0f);
  // The ids that encoder.py gives the others.
  std::int32_t id = 1000;
  for (std::int32_t& value : ids.mutable_values<std::int32_t>()) {
    value = id;
    id = 1000 + (id * 7 + 11) % 20000;
  }
  const Buffer x = ids.to_device(cpu_device()), m = mask.to_device(cpu_device());
  static_cast<void>(encoder.embed(x, m));
  std::vector<double> times;
  double total = 0;
  while (times.size() < 3 || total < seconds) {
    const auto begin = Clock::now();
    static_cast<void>(encoder.embed(x, m).to_host());
    times.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    total += times.back();
  }
  std::ranges::sort(times);
  return times[times.size() / 2];
}

/// Multiply-adds of f32 a second, times two.
double f32_limit(int threads) {
  cpu::ThreadPool pool(threads);
  double limit = 0;
  for (const cpu::Peak& peak : cpu::peaks()) {
    if (peak.number == cpu::Number::f32) {
      limit = std::max(limit, cpu::measure(peak, pool, 0.2));
    }
  }
  return limit;
}

/// One line "BATCH SEQUENCE SECONDS" in, one line with the median seconds and the operations of a
/// run out; before the first, the f32 limit in operations a second.
void serve(const models::SentenceEncoder& encoder, double limit) {
  fmt::print("{}\n", limit);
  std::fflush(stdout);
  std::int64_t batch = 0, sequence = 0;
  double seconds = 0;
  while (std::cin >> batch >> sequence >> seconds) {
    fmt::print("{} {}\n", measure(encoder, batch, sequence, seconds),
               operations(encoder.config(), batch, sequence));
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  const Options options = parse(argc, argv);
  const double limit = f32_limit(options.threads);
  const auto encoder = models::SentenceEncoder::load(
      options.model, {.backend = {.threads = options.threads}, .weights = options.weights});
  if (options.serve) {
    serve(encoder, limit);
    return 0;
  }
  fmt::print("{:>5} {:>8} {:>10} {:>14} {:>10}\n", "batch", "sequence", "ms", "sentences/s",
             "of f32");
  for (const std::int64_t batch : {1, 32}) {
    for (const std::int64_t sequence : {16, 128, 256}) {
      const double seconds = measure(encoder, batch, sequence, 0.5);
      fmt::print("{:5} {:8} {:10.3f} {:14.1f} {:8.0f} %\n", batch, sequence, seconds * 1e3,
                 static_cast<double>(batch) / seconds,
                 100 * operations(encoder.config(), batch, sequence) / seconds / limit);
    }
  }
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 2;
}
