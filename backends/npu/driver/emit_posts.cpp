#include "layer_emitter.hpp"

namespace tenon::npu {

using std::int64_t;

void LayerEmitter::emit_post(const Tile& tile, std::size_t index, std::size_t& other,
                             const TileRef& a, const TileRef& out) {
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
      return emit_blocks(tile, ew, a, {int64_t{table_lines_[index]} * line_bytes, 0}, 0, 0, out, 0,
                         pixels(tile));
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

void LayerEmitter::emit_blocks(const Tile& tile, const isa::Elementwise& ew, const TileRef& a,
                               const TileRef& b, int64_t b_blocks, int64_t b_pixels,
                               const TileRef& out, int64_t first, int64_t count) {
  for_each_blocks({ew, a, b, out, b_blocks, b_pixels, channels(tile), first, count},
                  [&](const isa::Elementwise& instruction) { add(instruction); });
}

}  // namespace tenon::npu
