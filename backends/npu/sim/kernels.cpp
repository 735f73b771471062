#include "kernels.hpp"

#include <algorithm>
#include <cstring>

namespace tenon::npu::sim {

void Kernels::execute(const isa::Instruction& instruction, const Segments& segments) {
  std::visit([&](const auto& value) { run(value, segments); }, instruction);
}

void Kernels::run(const isa::Load& i, const Segments& segments) {
  const std::uint64_t width = std::uint64_t{i.pad_left} + i.row_bytes + i.pad_right;
  const std::uint64_t rows = std::uint64_t{i.pad_top} + i.rows + i.pad_bottom;
  std::byte* to = memory_.ocm().data() + i.ocm_addr;
  for (std::uint64_t row = 0; row < rows; ++row, to += i.ocm_stride) {
    if (row < i.pad_top || row >= std::uint64_t{i.pad_top} + i.rows) {
      std::memset(to, 0, width);
      continue;
    }
    std::memset(to, 0, i.pad_left);
    memory_.read(segments[i.segment].base + i.offset + (row - i.pad_top) * i.ddr_stride,
                 to + i.pad_left, i.row_bytes);
    std::memset(to + i.pad_left + i.row_bytes, 0, i.pad_right);
  }
}

void Kernels::run(const isa::LoadP& i, const Segments& segments) {
  memory_.read(segments[i.segment].base + i.offset, line(i.ocm_line), std::uint64_t{i.count} * 8);
}

void Kernels::run(const isa::Store& i, const Segments& segments) {
  const std::byte* from = memory_.ocm().data() + i.ocm_addr;
  for (std::uint64_t row = 0; row < i.rows; ++row, from += i.ocm_stride) {
    memory_.write(segments[i.segment].base + i.offset + row * i.ddr_stride, from, i.row_bytes);
  }
}

}  // namespace tenon::npu::sim
