#include "sim_random_layers.hpp"

#include "sim_rig.hpp"

#include <tenon/npu/isa/structures.hpp>

#include <algorithm>
#include <bit>
#include <cstring>

namespace tenon::npu::testing {

using namespace isa;

namespace {

/// The sums of a tile, row by row from its first in ACC, to its buffer.
Requant requant_tile(Requant requant, const Layer::Buffers& at, std::uint32_t rows,
                     std::uint32_t width) {
  requant.acc_row = at.acc;
  requant.acc_block_stride = rows * width;
  requant.h = rows;
  requant.w = width;
  requant.out_line = at.out;
  requant.out_row_stride = width;
  requant.out_block_stride = rows * width;
  return requant;
}

}  // namespace

Layer LayerMaker::draw_layer() {
  switch (below(9)) {
    case 0:
    case 1:
    case 2:
      return convolution();
    case 3:
      return product();
    case 4:
      return depthwise();
    case 5:
      return pool();
    default:
      return elementwise();
  }
}

LayerMaker::Halo LayerMaker::halo(std::uint32_t first, std::uint32_t rows, std::uint32_t stride,
                                  std::uint32_t extent, std::uint32_t pad, std::uint32_t in_h) {
  const std::uint32_t begin = first * stride;  // counted from the first row of padding
  const std::uint32_t end = (first + rows - 1) * stride + extent;
  const std::uint32_t top = std::min(begin < pad ? 0 : begin - pad, in_h - 1);
  const std::uint32_t bottom = std::clamp(end < pad ? 0 : end - pad, top + 1, in_h);
  return {top, bottom - top, begin < pad ? pad - begin : 0};
}

Layer LayerMaker::convolution() {
  Conv c;
  c.in_log2c = below(3) == 0 ? below(6) : 5;
  const std::uint32_t lanes_in = 1U << c.in_log2c;
  c.in_channels = between(1, std::max(lanes_in * 2, 3U));
  c.kernel_h = between(1, below(4) == 0 ? 11 : 3);
  c.kernel_w = between(1, 4);
  c.stride_h = between(1, 4);
  c.stride_w = between(1, 3);
  c.dilation_h = between(1, 2);
  c.dilation_w = between(1, 4);
  const std::uint32_t extent_h = (c.kernel_h - 1) * c.dilation_h + 1;
  const std::uint32_t extent_w = (c.kernel_w - 1) * c.dilation_w + 1;
  c.in_w = between(1, 9);
  const std::uint32_t in_h = between(1, 12);
  c.pad_top = below(extent_h + 1);
  c.pad_left = below(extent_w + 1);
  c.out_w = between(1, 1 + (c.in_w + c.pad_left) / c.stride_w);
  const std::uint32_t out_h = between(1, 1 + (in_h + c.pad_top - 1) / c.stride_h);
  c.out_channels = between(1, 70);
  const std::uint32_t blocks = ceil_div(c.out_channels, lanes);
  const std::uint32_t in_blocks = ceil_div(c.in_channels, lanes_in);
  const std::uint32_t lines = in_blocks * c.kernel_h * c.kernel_w * lanes_in;
  if (blocks * lines * line_bytes > 60 << 10) return convolution();
  if (in_blocks * in_h * c.in_w * lanes_in > 60 << 10) return convolution();
  if (blocks * out_h * c.out_w > std::min(acc_half, 1024U)) return convolution();
  c.in_row_stride = c.in_w;
  c.w_block_stride = lines;
  c.w_line = constant_line;

  Layer layer;
  layer.out_rows = out_h;
  const std::uint32_t weights = add_weights(blocks * lines * line_bytes);
  const std::uint32_t param_line = constant_line + blocks * lines;
  const std::uint32_t records = add_records(c.out_channels, 12);
  layer.constants.emplace_back(load(0, weights, constant_line, blocks * lines * line_bytes));
  LoadP params;
  params.offset = records;
  params.ocm_line = param_line;
  params.count = c.out_channels;
  layer.constants.emplace_back(params);
  const Requant req = requant(c.out_channels, param_line);
  const std::uint32_t row_bytes = c.in_w * lanes_in;
  const std::uint32_t source = input_at(in_blocks * in_h * row_bytes);
  const std::uint32_t out = output_at(blocks * out_h * c.out_w * line_bytes);
  // Sums may also be made block by block of input channels, in any number of instructions.
  const bool split = in_blocks > 1 && below(2) == 0;
  layer.tile = [=, this](std::uint32_t first, std::uint32_t rows, const Layer::Buffers& at,
                         std::vector<Instruction>& loads, std::vector<Instruction>& compute,
                         std::vector<Instruction>& stores) {
    const Halo need = halo(first, rows, c.stride_h, extent_h, c.pad_top, in_h);
    // Blocks of a tile lie closely packed, each from a fresh line.
    const std::uint32_t block_lines = ceil_div(need.rows * row_bytes, line_bytes);
    for (std::uint32_t block = 0; block < in_blocks; ++block) {
      loads.emplace_back(load(2, source + (block * in_h + need.first) * row_bytes,
                              at.in + block * block_lines, need.rows * row_bytes));
    }
    Conv tile = c;
    tile.in_line = at.in;
    tile.in_h = need.rows;
    tile.pad_top = need.pad;
    tile.in_block_stride = block_lines * line_bytes / lanes_in;
    tile.out_h = rows;
    tile.acc_row = at.acc;
    tile.acc_block_stride = rows * c.out_w;
    if (split) {
      for (std::uint32_t block = 0; block < in_blocks; ++block) {
        Conv part = tile;
        part.in_line = at.in + block * block_lines;
        part.in_channels = std::min(lanes_in, c.in_channels - block * lanes_in);
        part.w_line = c.w_line + block * c.kernel_h * c.kernel_w * lanes_in;
        if (block > 0) part.flags = flag_bit(Flag::accumulate);
        compute.emplace_back(part);
      }
    } else {
      compute.emplace_back(tile);
    }
    compute.emplace_back(requant_tile(req, at, rows, c.out_w));
    store_blocks(stores, at.out, blocks, rows * c.out_w, rows, c.out_w, out,
                 out_h * c.out_w * line_bytes, first);
  };
  return layer;
}

Layer LayerMaker::product() {
  Gemm g;
  const std::uint32_t m = between(1, 60);
  g.n = between(1, 80);
  g.k = between(1, 150);
  const bool plain = below(2) == 0;
  const bool transposed = below(2) == 0;
  g.a_log2c = plain ? below(3) : 5;
  const std::uint32_t c = 1U << g.a_log2c;
  g.k = ceil_div(g.k, c) * c - (plain ? 0 : below(c));
  if (transposed) g.flags = flag_bit(Flag::transposed);
  const std::uint32_t b_blocks = ceil_div(transposed ? g.k : g.n, lanes);
  const std::uint32_t b_rows = transposed ? g.n : g.k;
  g.b_line = constant_line;
  g.b_row_stride = 1;
  g.b_block_stride = b_rows;
  const std::uint32_t k_blocks = ceil_div(g.k, c);
  const std::uint32_t n_blocks = ceil_div(g.n, lanes);

  Layer layer;
  layer.out_rows = m;
  const std::uint32_t b_bytes = b_blocks * b_rows * line_bytes;
  layer.constants.emplace_back(load(0, add_weights(b_bytes), constant_line, b_bytes));
  LoadP params;
  params.offset = add_records(g.n, 13);
  params.ocm_line = constant_line + b_blocks * b_rows;
  params.count = g.n;
  layer.constants.emplace_back(params);
  const Requant req = requant(g.n, params.ocm_line);
  const std::uint32_t source = input_at(k_blocks * m * c);
  const std::uint32_t out = output_at(n_blocks * m * line_bytes);
  const bool split = !plain && k_blocks > 1 && below(2) == 0;
  layer.tile = [=, this](std::uint32_t first, std::uint32_t rows, const Layer::Buffers& at,
                         std::vector<Instruction>& loads, std::vector<Instruction>& compute,
                         std::vector<Instruction>& stores) {
    Gemm tile = g;
    if (plain) {
      loads.emplace_back(load(2, source + first * k_blocks * c, at.in, rows * k_blocks * c));
      tile.a_row_stride = k_blocks;
      tile.a_block_stride = 1;
    } else {
      Load blocks = load(2, source + first * c, at.in, rows * c);
      blocks.rows = k_blocks;
      blocks.ddr_stride = m * c;
      blocks.ocm_stride = rows * c;
      loads.emplace_back(blocks);
      tile.a_row_stride = 1;
      tile.a_block_stride = rows;
    }
    tile.m = rows;
    tile.a_line = at.in;
    tile.acc_row = at.acc;
    tile.acc_block_stride = rows;
    for (std::uint32_t block = 0; split && block < k_blocks; ++block) {
      Gemm part = tile;
      part.k = std::min(lanes, g.k - block * lanes);
      part.a_line = at.in + block * rows;
      part.b_line = g.b_line + block * (transposed ? b_rows : lanes);
      if (block > 0) part.flags |= flag_bit(Flag::accumulate);
      compute.emplace_back(part);
    }
    if (!split) compute.emplace_back(tile);
    Requant q = req;
    q.acc_row = at.acc;
    q.acc_block_stride = rows;
    q.w = rows;
    q.out_line = at.out;
    q.out_row_stride = rows;
    q.out_block_stride = rows;
    compute.emplace_back(q);
    store_blocks(stores, at.out, n_blocks, rows, rows, 1, out, m * line_bytes, first);
  };
  return layer;
}

Layer LayerMaker::depthwise() {
  Depthwise d;
  d.blocks = between(1, 3);
  d.kernel_h = between(1, below(3) == 0 ? 7 : 3);
  d.kernel_w = between(1, 5);
  d.stride_h = between(1, 3);
  d.stride_w = between(1, 4);
  d.dilation_h = between(1, 3);
  d.dilation_w = between(1, 2);
  const std::uint32_t extent_h = (d.kernel_h - 1) * d.dilation_h + 1;
  d.in_w = between(1, 10);
  const std::uint32_t in_h = between(1, 12);
  d.pad_top = below(extent_h + 1);
  d.pad_left = below((d.kernel_w - 1) * d.dilation_w + 2);
  d.out_w = between(1, 1 + (d.in_w + d.pad_left) / d.stride_w);
  const std::uint32_t out_h = between(1, 1 + (in_h + d.pad_top - 1) / d.stride_h);
  d.in_row_stride = d.in_w;
  const std::uint32_t channels = (d.blocks - 1) * lanes + between(1, lanes);
  if (d.blocks * out_h * d.out_w > std::min(acc_half, 1024U)) return depthwise();

  Layer layer;
  layer.out_rows = out_h;
  const std::uint32_t lines = d.blocks * d.kernel_h * d.kernel_w;
  layer.constants.emplace_back(
      load(0, add_weights(lines * line_bytes), constant_line, lines * line_bytes));
  LoadP params;
  params.offset = add_records(channels, 10);
  params.ocm_line = constant_line + lines;
  params.count = channels;
  layer.constants.emplace_back(params);
  const Requant req = requant(channels, params.ocm_line);
  const std::uint32_t row_bytes = d.in_w * line_bytes;
  const std::uint32_t source = input_at(d.blocks * in_h * row_bytes);
  const std::uint32_t out = output_at(d.blocks * out_h * d.out_w * line_bytes);
  const bool twice = below(3) == 0;
  layer.tile = [=, this](std::uint32_t first, std::uint32_t rows, const Layer::Buffers& at,
                         std::vector<Instruction>& loads, std::vector<Instruction>& compute,
                         std::vector<Instruction>& stores) {
    const Halo need = halo(first, rows, d.stride_h, extent_h, d.pad_top, in_h);
    Load blocks = load(2, source + need.first * row_bytes, at.in, need.rows * row_bytes);
    blocks.rows = d.blocks;
    blocks.ddr_stride = in_h * row_bytes;
    blocks.ocm_stride = need.rows * row_bytes;
    loads.emplace_back(blocks);
    Depthwise tile = d;
    tile.in_line = at.in;
    tile.in_h = need.rows;
    tile.pad_top = need.pad;
    tile.in_block_stride = need.rows * d.in_w;
    tile.out_h = rows;
    tile.acc_row = at.acc;
    tile.acc_block_stride = rows * d.out_w;
    compute.emplace_back(tile);
    if (twice) {
      tile.flags = flag_bit(Flag::accumulate);
      compute.emplace_back(tile);
    }
    compute.emplace_back(requant_tile(req, at, rows, d.out_w));
    store_blocks(stores, at.out, d.blocks, rows * d.out_w, rows, d.out_w, out,
                 out_h * d.out_w * line_bytes, first);
  };
  return layer;
}

Layer LayerMaker::pool() {
  Pool p;
  p.function = below(2);
  p.blocks = between(1, 3);
  p.kernel_h = between(1, below(4) == 0 ? 15 : 4);
  p.kernel_w = between(1, below(4) == 0 ? 15 : 4);
  p.stride_h = between(1, 4);
  p.stride_w = between(1, 5);
  p.in_w = between(1, 12);
  const std::uint32_t in_h = between(1, 12);
  p.pad_top = below(std::min(p.kernel_h, 15U) + 1);
  p.pad_left = below(std::min(p.kernel_w, 15U) + 1);
  p.out_w = between(1, 1 + (p.in_w + p.pad_left) / p.stride_w);
  const std::uint32_t out_h = between(1, 1 + (in_h + p.pad_top - 1) / p.stride_h);
  if (p.blocks * out_h * p.out_w > 1000) return pool();
  const bool identity = p.function == 0 && below(2) == 0;
  p.m = identity ? 1 : between(1, 32767);
  p.s = identity ? 0 : below(24);
  limits(p.lo, p.hi);
  p.in_row_stride = p.in_w;

  Layer layer;
  layer.out_rows = out_h;
  const std::uint32_t row_bytes = p.in_w * line_bytes;
  const std::uint32_t source = input_at(p.blocks * in_h * row_bytes);
  const std::uint32_t out = output_at(p.blocks * out_h * p.out_w * line_bytes);
  layer.tile = [=, this](std::uint32_t first, std::uint32_t rows, const Layer::Buffers& at,
                         std::vector<Instruction>& loads, std::vector<Instruction>& compute,
                         std::vector<Instruction>& stores) {
    const Halo need = halo(first, rows, p.stride_h, p.kernel_h, p.pad_top, in_h);
    Load blocks = load(2, source + need.first * row_bytes, at.in, need.rows * row_bytes);
    blocks.rows = p.blocks;
    blocks.ddr_stride = in_h * row_bytes;
    blocks.ocm_stride = need.rows * row_bytes;
    loads.emplace_back(blocks);
    Pool tile = p;
    tile.in_line = at.in;
    tile.in_h = need.rows;
    tile.pad_top = need.pad;
    tile.in_block_stride = need.rows * p.in_w;
    tile.out_line = at.out;
    tile.out_h = rows;
    tile.out_row_stride = p.out_w;
    tile.out_block_stride = rows * p.out_w;
    compute.emplace_back(tile);
    store_blocks(stores, at.out, p.blocks, rows * p.out_w, rows, p.out_w, out,
                 out_h * p.out_w * line_bytes, first);
  };
  return layer;
}

Layer LayerMaker::movement() {
  Load l;
  l.segment = static_cast<std::uint32_t>(Segment::input);
  l.rows = between(1, 8);
  l.row_bytes = between(1, 200);
  l.ddr_stride = below(3) == 0 ? 0 : below(400);
  l.pad_top = below(4);
  l.pad_bottom = below(4);
  l.pad_left = below(70);
  l.pad_right = below(70);
  const std::uint32_t width = l.pad_left + l.row_bytes + l.pad_right;
  const std::uint32_t height = l.pad_top + l.rows + l.pad_bottom;
  l.ocm_stride = width + below(40);
  l.offset = input_at((l.rows - 1) * l.ddr_stride + l.row_bytes);
  // Only whole lines that the load has written are copied: those of the first row.
  const std::uint32_t lines = std::max(1U, width / line_bytes);
  const std::uint32_t whole = std::min(lanes, width);
  const std::uint32_t out = output_at((height + lines) * (width + 64));
  Layer layer;
  layer.tile = [=](std::uint32_t, std::uint32_t, const Layer::Buffers& at,
                   std::vector<Instruction>& loads, std::vector<Instruction>& compute,
                   std::vector<Instruction>& stores) {
    Load tile = l;
    tile.ocm_addr = at.in * line_bytes;
    loads.emplace_back(tile);
    Elementwise copy;
    copy.function = static_cast<std::uint32_t>(EwFunction::clamp);
    copy.m1 = copy.m2 = 1;
    copy.lo = -128;
    copy.hi = 127;
    copy.a_line = at.in;
    copy.a_step = 1;
    copy.out_line = at.out;
    copy.out_step = 2;
    copy.columns = lines;
    copy.lanes = whole;
    compute.emplace_back(copy);
    Store rows;
    rows.segment = static_cast<std::uint32_t>(Segment::output);
    rows.ocm_addr = tile.ocm_addr;
    rows.rows = height;
    rows.row_bytes = width;
    rows.ocm_stride = tile.ocm_stride;
    rows.ddr_stride = width + 3;
    rows.offset = out;
    stores.emplace_back(rows);
    rows.ocm_addr = at.out * line_bytes;
    rows.rows = lines;
    rows.row_bytes = rows.ddr_stride = line_bytes;
    rows.ocm_stride = 2 * line_bytes;
    rows.offset = out + height * (width + 3);
    stores.emplace_back(rows);
  };
  return layer;
}

Layer LayerMaker::elementwise() {
  Elementwise e;
  e.function = below(5);
  const auto function = static_cast<EwFunction>(e.function);
  const std::uint32_t rows_total = between(1, 20);
  e.columns = between(1, 20);
  e.lanes = below(2) == 0 ? lanes : between(1, lanes);
  e.a_row_stride = e.columns;
  e.a_step = 1;
  Layer layer;
  layer.out_rows = rows_total;
  const bool lut = function == EwFunction::lut;
  const bool second = !lut && function != EwFunction::clamp;
  // 0: as large as the first; 1: one line per row, for all its columns; 2: one line for all.
  const std::uint32_t broadcast = second ? below(3) : 0;
  if (lut) {
    layer.constants.emplace_back(load(0, add_weights(256, false), constant_line, 256));
    e.b_line = constant_line;
  } else {
    e.m1 = signed_between(-300, 300);
    e.m2 = function == EwFunction::mul ? 0 : signed_between(-300, 300);
    e.s = below(function == EwFunction::mul ? 16 : 10);
    limits(e.lo, e.hi);
  }
  if (lut) {
    e.lo = -128;
    e.hi = 127;
  }
  if (second) {
    e.b_row_stride = broadcast == 0 ? e.columns : broadcast == 1 ? 1 : 0;
    e.b_step = broadcast == 0 ? 1 : 0;
  }
  const std::uint32_t row_bytes = e.columns * line_bytes;
  const std::uint32_t a_at = input_at(rows_total * row_bytes);
  const std::uint32_t b_at = input_at(rows_total * row_bytes);
  const std::uint32_t out = output_at(rows_total * row_bytes);
  const bool in_place = below(3) == 0;
  layer.tile = [=, this](std::uint32_t first, std::uint32_t rows, const Layer::Buffers& at,
                         std::vector<Instruction>& loads, std::vector<Instruction>& compute,
                         std::vector<Instruction>& stores) {
    loads.emplace_back(load(2, a_at + first * row_bytes, at.in, rows * row_bytes));
    Elementwise tile = e;
    tile.rows = rows;
    tile.a_line = at.in;
    tile.out_line = at.out;
    tile.out_row_stride = e.columns;
    if (second) {
      tile.b_line = at.in + rows_total * e.columns;
      const std::uint32_t bytes = broadcast == 0   ? rows * row_bytes
                                  : broadcast == 1 ? rows * line_bytes
                                                   : line_bytes;
      const std::uint32_t skip = broadcast == 0   ? first * row_bytes
                                 : broadcast == 1 ? first * line_bytes
                                                  : 0;
      loads.emplace_back(load(2, b_at + skip, tile.b_line, bytes));
    }
    compute.emplace_back(tile);
    if (in_place && !lut) {  // once more on its own output: in place
      Elementwise again = e;
      again.function = static_cast<std::uint32_t>(EwFunction::clamp);
      again.rows = rows;
      again.a_line = again.out_line = at.out;
      again.a_row_stride = again.out_row_stride = e.columns;
      again.b_line = again.b_row_stride = again.b_step = 0;
      compute.emplace_back(again);
    }
    store_blocks(stores, at.out, 1, 0, rows, e.columns, out, 0, first);
  };
  return layer;
}

}  // namespace tenon::npu::testing
