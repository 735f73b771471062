#include "elementwise_blocks.hpp"
#include "emit.hpp"
#include "tile_buffers.hpp"

#include <algorithm>

namespace tenon::npu {
namespace {

using std::int64_t;

constexpr int64_t max_side = 4096;          // h and w of REQ
constexpr int64_t max_row_bytes = 1 << 20;  // of LOAD

std::uint32_t u32(int64_t value) { return static_cast<std::uint32_t>(value); }

class LayerEmitter {
 public:
  LayerEmitter(const EmitContext& context, std::size_t index, Instructions& out)
      : context_(context),
        layer_(context.bound.graph.layers[index]),
        bound_(context.bound.layers[index]),
        constants_(context.image.layers[index]),
        number_(static_cast<std::uint16_t>(index)),
        shape_(context.bound.graph, context.places, index),
        tiling_(choose_tiling(shape_, context.caps, context.work.size)),
        out_(out) {
    int64_t next = context.work.begin;
    input_ = TileBuffers(next, tiling_.input_bytes, tiling_.buffers);
    weights_ = TileBuffers(next, tiling_.weight_bytes, tiling_.buffers);
    records_ = TileBuffers(next, tiling_.record_bytes, tiling_.buffers);
    output_ = TileBuffers(next, tiling_.output_bytes, tiling_.buffers);
    for (const int64_t bytes : tiling_.other_bytes) {
      others_.emplace_back(next, bytes, tiling_.buffers);
    }
    tables_ = next;
  }

  void emit() {
    load_tables();
    const std::vector<Tile> pixels = pixel_tiles(shape_, tiling_);
    const auto with_blocks = [&](Tile tile, int64_t b0) {
      tile.b0 = b0;
      tile.b1 = std::min(b0 + tiling_.out_blocks, shape_.out_blocks);
      emit_tile(tile);
    };
    if (tiling_.blocks_outer) {
      for (int64_t b0 = 0; b0 < shape_.out_blocks; b0 += tiling_.out_blocks) {
        for (const Tile& tile : pixels) with_blocks(tile, b0);
      }
    } else {
      for (const Tile& tile : pixels) {
        for (int64_t b0 = 0; b0 < shape_.out_blocks; b0 += tiling_.out_blocks) {
          with_blocks(tile, b0);
        }
      }
    }
  }

 private:
  template <class Instruction>
  void add(Instruction instruction) {
    instruction.layer = number_;
    out_.push_back(instruction);
  }

  const MapPlace& place(MapId id) const { return context_.places[static_cast<std::size_t>(id)]; }
  bool is_on_chip(MapId id) const { return place(id).where == MapPlace::Where::ocm; }
  std::uint32_t segment_of(MapId id) const {
    return static_cast<std::uint32_t>(
        place(id).where == MapPlace::Where::weight ? isa::Segment::weight : isa::Segment::ftmp);
  }
  int64_t first_pixel(const Tile& tile) const {
    return (tile.n0 * shape_.out.h + tile.y0) * shape_.out.w;
  }
  int64_t pixels(const Tile& tile) const { return tile.images() * tile.rows() * shape_.out.w; }
  int64_t channels(const Tile& tile) const {
    return std::min(shape_.out.c, tile.b1 * block_channels) - tile.b0 * block_channels;
  }

  // ---- loads ------------------------------------------------------------------------------------

  void load(std::uint32_t segment, int64_t offset, int64_t to, int64_t rows, int64_t row_bytes,
            int64_t ddr_stride, int64_t ocm_stride) {
    isa::Load load;
    load.segment = segment;
    if (rows == 1) ddr_stride = ocm_stride = 0;
    load.offset = u32(offset);
    load.ocm_addr = u32(to);
    load.rows = u32(rows);
    load.row_bytes = u32(row_bytes);
    load.ddr_stride = u32(ddr_stride);
    load.ocm_stride = u32(ocm_stride);
    add(load);
  }

  void load_constant(int64_t offset, int64_t to, int64_t rows, int64_t row_bytes,
                     int64_t ddr_stride) {
    load(static_cast<std::uint32_t>(isa::Segment::weight), offset, to, rows, row_bytes, ddr_stride,
         row_bytes);
  }

