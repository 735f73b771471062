#include "layout.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include <npu/isa/integer_math.hpp>

namespace tenon::npu {
namespace {

class ImageBuilder {
 public:
  ImageBuilder(const BoundGraph& bound, std::vector<MapPlace>& places)
      : bound_(bound), places_(places) {}

  WeightImage build() {
    places_.resize(bound_.graph.maps.size());
    choose_channels_per_pixel();
    for (std::size_t i = 0; i < places_.size(); ++i) {
      if (bound_.graph.maps[i].is_constant()) add_constant_map(i);
    }
    for (std::size_t i = 0; i < bound_.layers.size(); ++i) add_layer(i);
    return std::move(image_);
  }

 private:
  // An image of few channels that only convolutions read is stored in pixels of 1 to 16 channels,
  // so that the array does not multiply zero lanes.
  void choose_channels_per_pixel() {
    std::vector<bool> narrow(places_.size(), false);
    for (const Layer& layer : bound_.graph.layers) {
      if (layer.kind != Layer::Kind::quantize) continue;
      narrow[static_cast<std::size_t>(layer.output)] =
          bound_.graph.map(layer.output).dims.c <= block_channels / 2;
    }
    const auto clear = [&](MapId id) {
      if (id != no_map) narrow[static_cast<std::size_t>(id)] = false;
    };
    for (const Layer& layer : bound_.graph.layers) {
      if (layer.kind != Layer::Kind::conv) clear(layer.input);
      clear(layer.second);
      for (const Post& post : layer.posts) clear(post.other);
    }
    for (std::size_t i = 0; i < places_.size(); ++i) {
      if (!narrow[i] || bound_.graph.maps[i].whole != no_map) continue;
      const auto c = static_cast<std::uint64_t>(bound_.graph.maps[i].dims.c);
      places_[i].log2c = static_cast<unsigned>(std::bit_width(std::bit_ceil(c)) - 1);
    }
  }

  std::int64_t reserve(std::int64_t bytes) {
    const auto begin = static_cast<std::int64_t>(image_.bytes.size());
    image_.bytes.resize(static_cast<std::size_t>(begin + round_up(bytes, 64)));
    return begin;
  }

  std::byte* at(std::int64_t offset) { return image_.bytes.data() + offset; }
  void put(std::int64_t offset, std::int8_t value) { *at(offset) = static_cast<std::byte>(value); }

  void add_constant_map(std::size_t id) {
    const Dims& dims = bound_.graph.maps[id].dims;
    MapPlace& place = places_[id];
    place.where = MapPlace::Where::weight;
    place.offset = reserve(map_bytes(dims, 5));
    std::size_t next = 0;
    for (std::int64_t p = 0; p < dims.pixels(); ++p) {
      for (std::int64_t ch = 0; ch < dims.c; ++ch) {
        const std::int64_t line = ch / block_channels * dims.pixels() + p;
        put(place.offset + line * line_bytes + ch % block_channels, bound_.constants[id][next++]);
      }
    }
  }

  void add_layer(std::size_t index) {
    const Layer& layer = bound_.graph.layers[index];
    const BoundLayer& from = bound_.layers[index];
    LayerConstants& to = image_.layers.emplace_back();
    switch (layer.kind) {
      case Layer::Kind::conv:
        add_conv(layer, from, to);
        break;
      case Layer::Kind::linear:
        add_linear(layer, from, to);
        break;
      case Layer::Kind::depthwise:
        add_depthwise(layer, from, to);
        break;
      case Layer::Kind::quantize:
      case Layer::Kind::dequantize:
        add_scales(layer, to);
        break;
      default:
        break;
    }
    if (!from.records.empty()) {
      to.records = reserve(static_cast<std::int64_t>(from.records.size()) * 8);
      for (std::size_t ch = 0; ch < from.records.size(); ++ch) {
        const auto bytes = isa::pack(from.records[ch]);
        std::memcpy(at(to.records) + ch * bytes.size(), bytes.data(), bytes.size());
      }
    }
    for (std::size_t i = 0; i < layer.posts.size(); ++i) {
      if (layer.posts[i].kind != Post::Kind::lut) {
        to.tables.push_back(-1);
        continue;
      }
      to.tables.push_back(reserve(256));
      std::memcpy(at(to.tables.back()), from.posts[i].table.data(), 256);
    }
  }

