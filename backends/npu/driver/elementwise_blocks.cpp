#include "elementwise_blocks.hpp"

#include <algorithm>

#include <npu/isa/integer_math.hpp>

namespace tenon::npu {
namespace {

constexpr std::int64_t lanes = isa::lanes;
constexpr std::int64_t max_line_stride = 65535;  // from row to row

}  // namespace

void for_each_blocks(const ElementwiseTile& tile,
                     const std::function<void(const isa::Elementwise&)>& visit) {
  const auto& [instruction, a, b, out, b_blocks, b_pixels, channels, first, count] = tile;
  const std::int64_t blocks = ceil_div(channels, lanes);
  const std::int64_t full = channels / lanes;
  const bool together = std::max({a.stride, b.stride, out.stride}) <= max_line_stride;
  const std::int64_t step = together ? std::max<std::int64_t>(full, 1) : 1;
  isa::Elementwise ew = instruction;
  ew.columns = u32(count);
  for (std::int64_t block = 0; block < blocks;) {
    const bool partial = block >= full;
    const std::int64_t rows = partial ? 1 : std::min(step, full - block);
    ew.lanes = u32(partial ? channels % lanes : lanes);
    ew.rows = u32(rows);
    ew.a_line = a.line(block * a.stride + first);
    ew.b_line = b.line(b_blocks * block * b.stride + b_pixels * first);
    ew.out_line = out.line(block * out.stride + first);
    ew.a_row_stride = rows > 1 ? u32(a.stride) : 0;
    ew.b_row_stride = rows > 1 ? u32(b_blocks * b.stride) : 0;
    ew.out_row_stride = rows > 1 ? u32(out.stride) : 0;
    visit(ew);
    block += rows;
  }
}

}  // namespace tenon::npu