  /// Pixels [p0, p0 + count) of blocks [b0, b1) of a map with whole lines.
  TileRef map_ref(MapId id, TileBuffers& buffers, int64_t p0, int64_t count, int64_t b0,
                  int64_t b1) {
    const MapPlace& from = place(id);
    const int64_t total = context_.bound.graph.map(id).dims.pixels();
    const int64_t offset = from.offset + (b0 * total + p0) * line_bytes;
    if (from.where == MapPlace::Where::ocm) return {offset, total};
    const auto found = buffers.find({p0, count, b0, b1, 0, 0});
    if (!found.loaded) {
      load(segment_of(id), offset, found.address, b1 - b0, count * line_bytes, total * line_bytes,
           count * line_bytes);
    }
    return {found.address, count};
  }

  struct InputRef : TileRef {
    int64_t image_bytes = 0;  // from image to image
    InputRows rows;
  };

  /// The part of the input that a tile reads, of its blocks [k0, k1).
  InputRef input_ref(const Tile& tile, int64_t k0, int64_t k1) {
    InputRef ref;
    ref.rows = shape_.input_rows(tile.y0, tile.y1);
    const Dims& in = shape_.in;
    const int64_t c = int64_t{1} << shape_.log2c;
    const int64_t row_pixels = (ref.rows.last - ref.rows.first) * in.w;
    const int64_t first = (tile.n0 * in.h + ref.rows.first) * in.w;
    if (c == block_channels) {
      const bool loads = !is_on_chip(layer_.input);
      static_cast<TileRef&>(ref) =
          map_ref(layer_.input, input_, first, tile.images() * row_pixels, k0, k1);
      ref.image_bytes = (loads ? row_pixels : in.h * in.w) * line_bytes;
      return ref;
    }
    // Narrow pixels: one block, each image on a line of its own.
    const int64_t bytes = row_pixels * c;
    ref.image_bytes = (bytes + line_bytes - 1) / line_bytes * line_bytes;
    ref.stride = ref.image_bytes / c;
    const auto found = input_.find({tile.n0, tile.n1, ref.rows.first, ref.rows.last, 0, 0});
    ref.address = found.address;
    if (!found.loaded) {
      load(segment_of(layer_.input), place(layer_.input).offset + first * c, found.address,
           tile.images(), bytes, in.h * in.w * c, ref.image_bytes);
    }
    return ref;
  }

  struct WeightRef {
    int64_t address;
    int64_t block_lines;  // from block of outputs to the next
  };

  WeightRef weight_ref(const Tile& tile, int64_t k0, int64_t k1) {
    const int64_t c = int64_t{1} << shape_.log2c;
    const int64_t depth = shape_.is_channelwise() ? 1 : (k1 - k0) * c;
    const int64_t lines = depth * (shape_.is_flattened() ? 1 : shape_.taps);
    const int64_t block_bytes = lines * line_bytes;
    const auto found = weights_.find({tile.b0, tile.b1, k0, k1, 0, 0});
    const WeightRef ref{found.address, lines};
    if (found.loaded) return ref;
    const int64_t from = constants_.weights + tile.b0 * constants_.block_bytes;
    if (block_bytes == constants_.block_bytes && tile.blocks() * block_bytes <= max_row_bytes) {
      load_constant(from, found.address, 1, tile.blocks() * block_bytes, 0);
    } else {
      load_constant(from + k0 * c * (lines / depth) * line_bytes, found.address, tile.blocks(),
                    block_bytes, constants_.block_bytes);
    }
    return ref;
  }

  std::uint32_t record_line(const Tile& tile) {
    const auto found = records_.find({tile.b0, tile.b1, 0, 0, 0, 0});
    if (!found.loaded) {
      isa::LoadP load;
      load.segment = static_cast<std::uint32_t>(isa::Segment::weight);
      load.offset = u32(constants_.records + tile.b0 * block_channels * 8);
      load.ocm_line = u32(found.address / line_bytes);
      load.count = u32(channels(tile));
      add(load);
    }
    return u32(found.address / line_bytes);
  }

  void load_tables() {
    int64_t next = tables_;
    for (std::size_t i = 0; i < layer_.posts.size(); ++i) {
      table_lines_.push_back(u32(next / line_bytes));
      if (layer_.posts[i].kind != Post::Kind::lut) continue;
      load_constant(constants_.tables[i], next, 1, 256, 0);
      next += 256;
    }
  }

