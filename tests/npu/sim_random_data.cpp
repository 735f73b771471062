#include "sim_random_layers.hpp"
#include "sim_rig.hpp"

#include <tenon/npu/isa/structures.hpp>

#include <algorithm>
#include <bit>
#include <cstring>

namespace tenon::npu::testing {

using namespace isa;

LayerMaker::LayerMaker(std::uint64_t seed) : random_(seed) {
  result_.input = random_bytes(seed + 1, 96 << 10);
}

std::uint32_t LayerMaker::add_weights(std::uint32_t bytes, bool no_minimum) {
  const auto at = static_cast<std::uint32_t>((result_.weight.size() + 63) / 64 * 64);
  auto fresh = random_bytes(random_(), bytes);
  for (std::byte& byte : fresh) {
    if (no_minimum && byte == std::byte{0x80}) byte = std::byte{0x81};
  }
  result_.weight.resize(at);
  result_.weight.insert(result_.weight.end(), fresh.begin(), fresh.end());
  return at;
}

std::uint32_t LayerMaker::add_records(std::uint32_t channels, std::uint32_t sum_bits) {
  const std::uint32_t at = add_weights(channels * 8);
  for (std::uint32_t i = 0; i < channels; ++i) {
    QuantRecord record;
    record.bias = signed_between(-(1 << sum_bits), 1 << sum_bits);
    record.m = static_cast<std::uint16_t>(between(1, 32767));
    const auto bits = static_cast<std::uint32_t>(std::bit_width(unsigned{record.m}));
    record.s = static_cast<std::uint8_t>(
        std::clamp<std::uint32_t>(bits + sum_bits - between(4, 9), 1, 47));
    const auto bytes = pack(record);
    std::memcpy(result_.weight.data() + at + i * 8, bytes.data(), bytes.size());
  }
  return at;
}

Load LayerMaker::load(std::uint32_t segment, std::uint32_t offset, std::uint32_t line,
                      std::uint32_t bytes) {
  Load i;
  i.segment = segment;
  i.offset = offset;
  i.ocm_addr = line * line_bytes;
  i.row_bytes = bytes;
  return i;
}

std::uint32_t LayerMaker::input_at(std::uint32_t bytes) {
  return below(static_cast<std::uint32_t>(result_.input.size()) - bytes + 1);
}

std::uint32_t LayerMaker::output_at(std::uint32_t bytes) {
  const std::uint32_t at = out_end_;
  out_end_ += (bytes + 63) / 64 * 64;
  return at;
}

void LayerMaker::limits(std::int32_t& lo, std::int32_t& hi) {
  lo = below(2) == 0 ? -128 : signed_between(-128, 20);
  hi = below(2) == 0 ? 127 : signed_between(lo, 127);
}

Requant LayerMaker::requant(std::uint32_t channels, std::uint32_t param_line) {
  Requant i;
  i.channels = channels;
  i.param_line = param_line;
  limits(i.lo, i.hi);
  if (below(3) == 0) {
    i.flags = flag_bit(Flag::leaky);
    i.neg_m = below(32768);
  }
  return i;
}

void LayerMaker::store_blocks(std::vector<Instruction>& to, std::uint32_t line,
                              std::uint32_t blocks, std::uint32_t block_lines, std::uint32_t rows,
                              std::uint32_t row_lines, std::uint32_t offset,
                              std::uint32_t block_bytes, std::uint32_t first_row) {
  for (std::uint32_t block = 0; block < blocks; ++block) {
    Store i;
    i.segment = static_cast<std::uint32_t>(Segment::output);
    i.ocm_addr = (line + block * block_lines) * line_bytes;
    i.rows = rows;
    i.row_bytes = row_lines * line_bytes;
    i.ocm_stride = i.row_bytes;
    i.ddr_stride = i.row_bytes;
    i.offset = offset + block * block_bytes + first_row * i.row_bytes;
    to.emplace_back(i);
  }
}

}  // namespace tenon::npu::testing
