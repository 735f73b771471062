#include "footprint.hpp"

#include "npu/isa/integer_math.hpp"

#include <algorithm>
#include <vector>

namespace tenon::npu::sim {
namespace {

using namespace isa;

/// Joins runs that follow one another before it passes them on.
class Runs {
 public:
  Runs(const RangeSink& sink, Space space, bool write, std::uint8_t segment = 0)
      : sink_(sink), run_{space, segment, write, 0, 0} {}
  Runs(const Runs&) = delete;
  Runs& operator=(const Runs&) = delete;
  ~Runs() = default;

  void add(std::uint64_t begin, std::uint64_t size) {
    if (run_.size != 0 && run_.begin + run_.size == begin) {
      run_.size += size;
      return;
    }
    flush();
    run_.begin = begin;
    run_.size = size;
  }
  void flush() {
    if (run_.size != 0) sink_(run_);
    run_.size = 0;
  }

 private:
  const RangeSink& sink_;
  Range run_;
};

/// `rows` runs of `bytes`, `stride` apart.
void rows_of(Runs& runs, std::uint64_t begin, std::uint64_t rows, std::uint64_t bytes,
             std::uint64_t stride) {
  if (stride == 0) rows = 1;
  for (std::uint64_t row = 0; row < rows; ++row) runs.add(begin + row * stride, bytes);
}

/// Pixels of a blocked tensor of `channels`: `rows` rows of `width` adjacent pixels. Lanes of the
/// last block past the last channel are not accessed.
void pixels_of(Runs& runs, std::uint64_t begin, std::uint64_t c, std::uint64_t channels,
               std::uint64_t rows, std::uint64_t row_stride, std::uint64_t block_stride) {
  for (std::uint64_t first = 0; first < channels; first += c) {
    const std::uint64_t block = begin + first / c * block_stride * c;
    rows_of(runs, block, rows, std::min(c, channels - first), row_stride * c);
  }
}

void acc_rows(const RangeSink& sink, bool write, std::uint32_t row, std::uint32_t stride,
              std::uint64_t blocks, std::uint64_t rows) {
  Runs runs(sink, Space::acc, write);
  rows_of(runs, std::uint64_t{row} * acc_row_bytes, blocks, rows * acc_row_bytes,
          std::uint64_t{stride} * acc_row_bytes);
  runs.flush();
}

/// The sums that are written to ACC, and read from there to accumulate.
void sums(const RangeSink& sink, const Common& common, std::uint32_t row, std::uint32_t stride,
          std::uint64_t blocks, std::uint64_t rows) {
  if (common.has(Flag::accumulate)) acc_rows(sink, false, row, stride, blocks, rows);
  acc_rows(sink, true, row, stride, blocks, rows);
}

/// The indices in [0, size) that windows access on one axis.
std::vector<std::uint64_t> accessed(std::uint64_t size, std::uint64_t outputs, std::uint64_t kernel,
                                    std::uint64_t stride, std::uint64_t dilation,
                                    std::uint64_t pad) {
  std::vector<bool> hit(size);
  for (std::uint64_t output = 0; output < outputs; ++output) {
    for (std::uint64_t tap = 0; tap < kernel; ++tap) {
      const std::uint64_t at = output * stride + tap * dilation;
      if (at >= pad && at - pad < size) hit[at - pad] = true;
    }
  }
  std::vector<std::uint64_t> indices;
  for (std::uint64_t i = 0; i < size; ++i) {
    if (hit[i]) indices.push_back(i);
  }
  return indices;
}

/// The pixels of an input tile that windows access: rows times columns.
void window(const RangeSink& sink, std::uint64_t begin, std::uint64_t c, std::uint64_t channels,
            const std::vector<std::uint64_t>& rows, const std::vector<std::uint64_t>& columns,
            std::uint64_t row_stride, std::uint64_t block_stride) {
  Runs runs(sink, Space::ocm, false);
  for (std::uint64_t first = 0; first < channels; first += c) {
    const std::uint64_t bytes = std::min(c, channels - first);
    for (const std::uint64_t y : rows) {
      for (const std::uint64_t x : columns) {
        runs.add(begin + c * (first / c * block_stride + y * row_stride + x), bytes);
      }
    }
  }
  runs.flush();
}

void visit(const Load& i, const RangeSink& sink) {
  Runs from(sink, Space::ddr, false, static_cast<std::uint8_t>(i.segment));
  rows_of(from, i.offset, i.rows, i.row_bytes, i.ddr_stride);
  from.flush();
  Runs to(sink, Space::ocm, true);
  rows_of(to, i.ocm_addr, std::uint64_t{i.pad_top} + i.rows + i.pad_bottom,
          std::uint64_t{i.pad_left} + i.row_bytes + i.pad_right, i.ocm_stride);
  to.flush();
}

void visit(const LoadP& i, const RangeSink& sink) {
  const std::uint64_t bytes = std::uint64_t{i.count} * 8;
  sink({Space::ddr, static_cast<std::uint8_t>(i.segment), false, i.offset, bytes});
  sink({Space::ocm, 0, true, std::uint64_t{i.ocm_line} * line_bytes, bytes});
}

void visit(const Gemm& i, const RangeSink& sink) {
  sums(sink, i, i.acc_row, i.acc_block_stride, ceil_div(i.n, lanes), i.m);
  const std::uint64_t c = std::uint64_t{1} << i.a_log2c;
  Runs a(sink, Space::ocm, false);
  pixels_of(a, std::uint64_t{i.a_line} * line_bytes, c, i.k, i.m, i.a_row_stride, i.a_block_stride);
  a.flush();
  const bool transposed = i.has(Flag::transposed);
  Runs b(sink, Space::ocm, false);
  pixels_of(b, std::uint64_t{i.b_line} * line_bytes, lanes, transposed ? i.k : i.n,
            transposed ? i.n : i.k, i.b_row_stride, i.b_block_stride);
  b.flush();
}

void visit(const Conv& i, const RangeSink& sink) {
  sums(sink, i, i.acc_row, i.acc_block_stride, ceil_div(i.out_channels, lanes),
       std::uint64_t{i.out_h} * i.out_w);
  const std::uint64_t c = std::uint64_t{1} << i.in_log2c;
  window(sink, std::uint64_t{i.in_line} * line_bytes, c, i.in_channels,
         accessed(i.in_h, i.out_h, i.kernel_h, i.stride_h, i.dilation_h, i.pad_top),
         accessed(i.in_w, i.out_w, i.kernel_w, i.stride_w, i.dilation_w, i.pad_left),
         i.in_row_stride, i.in_block_stride);
  Runs weights(sink, Space::ocm, false);
  const std::uint64_t taps = std::uint64_t{i.kernel_h} * i.kernel_w;
  for (std::uint64_t first = 0; first < i.out_channels; first += lanes) {
    const std::uint64_t used = std::min<std::uint64_t>(lanes, i.out_channels - first);
    const std::uint64_t block = std::uint64_t{i.w_line} + first / lanes * i.w_block_stride;
    for (std::uint64_t channel = 0; channel < i.in_channels; channel += c) {
      const std::uint64_t read = std::min(c, i.in_channels - channel);
      for (std::uint64_t tap = 0; tap < taps; ++tap) {
        const std::uint64_t line = block + (channel / c * taps + tap) * c;
        rows_of(weights, line * line_bytes, read, used, line_bytes);
      }
    }
  }
  weights.flush();
}

void visit(const Depthwise& i, const RangeSink& sink) {
  sums(sink, i, i.acc_row, i.acc_block_stride, i.blocks, std::uint64_t{i.out_h} * i.out_w);
  window(sink, std::uint64_t{i.in_line} * line_bytes, lanes, std::uint64_t{i.blocks} * lanes,
         accessed(i.in_h, i.out_h, i.kernel_h, i.stride_h, i.dilation_h, i.pad_top),
         accessed(i.in_w, i.out_w, i.kernel_w, i.stride_w, i.dilation_w, i.pad_left),
         i.in_row_stride, i.in_block_stride);
  const std::uint64_t lines = std::uint64_t{i.blocks} * i.kernel_h * i.kernel_w;
  sink({Space::ocm, 0, false, std::uint64_t{i.w_line} * line_bytes, lines * line_bytes});
}

void tiles(const RangeSink& sink, std::uint64_t line, std::uint64_t blocks, std::uint64_t rows,
           std::uint64_t columns, std::uint64_t row_stride, std::uint64_t block_stride) {
  Runs runs(sink, Space::ocm, true);
  for (std::uint64_t block = 0; block < blocks; ++block) {
    rows_of(runs, (line + block * block_stride) * line_bytes, rows, columns * line_bytes,
            row_stride * line_bytes);
  }
  runs.flush();
}

void visit(const Requant& i, const RangeSink& sink) {
  const std::uint64_t blocks = ceil_div(i.channels, lanes);
  acc_rows(sink, false, i.acc_row, i.acc_block_stride, blocks, std::uint64_t{i.h} * i.w);
  sink({Space::ocm, 0, false, std::uint64_t{i.param_line} * line_bytes,
        std::uint64_t{i.channels} * 8});
  tiles(sink, i.out_line, blocks, i.h, i.w, i.out_row_stride, i.out_block_stride);
}

void element_lines(const RangeSink& sink, bool write, const Elementwise& i, std::uint64_t line,
                   std::uint64_t row_stride, std::uint64_t step, std::uint64_t bytes) {
  Runs runs(sink, Space::ocm, write);
  const std::uint64_t columns = step == 0 ? 1 : i.columns;
  const std::uint64_t rows = row_stride == 0 ? 1 : i.rows;
  for (std::uint64_t row = 0; row < rows; ++row) {
    for (std::uint64_t column = 0; column < columns; ++column) {
      runs.add((line + row * row_stride + column * step) * line_bytes, bytes);
    }
  }
  runs.flush();
}

void visit(const Elementwise& i, const RangeSink& sink) {
  element_lines(sink, true, i, i.out_line, i.out_row_stride, i.out_step, line_bytes);
  element_lines(sink, false, i, i.a_line, i.a_row_stride, i.a_step, i.lanes);
  const auto function = static_cast<EwFunction>(i.function);
  if (function == EwFunction::lut) {
    sink({Space::ocm, 0, false, std::uint64_t{i.b_line} * line_bytes, 256});
  } else if (function != EwFunction::clamp) {
    element_lines(sink, false, i, i.b_line, i.b_row_stride, i.b_step, i.lanes);
  }
}

void visit(const Pool& i, const RangeSink& sink) {
  tiles(sink, i.out_line, i.blocks, i.out_h, i.out_w, i.out_row_stride, i.out_block_stride);
  window(sink, std::uint64_t{i.in_line} * line_bytes, lanes, std::uint64_t{i.blocks} * lanes,
         accessed(i.in_h, i.out_h, i.kernel_h, i.stride_h, 1, i.pad_top),
         accessed(i.in_w, i.out_w, i.kernel_w, i.stride_w, 1, i.pad_left), i.in_row_stride,
         i.in_block_stride);
}

void visit(const Store& i, const RangeSink& sink) {
  Runs from(sink, Space::ocm, false);
  rows_of(from, i.ocm_addr, i.rows, i.row_bytes, i.ocm_stride);
  from.flush();
  Runs to(sink, Space::ddr, true, static_cast<std::uint8_t>(i.segment));
  rows_of(to, i.offset, i.rows, i.row_bytes, i.ddr_stride);
  to.flush();
}

void plain_side(const Convert& i, bool write, std::uint64_t element, const RangeSink& sink) {
  const bool on_chip = i.plain_place == ocm_place;
  Runs runs(sink, on_chip ? Space::ocm : Space::ddr, write,
            static_cast<std::uint8_t>(on_chip ? 0 : i.plain_place));
  // The axis with the smaller stride runs inside, so that dense tensors are few runs.
  const bool channels_inside = i.channel_stride <= i.pixel_stride;
  const std::uint64_t outer = channels_inside ? i.pixels : i.channels;
  const std::uint64_t inner = channels_inside ? i.channels : i.pixels;
  const std::uint64_t outer_stride = channels_inside ? i.pixel_stride : i.channel_stride;
  const std::uint64_t inner_stride = channels_inside ? i.channel_stride : i.pixel_stride;
  const std::uint64_t outers = outer_stride == 0 ? 1 : outer;
  for (std::uint64_t at = 0; at < outers; ++at) {
    rows_of(runs, i.plain_offset + at * outer_stride * element, inner, element,
            inner_stride * element);
  }
  runs.flush();
}

void blocked_side(const Convert& i, bool write, const RangeSink& sink) {
  const bool on_chip = i.blocked_place == ocm_place;
  Runs runs(sink, on_chip ? Space::ocm : Space::ddr, write,
            static_cast<std::uint8_t>(on_chip ? 0 : i.blocked_place));
  const std::uint64_t c = std::uint64_t{1} << i.log2c;
  const std::uint64_t channels = write ? round_up(i.channels, c) : i.channels;
  pixels_of(runs, i.blocked_offset, c, channels, i.pixels, 1, i.block_stride);
  runs.flush();
}

void visit(const Convert& i, const RangeSink& sink) {
  const auto mode = static_cast<CvtMode>(i.mode);
  const std::uint64_t element = mode == CvtMode::quantize || mode == CvtMode::dequantize ? 4 : 1;
  if (i.has(Flag::per_channel)) {
    sink({Space::ocm, 0, false, std::uint64_t{i.scale_line} * line_bytes,
          std::uint64_t{i.channels} * 4});
  }
  const bool to_blocked = mode == CvtMode::quantize || mode == CvtMode::block;
  blocked_side(i, to_blocked, sink);
  plain_side(i, !to_blocked, element, sink);
}

void visit(const Common&, const RangeSink&) {}

}  // namespace

void footprint(const Instruction& instruction, const RangeSink& sink) {
  std::visit([&](const auto& value) { visit(value, sink); }, instruction);
}

}  // namespace tenon::npu::sim