  // ---- a tile -----------------------------------------------------------------------------------

  void emit_tile(const Tile& tile) {
    const TileRef out = output_ref(tile);
    TileRef made = out;
    switch (layer_.kind) {
      case Layer::Kind::conv:
      case Layer::Kind::linear:
      case Layer::Kind::matmul:
        emit_sums(tile);
        emit_requant(tile, out);
        break;
      case Layer::Kind::depthwise:
        emit_depthwise(tile);
        emit_requant(tile, out);
        break;
      case Layer::Kind::max_pool:
      case Layer::Kind::sum_pool:
        emit_pool(tile, out);
        break;
      default:
        made = input_ref(tile, tile.b0, tile.b1);
        break;
    }
    std::size_t other = 0;
    for (std::size_t i = 0; i < layer_.posts.size(); ++i) {
      emit_post(tile, i, other, made, out);
      made = out;
    }
    if (!is_on_chip(layer_.output)) emit_store(tile, out);
  }

  TileRef output_ref(const Tile& tile) {
    if (!is_on_chip(layer_.output)) {
      return {output_.find({first_pixel(tile), tile.b0, ++serial_, 0, 0, 0}).address, pixels(tile)};
    }
    const int64_t line = (layer_.first_block + tile.b0) * shape_.total_pixels + first_pixel(tile);
    return {place(layer_.output).offset + line * line_bytes, shape_.total_pixels};
  }

  void emit_sums(const Tile& tile) {
    for (int64_t k0 = 0; k0 < shape_.sum_parts(); k0 += tiling_.sum_parts) {
      const int64_t k1 = std::min(k0 + tiling_.sum_parts, shape_.sum_parts());
      const InputRef in =
          shape_.is_flattened() ? input_ref(tile, 0, shape_.in_blocks) : input_ref(tile, k0, k1);
      if (layer_.kind == Layer::Kind::conv) {
        emit_conv(tile, in, weight_ref(tile, k0, k1), k0, k1);
      } else if (layer_.kind == Layer::Kind::linear) {
        emit_linear(tile, in, weight_ref(tile, k0, k1), k0, k1);
      } else {
        emit_matmul(tile, in, k0, k1);
      }
    }
  }

  void emit_conv(const Tile& tile, const InputRef& in, const WeightRef& weights, int64_t k0,
                 int64_t k1) {
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

  template <class Instruction>
  static void set_window(Instruction& instruction, const Window& window, const InputRows& rows) {
    instruction.kernel_h = u32(window.kernel_h);
    instruction.kernel_w = u32(window.kernel_w);
    instruction.stride_h = u32(window.stride_h);
    instruction.stride_w = u32(window.stride_w);
    instruction.pad_top = u32(rows.above);
    instruction.pad_left = u32(window.left);
  }

  // Rows of the product are images; the parts of the sum are the blocks of channels of the first
  // pixel of the flattened image, then those of the second, ...
  void emit_linear(const Tile& tile, const InputRef& in, const WeightRef& weights, int64_t k0,
                   int64_t k1) {
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
      gemm.a_line = in.line(part / blocks + block * in.stride);
      gemm.b_line = u32(weights.address / line_bytes + (part - k0) * block_channels);
      add(gemm);
      part += last - first;
    }
  }

