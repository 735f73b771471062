// Measures the limits of this machine: multiply-adds of each kind, and memory bandwidth for
// reading, on one thread and on all. Other benchmarks print their fraction of these.
//
//   bench_limits [--threads N] [--seconds S] [--json] [--read BYTES]
//
// --read measures only the reading of so many bytes.

#include "backends/cpu/limits.hpp"

#include <cstdlib>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace {

using namespace tenon;

struct Row {
  std::string name, unit;
  double one, all;
};

constexpr std::size_t reading_sizes[] = {std::size_t{1} << 20, std::size_t{32} << 20,
                                         std::size_t{256} << 20, std::size_t{2} << 30};

std::string spelling(std::size_t bytes) {
  if (bytes >= std::size_t{1} << 30) return fmt::format("{} GiB", bytes >> 30);
  return fmt::format("{} MiB", bytes >> 20);
}

}  // namespace

int main(int argc, char** argv) {
  int threads = 0;
  double seconds = 0.3;
  bool json = false;
  std::vector<std::size_t> sizes(std::begin(reading_sizes), std::end(reading_sizes));
  bool only_reading = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view option = argv[i];
    if (option == "--json") {
      json = true;
    } else if (i + 1 == argc) {
      fmt::print(stderr, "bench_limits [--threads N] [--seconds S] [--json] [--read BYTES]\n");
      return 2;
    } else if (option == "--threads") {
      threads = std::atoi(argv[++i]);
    } else if (option == "--seconds") {
      seconds = std::atof(argv[++i]);
    } else if (option == "--read") {
      sizes = {static_cast<std::size_t>(std::atoll(argv[++i]))};
      only_reading = true;
    }
  }
  cpu::ThreadPool one(1), all(threads);
  std::vector<Row> rows;
  if (!only_reading) {
    for (const cpu::Peak& peak : cpu::peaks()) {
      if (!supports(peak.needs)) continue;
      rows.push_back({std::string(peak.name), "Gop/s", cpu::measure(peak, one, seconds) * 1e-9,
                      cpu::measure(peak, all, seconds) * 1e-9});
    }
  }
  for (const std::size_t bytes : sizes) {
    rows.push_back({only_reading ? "reading" : "reading " + spelling(bytes), "GB/s",
                    cpu::measure_reading(one, bytes, seconds) * 1e-9,
                    cpu::measure_reading(all, bytes, seconds) * 1e-9});
  }
  if (json) {
    nlohmann::ordered_json out{{"level", name(cpu::active_isa())}, {"threads", all.threads()}};
    for (const Row& row : rows)
      out["limits"][row.name] = {{"unit", row.unit}, {"one", row.one}, {"all", row.all}};
    fmt::print("{}\n", out.dump(2));
    return 0;
  }
  fmt::print("level {}\n{:40}{:>12}{:>12}\n", name(cpu::active_isa()), "", "1 thread",
             fmt::format("{} threads", all.threads()));
  for (const Row& row : rows)
    fmt::print("{:40}{:12.1f}{:12.1f} {}\n", row.name, row.one, row.all, row.unit);
}
