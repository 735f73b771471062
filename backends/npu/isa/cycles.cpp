#include "cycles.hpp"

#include "integer_math.hpp"

#include <algorithm>

namespace tenon::npu::isa {
namespace {

constexpr std::uint64_t bursts_of(std::uint64_t bytes) { return ceil_div(bytes, burst_bytes); }

std::uint64_t row_bursts(std::uint64_t rows, std::uint64_t row_bytes, std::uint64_t stride) {
  return rows == 1 || stride == row_bytes ? bursts_of(rows * row_bytes)
                                          : rows * bursts_of(row_bytes);
}

struct Product {
  std::uint64_t m = 0, n = 0, k = 0;
};

Product product(const Gemm& i) { return {i.m, i.n, i.k}; }
Product product(const Conv& i) {
  const std::uint64_t c = std::uint64_t{1} << i.in_log2c;
  return {std::uint64_t{i.out_h} * i.out_w, i.out_channels,
          round_up(i.in_channels, c) * i.kernel_h * i.kernel_w};
}

/// Lines the vector unit handles: one per output line, or per tap of it.
std::uint64_t vector_lines(const Depthwise& i) {
  return std::uint64_t{i.blocks} * i.out_h * i.out_w * i.kernel_h * i.kernel_w;
}
std::uint64_t vector_lines(const Requant& i) {
  return blocks_of(i.channels) * std::uint64_t{i.h} * i.w;
}
std::uint64_t vector_lines(const Elementwise& i) { return std::uint64_t{i.rows} * i.columns; }
std::uint64_t vector_lines(const Pool& i) {
  return std::uint64_t{i.blocks} * i.out_h * i.out_w * i.kernel_h * i.kernel_w;
}

template <class Type>
std::uint64_t cycles_of(const Caps& caps, const Type& i) {
  if constexpr (Type::opcode == Opcode::cvt) {
    const bool moves = i.plain_place != ocm_place || i.blocked_place != ocm_place;
    return moves ? 0 : vector_cycles(std::uint64_t{i.pixels} * blocks_of(i.channels));
  } else if constexpr (Type::engine != Engine::ex) {
    return 0;
  } else if constexpr (requires { product(i); }) {
    const Product p = product(i);
    return array_cycles(caps, p.m, p.n, p.k);
  } else {
    return vector_cycles(vector_lines(i));
  }
}

Transfer transfer_of(const Load& i) {
  Transfer t;
  t.read_bytes = std::uint64_t{i.rows} * i.row_bytes;
  t.read_bursts = row_bursts(i.rows, i.row_bytes, i.ddr_stride);
  return t;
}
Transfer transfer_of(const LoadP& i) {
  Transfer t;
  t.read_bytes = std::uint64_t{i.count} * 8;
  t.read_bursts = bursts_of(t.read_bytes);
  return t;
}
Transfer transfer_of(const Store& i) {
  Transfer t;
  t.write_bytes = std::uint64_t{i.rows} * i.row_bytes;
  t.write_bursts = row_bursts(i.rows, i.row_bytes, i.ddr_stride);
  return t;
}
Transfer transfer_of(const Convert& i) {
  const auto mode = static_cast<CvtMode>(i.mode);
  const bool to_blocked = mode == CvtMode::quantize || mode == CvtMode::block;
  const std::uint64_t element = mode == CvtMode::quantize || mode == CvtMode::dequantize ? 4 : 1;
  const std::uint64_t c = std::uint64_t{1} << i.log2c;
  const std::uint64_t blocks = ceil_div(i.channels, c);
  // Both sides as if dense: the converter gathers whole bursts, whatever the strides are.
  const std::uint64_t plain = std::uint64_t{i.pixels} * i.channels * element;
  const std::uint64_t blocked = blocks * i.pixels * c;
  Transfer t;
  if (i.plain_place != ocm_place) {
    (to_blocked ? t.read_bytes : t.write_bytes) = plain;
    (to_blocked ? t.read_bursts : t.write_bursts) = bursts_of(plain);
  }
  if (i.blocked_place != ocm_place) {
    (to_blocked ? t.write_bytes : t.read_bytes) = blocked;
    (to_blocked ? t.write_bursts : t.read_bursts) = bursts_of(blocked);
  }
  return t;
}
Transfer transfer_of(const Common&) { return {}; }

std::uint64_t macs_of(const Gemm& i) { return std::uint64_t{i.m} * i.n * i.k; }
std::uint64_t macs_of(const Conv& i) {
  return std::uint64_t{i.out_h} * i.out_w * i.out_channels * i.in_channels * i.kernel_h *
         i.kernel_w;
}
std::uint64_t macs_of(const Depthwise& i) { return vector_lines(i) * lanes; }
std::uint64_t macs_of(const Common&) { return 0; }

}  // namespace

std::uint64_t array_cycles(const Caps& caps, std::uint64_t m, std::uint64_t n, std::uint64_t k) {
  const std::uint64_t rows = caps.array_rows;
  const std::uint64_t cols = caps.array_cols;
  if (caps.flow == Flow::os) {
    return ceil_div(m, rows) * ceil_div(n, cols) * (rows + cols + k - 2);
  }
  const std::uint64_t moving = caps.flow == Flow::ws ? m : n;
  const std::uint64_t folds = ceil_div(k, rows) * ceil_div(caps.flow == Flow::ws ? n : m, cols);
  if (caps.wbuf == 1) return folds * (2 * rows + cols + moving - 2);
  return rows + (folds - 1) * std::max(moving, rows) + moving + rows + cols - 2;
}

ArrayTraffic array_traffic(const Caps& caps, std::uint64_t m, std::uint64_t n, std::uint64_t k) {
  const std::uint64_t rows = caps.array_rows;
  const std::uint64_t cols = caps.array_cols;
  switch (caps.flow) {
    case Flow::os:
      return {m * k * ceil_div(n, cols), k * n * ceil_div(m, rows), m * n};
    case Flow::is:
      return {m * k, k * n * ceil_div(m, cols), m * n * ceil_div(k, rows)};
    case Flow::ws:
      break;
  }
  return {m * k * ceil_div(n, cols), k * n, m * n * ceil_div(k, rows)};
}

ArrayTraffic array_traffic(const Caps& caps, const Instruction& instruction) {
  return std::visit(
      [&](const auto& value) -> ArrayTraffic {
        if constexpr (requires { product(value); }) {
          const Product p = product(value);
          return array_traffic(caps, p.m, p.n, p.k);
        } else {
          return {};
        }
      },
      instruction);
}

Transfer transfer(const Instruction& instruction) {
  return std::visit([](const auto& value) { return transfer_of(value); }, instruction);
}

std::uint64_t execute_cycles(const Caps& caps, const Instruction& instruction) {
  return std::visit([&](const auto& value) { return cycles_of(caps, value); }, instruction);
}

std::uint64_t transfer_cycles(const Caps& caps, const Transfer& transfer) {
  const std::uint64_t bytes = (transfer.read_bursts + transfer.write_bursts) * burst_bytes;
  return caps.ddr_latency + ceil_div(bytes * caps.freq_khz, caps.ddr_kbps);
}

std::uint64_t macs(const Instruction& instruction) {
  return std::visit([](const auto& value) { return macs_of(value); }, instruction);
}

}  // namespace tenon::npu::isa
