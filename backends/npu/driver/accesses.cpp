#include "dependencies.hpp"

#include <npu/isa/integer_math.hpp>

namespace tenon::npu {
namespace {

Space space_of(std::uint32_t segment) noexcept {
  switch (static_cast<isa::Segment>(segment)) {
    case isa::Segment::weight:
      return Space::weight;
    case isa::Segment::ftmp:
      return Space::ftmp;
    default:
      return segment == isa::ocm_place ? Space::ocm : Space::outside;
  }
}

/// Rows of `width` that begin `stride` apart, as one range when there are no gaps.
void rows(const AccessVisitor& visit, Space space, std::uint64_t begin, std::uint64_t count,
          std::uint64_t stride, std::uint64_t width, bool writes) {
  if (stride <= width) {
    visit(space, begin, begin + (count - 1) * stride + width, writes);
    return;
  }
  for (std::uint64_t i = 0; i < count; ++i) {
    visit(space, begin + i * stride, begin + i * stride + width, writes);
  }
}

void lines(const AccessVisitor& visit, std::uint64_t first, std::uint64_t count,
           std::uint64_t stride, std::uint64_t width, bool writes) {
  rows(visit, Space::ocm, first * isa::line_bytes, count, stride * isa::line_bytes,
       width * isa::line_bytes, writes);
}

void visit_accesses(const isa::Load& i, const AccessVisitor& visit) {
  rows(visit, space_of(i.segment), i.offset, i.rows, i.ddr_stride, i.row_bytes, false);
  rows(visit, Space::ocm, i.ocm_addr, i.pad_top + i.rows + i.pad_bottom, i.ocm_stride,
       i.pad_left + i.row_bytes + i.pad_right, true);
}

void visit_accesses(const isa::LoadP& i, const AccessVisitor& visit) {
  visit(space_of(i.segment), i.offset, i.offset + 8ULL * i.count, false);
  const std::uint64_t begin = std::uint64_t{i.ocm_line} * isa::line_bytes;
  visit(Space::ocm, begin, begin + 8ULL * i.count, true);
}

void acc(const AccessVisitor& visit, std::uint64_t first, std::uint64_t count, std::uint64_t stride,
         std::uint64_t width, bool writes) {
  rows(visit, Space::acc, first, count, stride, width, writes);
}

void visit_accesses(const isa::Gemm& i, const AccessVisitor& visit) {
  const std::uint64_t c = std::uint64_t{1} << i.a_log2c;
  rows(visit, Space::ocm, std::uint64_t{i.a_line} * isa::line_bytes, ceil_div(i.k, c),
       c * i.a_block_stride, c * ((i.m - 1ULL) * i.a_row_stride + 1), false);
  const bool transposed = i.has(isa::Flag::transposed);
  const std::uint64_t b_blocks = ceil_div(transposed ? i.k : i.n, isa::lanes);
  const std::uint64_t b_rows = transposed ? i.n : i.k;
  lines(visit, i.b_line, b_blocks, i.b_block_stride, (b_rows - 1) * i.b_row_stride + 1, false);
  acc(visit, i.acc_row, ceil_div(i.n, isa::lanes), i.acc_block_stride, i.m, true);
}

void visit_accesses(const isa::Conv& i, const AccessVisitor& visit) {
  const std::uint64_t c = std::uint64_t{1} << i.in_log2c;
  rows(visit, Space::ocm, std::uint64_t{i.in_line} * isa::line_bytes, ceil_div(i.in_channels, c),
       c * i.in_block_stride, c * ((i.in_h - 1ULL) * i.in_row_stride + i.in_w), false);
  const std::uint64_t width = round_up(i.in_channels, c) * i.kernel_h * i.kernel_w;
  lines(visit, i.w_line, ceil_div(i.out_channels, isa::lanes), i.w_block_stride, width, false);
  acc(visit, i.acc_row, ceil_div(i.out_channels, isa::lanes), i.acc_block_stride,
      std::uint64_t{i.out_h} * i.out_w, true);
}

void visit_accesses(const isa::Depthwise& i, const AccessVisitor& visit) {
  lines(visit, i.in_line, i.blocks, i.in_block_stride, (i.in_h - 1ULL) * i.in_row_stride + i.in_w,
        false);
  lines(visit, i.w_line, 1, 0, std::uint64_t{i.blocks} * i.kernel_h * i.kernel_w, false);
  acc(visit, i.acc_row, i.blocks, i.acc_block_stride, std::uint64_t{i.out_h} * i.out_w, true);
}

void visit_accesses(const isa::Requant& i, const AccessVisitor& visit) {
  const std::uint64_t count = ceil_div(i.channels, isa::lanes);
  acc(visit, i.acc_row, count, i.acc_block_stride, std::uint64_t{i.h} * i.w, false);
  const std::uint64_t records = std::uint64_t{i.param_line} * isa::line_bytes;
  visit(Space::ocm, records, records + 8ULL * i.channels, false);
  lines(visit, i.out_line, count, i.out_block_stride, (i.h - 1ULL) * i.out_row_stride + i.w, true);
}

void visit_accesses(const isa::Elementwise& i, const AccessVisitor& visit) {
  const auto operand = [&](std::uint64_t line, std::uint64_t row_stride, std::uint64_t step,
                           bool writes) {
    const std::uint64_t width = (i.columns - 1ULL) * step + 1;
    if (row_stride == 0) return lines(visit, line, 1, 0, width, writes);
    lines(visit, line, i.rows, row_stride, width, writes);
  };
  operand(i.a_line, i.a_row_stride, i.a_step, false);
  const auto function = static_cast<isa::EwFunction>(i.function);
  if (function == isa::EwFunction::lut) {
    lines(visit, i.b_line, 1, 0, 256 / isa::line_bytes, false);
  } else if (function != isa::EwFunction::clamp) {
    operand(i.b_line, i.b_row_stride, i.b_step, false);
  }
  operand(i.out_line, i.out_row_stride, i.out_step, true);
}

void visit_accesses(const isa::Pool& i, const AccessVisitor& visit) {
  lines(visit, i.in_line, i.blocks, i.in_block_stride, (i.in_h - 1ULL) * i.in_row_stride + i.in_w,
        false);
  lines(visit, i.out_line, i.blocks, i.out_block_stride,
        (i.out_h - 1ULL) * i.out_row_stride + i.out_w, true);
}

void visit_accesses(const isa::Store& i, const AccessVisitor& visit) {
  rows(visit, Space::ocm, i.ocm_addr, i.rows, i.ocm_stride, i.row_bytes, false);
  rows(visit, space_of(i.segment), i.offset, i.rows, i.ddr_stride, i.row_bytes, true);
}

void visit_accesses(const isa::Convert& i, const AccessVisitor& visit) {
  const auto mode = static_cast<isa::CvtMode>(i.mode);
  const bool to_blocked = mode == isa::CvtMode::quantize || mode == isa::CvtMode::block;
  const std::uint64_t element =
      mode == isa::CvtMode::quantize || mode == isa::CvtMode::dequantize ? 4 : 1;
  const std::uint64_t last =
      (i.pixels - 1ULL) * i.pixel_stride + (i.channels - 1ULL) * i.channel_stride;
  visit(space_of(i.plain_place), i.plain_offset, i.plain_offset + element * (last + 1),
        !to_blocked);
  const std::uint64_t c = std::uint64_t{1} << i.log2c;
  rows(visit, space_of(i.blocked_place), i.blocked_offset, ceil_div(i.channels, c),
       c * i.block_stride, c * i.pixels, to_blocked);
  if (i.has(isa::Flag::per_channel)) {
    const std::uint64_t begin = std::uint64_t{i.scale_line} * isa::line_bytes;
    visit(Space::ocm, begin, begin + 4ULL * i.channels, false);
  }
}

void visit_accesses(const isa::Common&, const AccessVisitor&) {}

}  // namespace

void for_each_access(const isa::Instruction& instruction, const AccessVisitor& visit) {
  std::visit([&](const auto& value) { visit_accesses(value, visit); }, instruction);
}

}  // namespace tenon::npu
