#include "padded_copy.hpp"

#include <algorithm>

namespace tenon::cpu {
namespace {

/// A known number of planes, interleaved.
template <int channels>
void interleave(const float* x, std::int64_t plane, std::int64_t columns, float* to) noexcept {
  for (std::int64_t j = 0; j < columns; ++j) {
    for (int c = 0; c < channels; ++c) to[j * channels + c] = x[c * plane + j];
  }
}

/// Blocks of 16 by 16: lines of both sides stay in the cache while they are half used.
void transpose(const PaddedCopy& job, const float* x, float* to) noexcept {
  constexpr std::int64_t block = 16;
  for (std::int64_t j = 0; j < job.columns; j += block) {
    const std::int64_t end = std::min(job.columns, j + block);
    for (std::int64_t c = 0; c < job.channels; c += block) {
      const std::int64_t last = std::min(job.channels, c + block);
      for (std::int64_t column = j; column < end; ++column) {
        const float* from = x + column * job.x.column;
        for (std::int64_t k = c; k < last; ++k) {
          to[column * job.channels + k] = from[k * job.x.channel];
        }
      }
    }
  }
}

}  // namespace

void copy_padded(const PaddedCopy& job, std::int64_t first, std::int64_t last) noexcept {
  const std::int64_t inner = std::min(job.columns, job.width - job.before);
  const std::int64_t after = job.width - job.before - inner;
  PaddedCopy part = job;
  part.columns = inner;
  for (std::int64_t row = first; row < last; ++row) {
    const float* x = job.x.at + row * job.x.row;
    float* to =
        std::fill_n(job.to + row * job.width * job.channels, job.before * job.channels, 0.0f);
    if (job.x.column == 1 && job.channels == 3) {
      interleave<3>(x, job.x.channel, inner, to);
    } else if (job.x.column == 1 && job.channels == 4) {
      interleave<4>(x, job.x.channel, inner, to);
    } else {
      transpose(part, x, to);
    }
    std::fill_n(to + inner * job.channels, after * job.channels, 0.0f);
  }
}

}  // namespace tenon::cpu