  void emit_matmul(const Tile& tile, const InputRef& in, int64_t k0, int64_t k1) {
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

  void emit_depthwise(const Tile& tile) {
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

  void emit_pool(const Tile& tile, const TileRef& out) {
    const InputRef in = input_ref(tile, tile.b0, tile.b1);
    isa::Pool pool;
    const bool max = layer_.kind == Layer::Kind::max_pool;
    pool.function =
        static_cast<std::uint32_t>(max ? isa::PoolFunction::max : isa::PoolFunction::sum);
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

  void emit_requant(const Tile& tile, const TileRef& out) {
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
    for (int64_t p = 0; p < pixels(tile); p += max_side) {
      req.acc_row = u32(p);
      req.w = u32(std::min(max_side, pixels(tile) - p));
      req.out_line = out.line(p);
      add(req);
    }
  }

  void emit_store(const Tile& tile, const TileRef& from) {
    isa::Store store;
    const int64_t row_bytes = pixels(tile) * line_bytes;
    store.segment = static_cast<std::uint32_t>(isa::Segment::ftmp);
    store.offset = u32(place(layer_.output).offset +
                       ((layer_.first_block + tile.b0) * shape_.total_pixels + first_pixel(tile)) *
                           line_bytes);
    store.ocm_addr = u32(from.address);
    store.rows = u32(tile.blocks());
    store.row_bytes = u32(row_bytes);
    if (tile.blocks() > 1) {
      store.ddr_stride = u32(shape_.total_pixels * line_bytes);
      store.ocm_stride = u32(from.stride * line_bytes);
    }
    add(store);
  }

  // ---- element by element -----------------------------------------------------------------------

  void emit_post(const Tile& tile, std::size_t index, std::size_t& other, const TileRef& a,
                 const TileRef& out) {
    const Post& post = layer_.posts[index];
    const BoundPost& bound = bound_.posts[index];
    isa::Elementwise ew;
    ew.m1 = bound.scaling.m1;
    ew.m2 = bound.scaling.m2;
    ew.s = bound.scaling.s;
    ew.lo = bound.limits.lo;
    ew.hi = bound.limits.hi;
    ew.a_step = 1;
    const auto set = [&](isa::EwFunction f) { ew.function = static_cast<std::uint32_t>(f); };
    switch (post.kind) {
      case Post::Kind::rescale:
        set(isa::EwFunction::clamp);
        return emit_blocks(tile, ew, a, {}, 0, 0, out, 0, pixels(tile));
      case Post::Kind::lut:
        set(isa::EwFunction::lut);
        ew.lo = -128;
        ew.hi = 127;
        return emit_blocks(tile, ew, a, {int64_t{table_lines_[index]} * line_bytes, 0}, 0, 0, out,
                           0, pixels(tile));
      case Post::Kind::add:
        set(isa::EwFunction::add);
        break;
      case Post::Kind::mul:
        set(isa::EwFunction::mul);
        break;
      case Post::Kind::max:
        set(isa::EwFunction::max);
        break;
    }
    TileBuffers& buffers = others_[other++];
    if (post.spread == Post::Spread::same) {
      const TileRef b =
          map_ref(post.other, buffers, first_pixel(tile), pixels(tile), tile.b0, tile.b1);
      ew.b_step = 1;
      emit_blocks(tile, ew, a, b, 1, 1, out, 0, pixels(tile));
    } else if (post.spread == Post::Spread::channel) {
      const TileRef b = map_ref(post.other, buffers, 0, 1, tile.b0, tile.b1);
      emit_blocks(tile, ew, a, b, 1, 0, out, 0, pixels(tile));
    } else {
      TileRef b = map_ref(post.other, buffers, tile.n0, tile.images(), tile.b0, tile.b1);
      const int64_t image = tile.rows() * shape_.out.w;
      for (int64_t n = 0; n < tile.images(); ++n) {
        emit_blocks(tile, ew, a, b, 1, 0, out, n * image, image);
        b.address += line_bytes;
      }
    }
  }

  void emit_blocks(const Tile& tile, const isa::Elementwise& ew, const TileRef& a, const TileRef& b,
                   int64_t b_blocks, int64_t b_pixels, const TileRef& out, int64_t first,
                   int64_t count) {
    for_each_blocks({ew, a, b, out, b_blocks, b_pixels, channels(tile), first, count},
                    [&](const isa::Elementwise& instruction) { add(instruction); });
  }

  const EmitContext& context_;
  const Layer& layer_;
  const BoundLayer& bound_;
  const LayerConstants& constants_;
  std::uint16_t number_;
  LayerShape shape_;
  Tiling tiling_;
  Instructions& out_;
  TileBuffers input_, weights_, records_, output_;
  std::vector<TileBuffers> others_;
  std::vector<std::uint32_t> table_lines_;
  int64_t tables_ = 0;
  int64_t serial_ = 0;
};

}  // namespace

void emit_layer(const EmitContext& context, std::size_t layer, Instructions& out) {
  LayerEmitter(context, layer, out).emit();
}

}  // namespace tenon::npu
