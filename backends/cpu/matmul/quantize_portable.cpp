#include "matmul_kernels.hpp"

#include <bit>
#include <cmath>

namespace tenon::cpu::portable {
namespace {

// Below this 127 / a overflows: such elements count as zero.
constexpr float smallest = 1e-36f;

void quantize_group(const float* x, std::int8_t* codes, float& scale,
                    std::int32_t (&half_sums)[2]) {
  std::uint32_t largest_bits = 0;  // of |x|; as integers, NaN > infinity > numbers
  for (int i = 0; i < 32; ++i) {
    const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(x[i]) & 0x7FFFFFFFu;
    largest_bits = magnitude > largest_bits ? magnitude : largest_bits;
  }
  const float largest = std::bit_cast<float>(largest_bits);
  const bool finite = largest_bits < 0x7F800000u;
  const float inverse = finite && largest >= smallest ? 127.0f / largest : 0.0f;
  scale = finite && largest < smallest ? 0.0f : largest / 127.0f;
  for (int half = 0; half < 2; ++half) {
    std::int32_t sum = 0;
    for (int i = 16 * half; i < 16 * half + 16; ++i) {
      const int code = finite ? static_cast<int>(std::lrint(x[i] * inverse)) : 1;
      codes[i] = static_cast<std::int8_t>(code);
      sum += code;
    }
    half_sums[half] = sum;
  }
}

}  // namespace

void quantize(const QuantizeJob& job) noexcept {
  for (std::int64_t g = 0; g < job.inputs / 32; ++g) {
    const std::int64_t at = job.step * g;
    std::int8_t codes[32];
    float scale;
    std::int32_t sums[2];
    quantize_group(job.x + 32 * g, codes, scale, sums);
    for (int quad = 0; quad < 8; ++quad) {
      __builtin_memcpy(job.to.codes + 32 * at + quad * 4 * job.step, codes + 4 * quad, 4);
    }
    job.to.scales[at] = scale;
    job.to.sums[at] = scale * static_cast<float>(sums[0] + sums[1]);
    job.to.negative_sums[at] = -(sums[0] + sums[1]);
    for (int half = 0; half < 2; ++half) {
      job.to.half_sums[2 * at + half * job.step] = scale * static_cast<float>(sums[half]);
      job.to.negative_half_sums[2 * at + half * job.step] = -sums[half];
    }
  }
}

}  // namespace tenon::cpu::portable
