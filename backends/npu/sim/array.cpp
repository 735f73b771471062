#include "kernels.hpp"
#include "npu/isa/integer_math.hpp"

#include <algorithm>
#include <cstring>

// GEMM and CONV gather their first operand into rows of sums and share one inner product; what the
// array's dataflow is changes cycles, never results.

namespace tenon::npu::sim {
namespace {

constexpr std::uint64_t gathered_values = 1 << 17;  // of the first operand at a time: fits in L2

std::uint64_t rows_at_once(std::uint64_t k) {
  return std::clamp<std::uint64_t>(gathered_values / k, 1, 256);
}

/// sums[32] += a[k] x b[k][32]. The compiler vectorises it with 16-bit multiplications; sums wrap
/// around, so they are unsigned.
inline void dot_lanes(const std::int16_t* a, const std::int16_t* b, std::uint64_t k,
                      std::uint32_t* sums) noexcept {
  std::uint32_t local[isa::lanes];
  std::copy_n(sums, isa::lanes, local);
  for (std::uint64_t l = 0; l < k; ++l, b += isa::lanes) {
    const std::int16_t value = a[l];
    if (value == 0) continue;  // activations after ReLU and padding often are
    for (std::uint32_t lane = 0; lane < isa::lanes; ++lane) {
      local[lane] += static_cast<std::uint32_t>(std::int32_t{value} * b[lane]);
    }
  }
  std::copy_n(local, isa::lanes, sums);
}

}  // namespace

void Kernels::multiply(const isa::Common& common, std::uint64_t first_row, std::uint64_t rows,
                       std::uint64_t k, std::uint64_t n, std::uint64_t acc_row_index,
                       std::uint64_t acc_block_stride) {
  const bool accumulate = common.has(isa::Flag::accumulate);
  for (std::uint64_t block = 0; block < ceil_div(n, isa::lanes); ++block) {
    check_abort();
    const std::int16_t* const b = b_.data() + block * k * isa::lanes;
    const std::uint64_t used = std::min<std::uint64_t>(isa::lanes, n - block * isa::lanes);
    for (std::uint64_t row = 0; row < rows; ++row) {
      std::int32_t* const to = acc_row(acc_row_index + block * acc_block_stride + first_row + row);
      std::uint32_t sums[isa::lanes] = {};
      if (accumulate) std::memcpy(sums, to, used * sizeof(std::uint32_t));
      dot_lanes(a_.data() + row * k, b, k, sums);
      std::fill(sums + used, sums + isa::lanes, 0U);
      std::memcpy(to, sums, sizeof sums);
    }
  }
}

void Kernels::run(const isa::Gemm& i, const Segments&, Part part) {
  const std::uint64_t k = i.k;
  const std::uint64_t n = i.n;
  const std::uint64_t blocks = ceil_div(n, isa::lanes);
  b_.assign(blocks * k * isa::lanes, 0);
  for (std::uint64_t block = 0; block < blocks; ++block) {
    check_abort();
    const std::uint64_t used = std::min<std::uint64_t>(isa::lanes, n - block * isa::lanes);
    std::int16_t* const to = b_.data() + block * k * isa::lanes;
    if (!i.has(isa::Flag::transposed)) {
      for (std::uint64_t l = 0; l < k; ++l) {
        std::copy_n(line(i.b_line + block * i.b_block_stride + l * i.b_row_stride), used,
                    to + l * isa::lanes);
      }
      continue;
    }
    for (std::uint64_t j = 0; j < used; ++j) {
      const std::uint64_t row = (block * isa::lanes + j) * i.b_row_stride;
      for (std::uint64_t l = 0; l < k; ++l) {
        to[l * isa::lanes + j] =
            line(i.b_line + l / isa::lanes * i.b_block_stride + row)[l % isa::lanes];
      }
    }
  }

  const std::uint64_t c = std::uint64_t{1} << i.a_log2c;
  const std::uint64_t step = rows_at_once(k);
  const std::uint64_t end = part.first + part.count;
  for (std::uint64_t first = part.first; first < end; first += step) {
    const std::uint64_t rows = std::min(step, end - first);
    a_.resize(rows * k);
    for (std::uint64_t row = 0; row < rows; ++row) {
      const std::int8_t* const from = line(i.a_line) + (first + row) * i.a_row_stride * c;
      for (std::uint64_t l = 0; l < k; l += c) {
        std::copy_n(from + l * i.a_block_stride, std::min(c, k - l), a_.data() + row * k + l);
      }
    }
    multiply(i, first, rows, k, n, i.acc_row, i.acc_block_stride);
  }
}

void Kernels::run(const isa::Conv& i, const Segments&, Part part) {
  const std::uint64_t c = std::uint64_t{1} << i.in_log2c;
  const std::uint64_t taps = std::uint64_t{i.kernel_h} * i.kernel_w;
  const std::uint64_t in_blocks = ceil_div(i.in_channels, c);
  const std::uint64_t k = in_blocks * taps * c;
  const std::uint64_t n = i.out_channels;
  const std::uint64_t blocks = ceil_div(n, isa::lanes);

  b_.assign(blocks * k * isa::lanes, 0);
  for (std::uint64_t block = 0; block < blocks; ++block) {
    check_abort();
    const std::uint64_t used = std::min<std::uint64_t>(isa::lanes, n - block * isa::lanes);
    for (std::uint64_t l = 0; l < k; ++l) {
      if (l / (taps * c) * c + l % c >= i.in_channels) continue;  // a lane past the last channel
      std::copy_n(line(i.w_line + block * i.w_block_stride + l), used,
                  b_.data() + (block * k + l) * isa::lanes);
    }
  }

  const std::uint64_t step = rows_at_once(k);
  const std::uint64_t end = part.first + part.count;
  for (std::uint64_t first = part.first; first < end; first += step) {
    const std::uint64_t rows = std::min(step, end - first);
    a_.assign(rows * k, 0);
    for (std::uint64_t row = 0; row < rows; ++row) {
      const std::uint64_t top = (first + row) / i.out_w * i.stride_h;
      const std::uint64_t left = (first + row) % i.out_w * i.stride_w;
      std::int16_t* to = a_.data() + row * k;
      for (std::uint64_t block = 0; block < in_blocks; ++block) {
        const std::int8_t* const from = line(i.in_line) + block * i.in_block_stride * c;
        const std::uint64_t channels = std::min(c, i.in_channels - block * c);
        for (std::uint64_t r = 0; r < i.kernel_h; ++r) {
          const std::uint64_t y =
              top + r * i.dilation_h - i.pad_top;  // wraps around above the tile
          for (std::uint64_t q = 0; q < i.kernel_w; ++q, to += c) {
            const std::uint64_t x = left + q * i.dilation_w - i.pad_left;
            if (y >= i.in_h || x >= i.in_w) continue;
            std::copy_n(from + (y * i.in_row_stride + x) * c, channels, to);
          }
        }
      }
    }
    multiply(i, first, rows, k, n, i.acc_row, i.acc_block_stride);
  }
}

void Kernels::run(const isa::Depthwise& i, const Segments&, Part part) {
  const std::uint64_t taps = std::uint64_t{i.kernel_h} * i.kernel_w;
  const std::uint64_t pixels = std::uint64_t{i.out_h} * i.out_w;
  const std::uint64_t end = part.first + part.count;
  for (std::uint64_t block = part.first / pixels; block * pixels < end; ++block) {
    check_abort();
    const std::int8_t* const weights = line(i.w_line + block * taps);
    const std::uint64_t first = std::max(part.first, block * pixels) - block * pixels;
    const std::uint64_t last = std::min(end, (block + 1) * pixels) - block * pixels;
    for (std::uint64_t pixel = first; pixel < last; ++pixel) {
      std::int32_t* const to = acc_row(i.acc_row + block * i.acc_block_stride + pixel);
      std::uint32_t sums[isa::lanes] = {};
      if (i.has(isa::Flag::accumulate)) std::memcpy(sums, to, sizeof sums);
      for (std::uint64_t r = 0; r < i.kernel_h; ++r) {
        const std::uint64_t y = pixel / i.out_w * i.stride_h + r * i.dilation_h - i.pad_top;
        if (y >= i.in_h) continue;
        for (std::uint64_t q = 0; q < i.kernel_w; ++q) {
          const std::uint64_t x = pixel % i.out_w * i.stride_w + q * i.dilation_w - i.pad_left;
          if (x >= i.in_w) continue;
          const std::int8_t* const in =
              line(i.in_line + block * i.in_block_stride + y * i.in_row_stride + x);
          const std::int8_t* const w = weights + (r * i.kernel_w + q) * isa::lanes;
          for (std::uint32_t lane = 0; lane < isa::lanes; ++lane) {
            sums[lane] += static_cast<std::uint32_t>(std::int32_t{in[lane]} * w[lane]);
          }
        }
      }
      std::memcpy(to, sums, sizeof sums);
    }
  }
}

}  // namespace tenon::npu::sim
