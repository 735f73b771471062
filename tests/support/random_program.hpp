// Random programs over every registered op, for what must hold of all programs.
#pragma once

#include <tenon/host_buffer.hpp>
#include <tenon/program.hpp>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace tenon::testing {

/// TENON_TEST_SEED, or `fallback`: a run repeats unless it is told to look elsewhere.
std::uint64_t fuzz_seed(std::uint64_t fallback);
/// TENON_TEST_ROUNDS, or `fallback`.
int fuzz_rounds(int fallback);

struct RandomProgramOptions {
  int instructions = 12;
  /// Type of most values.
  DType dtype = f32;
  /// Only ops whose result moves little when their inputs do: what programs are made of that are
  /// compared up to rounding.
  bool smooth = false;
  /// Functions that `forward` calls and repeats.
  int callees = 0;
};

/// Programs with small static shapes that `verify` accepts.
class RandomProgram {
 public:
  explicit RandomProgram(std::uint64_t seed) : engine_(seed) {}

  Program make(const RandomProgramOptions& options);
  /// Values for the entry function's parameters, in [-2, 2]; indices are small.
  std::vector<HostBuffer> inputs(const Program& program);
  HostBuffer value(const Shape& shape);

  std::int64_t integer(std::int64_t low, std::int64_t high);  ///< in [low, high]
  double real();                                              ///< of moderate size, seldom special
  bool chance(double probability);

 private:
  class Body;

  Shape shape(DType dtype);
  DType dtype(DType usual);
  std::string text();

  std::mt19937_64 engine_;
  RandomProgramOptions options_;
};

}  // namespace tenon::testing
