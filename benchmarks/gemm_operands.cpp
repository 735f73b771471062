#include "gemm_peers.hpp"

#include <tenon/quant.hpp>

#include <random>

namespace tenon::bench {

std::vector<float> normals(std::int64_t count, float scale, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& v : values) v = normal(random);
  return values;
}

std::vector<std::byte> stored(DType dtype, std::span<const float> weights) {
  const auto count = static_cast<std::int64_t>(weights.size());
  std::vector<std::byte> blocks(
      static_cast<std::size_t>(count / block_size(dtype) * block_bytes(dtype)));
  quantize(dtype, weights.data(), blocks.data(), count);
  return blocks;
}

}  // namespace tenon::bench
