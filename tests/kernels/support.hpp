#pragma once

#include "backends/cpu/cpu_features.hpp"
#include "backends/cpu/matmul/aligned_buffer.hpp"
#include "backends/cpu/matmul/packed_weights.hpp"
#include "backends/cpu/matmul/prepared_rows.hpp"

#include <tenon/dtype.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace tenon::test {

inline constexpr float infinity = std::numeric_limits<float>::infinity();

/// Every level this machine runs.
std::vector<cpu::Isa> supported_isas();

/// The block types that can be packed.
const std::vector<DType>& block_types();

/// A generator whose seed is reported with any failure of the present test.
class Random {
 public:
  Random();
  float normal() { return normal_(engine_); }
  int below(int end) { return static_cast<int>(engine_() % static_cast<unsigned>(end)); }
  std::uint8_t byte() { return static_cast<std::uint8_t>(engine_()); }
  std::vector<float> normals(std::int64_t count, float scale = 1.0f);
  unsigned seed() const { return seed_; }

 private:
  unsigned seed_;
  std::mt19937 engine_;
  std::normal_distribution<float> normal_{0.0f, 1.0f};
};

/// Rows of a weight matrix as a file stores them, and their values.
struct Weights {
  DType dtype;
  std::int64_t outputs, inputs;
  std::vector<std::byte> bytes;
  std::vector<float> values;
};

/// Blocks with every bit random but for their f16 scales, which are of ordinary size, some of them
/// negative or zero; plain types hold normal numbers.
Weights random_weights(Random& random, DType dtype, std::int64_t outputs, std::int64_t inputs);

/// The same with every byte but the scales' equal to `fill`.
Weights filled_weights(Random& random, DType dtype, std::int64_t outputs, std::int64_t inputs,
                       int fill);

cpu::PackedWeights packed(const Weights& weights, int threads = 1);

/// Prepared rows together with their memory.
struct OwnedRows {
  cpu::AlignedBuffer memory;
  cpu::PreparedRows rows;
};
OwnedRows prepared(const std::vector<float>& x, std::int64_t rows, std::int64_t inputs,
                   cpu::RowForm form, cpu::Isa isa, int threads = 1);

}  // namespace tenon::test