  void add_scales(const Layer& layer, LayerConstants& to) {
    const bool reads = layer.kind == Layer::Kind::quantize;
    const FeatureMap& map = bound_.graph.map(reads ? layer.output : layer.input);
    if (map.normratio.empty()) return;
    to.scales = reserve(map.dims.c * 4);
    for (std::int64_t c = 0; c < map.dims.c; ++c) {
      const auto factor = static_cast<float>(reads ? 1 / map.step_of(c) : map.step_of(c));
      std::memcpy(at(to.scales + 4 * c), &factor, sizeof factor);
    }
  }

  // [block of 32 outputs][block of c inputs][kernel row][kernel column][input of the block] lines.
  void add_conv(const Layer& layer, const BoundLayer& from, LayerConstants& to) {
    const std::int64_t c = std::int64_t{1} << places_[static_cast<std::size_t>(layer.input)].log2c;
    const std::int64_t inputs = bound_.graph.map(layer.input).dims.c;
    const std::int64_t outputs = bound_.graph.map(layer.made).dims.c;
    const std::int64_t taps = layer.window.kernel_h * layer.window.kernel_w;
    to.block_bytes = ceil_div(inputs, c) * taps * c * line_bytes;
    to.weights = reserve(ceil_div(outputs, block_channels) * to.block_bytes);
    std::size_t next = 0;
    for (std::int64_t o = 0; o < outputs; ++o) {
      for (std::int64_t i = 0; i < inputs; ++i) {
        for (std::int64_t t = 0; t < taps; ++t) {
          const std::int64_t line = ((i / c) * taps + t) * c + i % c;
          put(to.weights + o / block_channels * to.block_bytes + line * line_bytes +
                  o % block_channels,
              from.weights[next++]);
        }
      }
    }
  }

  // [block of 32 outputs][pixel of the flattened image][input, up to whole blocks] lines.
  void add_linear(const Layer& layer, const BoundLayer& from, LayerConstants& to) {
    const Dims& in = bound_.graph.map(layer.input).dims;
    const std::int64_t outputs = bound_.graph.map(layer.made).dims.c;
    const std::int64_t taps = in.h * in.w;
    to.block_bytes = in.blocks() * taps * block_channels * line_bytes;
    to.weights = reserve(ceil_div(outputs, block_channels) * to.block_bytes);
    std::size_t next = 0;
    for (std::int64_t o = 0; o < outputs; ++o) {
      for (std::int64_t i = 0; i < in.c; ++i) {
        for (std::int64_t t = 0; t < taps; ++t) {
          const std::int64_t line = t * in.blocks() * block_channels + i;
          put(to.weights + o / block_channels * to.block_bytes + line * line_bytes +
                  o % block_channels,
              from.weights[next++]);
        }
      }
    }
  }

  // [block of 32 channels][tap] lines.
  void add_depthwise(const Layer& layer, const BoundLayer& from, LayerConstants& to) {
    const Dims& in = bound_.graph.map(layer.input).dims;
    const std::int64_t taps = layer.window.kernel_h * layer.window.kernel_w;
    to.block_bytes = taps * line_bytes;
    to.weights = reserve(in.blocks() * to.block_bytes);
    std::size_t next = 0;
    for (std::int64_t ch = 0; ch < in.c; ++ch) {
      for (std::int64_t t = 0; t < taps; ++t) {
        put(to.weights + ch / block_channels * to.block_bytes + t * line_bytes +
                ch % block_channels,
            from.weights[next++]);
      }
    }
  }

  const BoundGraph& bound_;
  std::vector<MapPlace>& places_;
  WeightImage image_;
};

}  // namespace

std::int64_t map_bytes(const Dims& dims, unsigned log2c) noexcept {
  const std::int64_t c = std::int64_t{1} << log2c;
  return ceil_div(dims.c, c) * dims.pixels() * c;
}

WeightImage make_weight_image(const BoundGraph& bound, std::vector<MapPlace>& places) {
  return ImageBuilder(bound, places).build();
}

}  // namespace tenon::npu
