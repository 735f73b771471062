#include "layer_emitter.hpp"

#include <algorithm>

namespace tenon::npu {
namespace {

using std::int64_t;

constexpr int64_t max_req_pixels = 4096;  // h and w of REQ

template <class Instruction>
void set_window(Instruction& instruction, const Window& window, const InputRows& rows) {
  instruction.kernel_h = u32(window.kernel_h);
  instruction.kernel_w = u32(window.kernel_w);
  instruction.stride_h = u32(window.stride_h);
  instruction.stride_w = u32(window.stride_w);
  instruction.pad_top = u32(rows.above);
  instruction.pad_left = u32(window.left);
}

}  // namespace

void LayerEmitter::emit_sums(const Tile& tile) {
  for (int64_t k0 = 0; k0 < shape_.sum_parts(); k0 += tiling_.sum_parts) {
    const int64_t k1 = std::min(k0 + tiling_.sum_parts, shape_.sum_parts());
    const InputRef in =
        shape_.is_flattened() ? flattened_ref(tile, k0, k1) : input_ref(tile, k0, k1);
    if (layer_.kind == Layer::Kind::conv) {
      emit_conv(tile, in, weight_ref(tile, k0, k1), k0, k1);
    } else if (layer_.kind == Layer::Kind::linear) {
      emit_linear(tile, in, weight_ref(tile, k0, k1), k0, k1);
    } else {
      emit_matmul(tile, in, k0, k1);
    }
  }
}

void LayerEmitter::emit_conv(const Tile& tile, const InputRef& in, const WeightRef& weights,
                             int64_t k0, int64_t k1) {
  const int64_t c = int64_t{1} << shape_.log2c;
  const Window& window = layer_.window;
  isa::Conv conv;
  if (k0 > 0) conv.flags = isa::flag_bit(isa::Flag::accumulate);
  conv.in_log2c = shape_.log2c;
  conv.in_h = u32(in.rows.last - in.rows.first);
  conv.in_w = u32(shape_.in.w);
  conv.in_row_stride = u32(shape_.in.w);
  conv.in_block_stride = u32(in.stride);
  conv.in_channels = u32(std::min(shape_.in.c, k1 * c) - k0 * c);
  conv.out_h = u32(tile.rows());
  conv.out_w = u32(shape_.out.w);
  conv.out_channels = u32(channels(tile));
  set_window(conv, window, in.rows);
  conv.dilation_h = u32(window.dilation_h);
  conv.dilation_w = u32(window.dilation_w);
  conv.w_line = u32(weights.address / line_bytes);
  conv.w_block_stride = u32(weights.block_lines);
  conv.acc_block_stride = u32(pixels(tile));
  for (int64_t n = 0; n < tile.images(); ++n) {
    conv.in_line = u32((in.address + n * in.image_bytes) / line_bytes);
    conv.acc_row = u32(n * tile.rows() * shape_.out.w);
    add(conv);
  }
}

// Rows of the matrix are images; the parts of the sum are the blocks of channels of the first pixel
// of the flattened image, then those of the second, ...
void LayerEmitter::emit_linear(const Tile& tile, const InputRef& in, const WeightRef& weights,
                               int64_t k0, int64_t k1) {
  isa::Gemm gemm;
  gemm.m = u32(tile.images());
  gemm.n = u32(channels(tile));
  gemm.a_log2c = 5;
  gemm.a_row_stride = u32(in.image_bytes / line_bytes);
  gemm.a_block_stride = u32(in.stride);
  gemm.b_row_stride = 1;
  gemm.b_block_stride = u32(weights.block_lines);
  gemm.acc_block_stride = u32(pixels(tile));
  const int64_t blocks = shape_.in_blocks;
  for (int64_t part = k0; part < k1;) {
    const int64_t first = part % blocks;
    const int64_t last = std::min(blocks, first + k1 - part);
    // The input holds all blocks when it is flattened, or else those from k0 on.
    const int64_t block = shape_.is_flattened() ? first : first - k0;
    gemm.flags = part > 0 ? isa::flag_bit(isa::Flag::accumulate) : std::uint8_t{0};
    gemm.k = u32(std::min(shape_.in.c, last * block_channels) - first * block_channels);
    gemm.a_line = in.line(part / blocks - in.first_pixel + block * in.stride);
    gemm.b_line = u32(weights.address / line_bytes + (part - k0) * block_channels);
    add(gemm);
    part += last - first;
  }
}

void LayerEmitter::emit_matmul(const Tile& tile, const InputRef& in, int64_t k0, int64_t k1) {
  const int64_t depth = std::min(shape_.in.c, k1 * block_channels) - k0 * block_channels;
  const int64_t batch = tile.n0 / shape_.images;
  const TileRef b = map_ref(layer_.second, weights_, batch * shape_.in.c + k0 * block_channels,
                            depth, tile.b0, tile.b1);
  isa::Gemm gemm;
  if (k0 > 0) gemm.flags = isa::flag_bit(isa::Flag::accumulate);
  gemm.m = u32(tile.images());
  gemm.n = u32(channels(tile));
  gemm.k = u32(depth);
  gemm.a_line = in.line();
  gemm.a_log2c = 5;
  gemm.a_row_stride = 1;
  gemm.a_block_stride = u32(in.stride);
  gemm.b_line = b.line();
  gemm.b_row_stride = 1;
  gemm.b_block_stride = u32(b.stride);
  gemm.acc_block_stride = u32(pixels(tile));
  add(gemm);
}

void LayerEmitter::emit_depthwise(const Tile& tile) {
  const InputRef in = input_ref(tile, tile.b0, tile.b1);
  const WeightRef weights = weight_ref(tile, tile.b0, tile.b1);
  isa::Depthwise depthwise;
  depthwise.in_h = u32(in.rows.last - in.rows.first);
  depthwise.in_w = u32(shape_.in.w);
  depthwise.in_row_stride = u32(shape_.in.w);
  depthwise.in_block_stride = u32(in.stride);
  depthwise.blocks = u32(tile.blocks());
  depthwise.out_h = u32(tile.rows());
  depthwise.out_w = u32(shape_.out.w);
  set_window(depthwise, layer_.window, in.rows);
  depthwise.dilation_h = u32(layer_.window.dilation_h);
  depthwise.dilation_w = u32(layer_.window.dilation_w);
  depthwise.w_line = u32(weights.address / line_bytes);
  depthwise.acc_block_stride = u32(pixels(tile));
  for (int64_t n = 0; n < tile.images(); ++n) {
    depthwise.in_line = u32((in.address + n * in.image_bytes) / line_bytes);
    depthwise.acc_row = u32(n * tile.rows() * shape_.out.w);
    add(depthwise);
  }
}

void LayerEmitter::emit_pool(const Tile& tile, const TileRef& out) {
  const InputRef in = input_ref(tile, tile.b0, tile.b1);
  isa::Pool pool;
  const bool max = layer_.kind == Layer::Kind::max_pool;
  pool.function = static_cast<std::uint32_t>(max ? isa::PoolFunction::max : isa::PoolFunction::sum);
  pool.in_h = u32(in.rows.last - in.rows.first);
  pool.in_w = u32(shape_.in.w);
  pool.in_row_stride = u32(shape_.in.w);
  pool.in_block_stride = u32(in.stride);
  pool.blocks = u32(tile.blocks());
  pool.out_h = u32(tile.rows());
  pool.out_w = u32(shape_.out.w);
  pool.out_row_stride = u32(shape_.out.w);
  pool.out_block_stride = u32(out.stride);
  set_window(pool, layer_.window, in.rows);
  pool.m = u32(bound_.scaling.m1);
  pool.s = bound_.scaling.s;
  pool.lo = bound_.limits.lo;
  pool.hi = bound_.limits.hi;
  for (int64_t n = 0; n < tile.images(); ++n) {
    pool.in_line = u32((in.address + n * in.image_bytes) / line_bytes);
    pool.out_line = out.line(n * tile.rows() * shape_.out.w);
    add(pool);
  }
}

void LayerEmitter::emit_requant(const Tile& tile, const TileRef& out) {
  isa::Requant req;
  if (bound_.neg_m > 0 || layer_.activation.slope != 1) {
    req.flags = isa::flag_bit(isa::Flag::leaky);
    req.neg_m = bound_.neg_m;
  }
  req.param_line = record_line(tile);
  req.acc_block_stride = u32(pixels(tile));
  req.channels = u32(channels(tile));
  req.out_block_stride = u32(out.stride);
  req.lo = bound_.limits.lo;
  req.hi = bound_.limits.hi;
  for (int64_t p = 0; p < pixels(tile); p += max_req_pixels) {
    req.acc_row = u32(p);
    req.w = u32(std::min(max_req_pixels, pixels(tile) - p));
    req.out_line = out.line(p);
    add(req);
  }
}

}  // namespace tenon::npu
