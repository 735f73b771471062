#include "patch_transformer.hpp"

#include "vision_parts.hpp"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

namespace tenon::models {
namespace {

/// Row and column of each patch, in the order of PatchPlaces.
struct Patch {
  std::int64_t row, column;
};
std::vector<Patch> patches_in_order(const VisionConfig& config, const ImageGrid& grid) {
  std::vector<Patch> all;
  const std::int64_t merge = config.merge;
  for (std::int64_t row = 0; row < grid.rows; ++row) {
    for (std::int64_t column = 0; column < grid.columns; ++column) {
      for (std::int64_t i = 0; i < merge * merge; ++i) {
        all.push_back({row * merge + i / merge, column * merge + i % merge});
      }
    }
  }
  return all;
}

std::int64_t rounded_up(std::int64_t count, std::int64_t size) { return (count + size - 1) / size; }

std::int32_t small(std::int64_t number) { return static_cast<std::int32_t>(number); }

/// Source    get_window_index of transformers' modeling_qwen2_5_vl.py
PatchWindows<HostBuffer> windows_of(const VisionConfig& config, const ImageGrid& grid,
                                    const std::vector<Patch>& patches) {
  const std::int64_t side = config.window;
  const std::int64_t rows = grid.rows * config.merge, columns = grid.columns * config.merge;
  const std::int64_t across = rounded_up(columns, side);
  const std::int64_t windows = rounded_up(rows, side) * across;
  const std::int64_t size = std::min(side, rows) * std::min(side, columns);
  PatchWindows<HostBuffer> made{HostBuffer::zeros(Shape({windows, size}, i32)),
                                HostBuffer::zeros(Shape({windows, 2, size}, i32)),
                                HostBuffer::uninitialized(Shape({windows, 1, 1, size}, f32)),
                                HostBuffer::zeros(Shape({std::ssize(patches)}, i32))};
  const auto of = made.patches.mutable_values<std::int32_t>();
  const auto axes = made.axes.mutable_values<std::int32_t>();
  const auto mask = made.mask.mutable_values<float>();
  const auto places = made.places.mutable_values<std::int32_t>();
  std::ranges::fill(mask, -std::numeric_limits<float>::infinity());
  std::vector<std::int64_t> filled(static_cast<std::size_t>(windows));
  for (std::size_t i = 0; i < patches.size(); ++i) {
    const auto [row, column] = patches[i];
    const std::int64_t window = row / side * across + column / side;
    const std::int64_t at = filled[static_cast<std::size_t>(window)]++;
    const auto place = static_cast<std::size_t>(window * size + at);
    of[place] = static_cast<std::int32_t>(i);
    mask[place] = 0;
    places[i] = static_cast<std::int32_t>(place);
    axes[static_cast<std::size_t>(2 * window * size + at)] = small(row);
    axes[static_cast<std::size_t>((2 * window + 1) * size + at)] = small(column);
  }
  return made;
}

/// A place on a line of the table: between two of its entries.
struct Between {
  std::int64_t low, high;
  float share;  // of the higher one
};
Between between(std::int64_t i, std::int64_t count, std::int64_t entries) {
  // As linspace from the first entry to the last, both of which are met; its second half is counted from the end.
  const auto last = static_cast<float>(entries - 1);
  const float step = count > 1 ? last / static_cast<float>(count - 1) : 0;
  const float at = i < count / 2 || count == 1 ? step * static_cast<float>(i)
                                               : last - step * static_cast<float>(count - 1 - i);
  const auto low = static_cast<std::int64_t>(at);
  return {low, std::min(low + 1, entries - 1), at - static_cast<float>(low)};
}

/// Source    fast_pos_embed_interpolate of transformers' modeling_qwen3_vl.py
PatchCorners<HostBuffer> corners_of(const VisionConfig& config, const ImageGrid& grid,
                                    const std::vector<Patch>& patches) {
  const std::int64_t side = config.patches();
  const std::size_t count = patches.size();
  PatchCorners<HostBuffer> made{HostBuffer::uninitialized(Shape({4, std::ssize(patches)}, i32)),
                                HostBuffer::uninitialized(Shape({4, std::ssize(patches), 1}, f32))};
  const auto rows = made.rows.mutable_values<std::int32_t>();
  const auto weights = made.weights.mutable_values<float>();
  for (std::size_t i = 0; i < count; ++i) {
    const Between y = between(patches[i].row, grid.rows * config.merge, side);
    const Between x = between(patches[i].column, grid.columns * config.merge, side);
    const std::int64_t at[] = {y.low * side + x.low, y.low * side + x.high, y.high * side + x.low,
                               y.high * side + x.high};
    const float shares[] = {(1 - y.share) * (1 - x.share), (1 - y.share) * x.share,
                            y.share * (1 - x.share), y.share * x.share};
    for (std::size_t corner = 0; corner < 4; ++corner) {
      rows[corner * count + i] = small(at[corner]);
      weights[corner * count + i] = shares[corner];
    }
  }
  return made;
}

DecoderNorm<> patch_norm(const WeightsView& view, const VisionConfig& config) {
  if (config.projector == VisionProjector::qwen25vl) {
    return {nn::RmsNorm<>::init(view, config.norm_eps), {}};
  }
  return {{}, nn::LayerNorm<>::init(view, config.norm_eps)};
}

nn::MultiHeadAttention<> patch_attention(const WeightsView& view, const VisionConfig& config) {
  nn::MultiHeadAttention<> made;
  if (const WeightsView all = view["attn_qkv"]; all.contains("weight")) {
    const std::int64_t wanted[] = {3 * config.width, config.width};
    static_cast<void>(all.tensor("weight", wanted));
    if (all.contains("bias")) static_cast<void>(all.tensor("bias", std::span(wanted).first(1)));
    made.query = nn::Linear<>::init_rows(all, 0, config.width);
    made.key = nn::Linear<>::init_rows(all, config.width, config.width);
    made.value = nn::Linear<>::init_rows(all, 2 * config.width, config.width);
    made.output = nn::Linear<>::init(view["attn_out"]);
    made.heads = made.kv_heads = config.heads;
    made.head_dim = config.width / config.heads;
  } else {
    made = nn::MultiHeadAttention<>::init(
        view, config.heads,
        {.query = "attn_q", .key = "attn_k", .value = "attn_v", .output = "attn_out"});
  }
  const std::int64_t half = config.width / config.heads / 4;
  const std::int64_t sections[] = {half, half};
  made.rope = Rope{.theta = 1, .sections = IntList(sections)};
  return made;
}

PatchLayer<> layer_part(const WeightsView& view, const VisionConfig& config, std::int64_t index) {
  PatchLayer<> made;
  made.attention_norm = patch_norm(view["ln1"], config);
  made.attention = patch_attention(view, config);
  made.feed_forward_norm = patch_norm(view["ln2"], config);
  made.feed_forward = feed_forward_part(view, config);
  made.has_windows = config.window > 0 && (index + 1) % config.full_every != 0;
  return made;
}

PatchMerger<> deep_merger(const WeightsView& view, const VisionConfig& config) {
  PatchMerger<> made;
  made.norm = patch_norm(view["norm"], config);
  made.layers.up = nn::Linear<>::init(view["fc1"]);
  made.layers.down = nn::Linear<>::init(view["fc2"]);
  made.layers.activation = "gelu";
  made.norms_squares = true;
  return made;
}

}  // namespace

PatchPlaces<HostBuffer> places_of(const VisionConfig& config, const ImageGrid& grid) {
  const std::vector<Patch> patches = patches_in_order(config, grid);
  PatchPlaces<HostBuffer> made;
  made.axes = HostBuffer::uninitialized(Shape({2, std::ssize(patches)}, i32));
  const auto axes = made.axes.mutable_values<std::int32_t>();
  for (std::size_t i = 0; i < patches.size(); ++i) {
    axes[i] = small(patches[i].row);
    axes[patches.size() + i] = small(patches[i].column);
  }
  if (config.window > 0) made.windows = windows_of(config, grid, patches);
  if (config.projector == VisionProjector::qwen3vl) {
    made.corners = corners_of(config, grid, patches);
  }
  return made;
}

HostBuffer patches_of(const VisionConfig& config, const HostBuffer& pixels) {
  const std::int64_t side = config.patch_size;
  const std::int64_t height = pixels.shape()[2], width = pixels.shape()[3];
  const ImageGrid grid{height / side / config.merge, width / side / config.merge};
  const std::vector<Patch> patches = patches_in_order(config, grid);
  HostBuffer made =
      HostBuffer::uninitialized(Shape({1, std::ssize(patches), 3 * side * side}, f32));
  auto to = made.mutable_values<float>().begin();
  const auto from = pixels.values<float>().begin();
  for (const auto& [row, column] : patches) {
    for (std::int64_t colour = 0; colour < 3; ++colour) {
      for (std::int64_t y = 0; y < side; ++y) {
        to = std::copy_n(from + ((colour * height + row * side + y) * width + column * side), side,
                         to);
      }
    }
  }
  return made;
}

template <>
PatchTransformer<Tensor> PatchTransformer<Tensor>::init(const WeightsView& view,
                                                        const VisionConfig& config) {
  const WeightsView vision = view["v"], projector = view["mm"];
  PatchTransformer made;
  made.config = config;
  const std::int64_t patch[] = {config.width, 3, config.patch_size, config.patch_size};
  made.patch_weight = vision["patch_embd"].tensor("weight", patch);
  made.second_patch_weight = vision["patch_embd"]["weight"].tensor("1", patch);
  made.patch_bias = vision["patch_embd"].find("bias");
  if (config.projector == VisionProjector::qwen3vl) {
    const std::int64_t rows[] = {config.patches() * config.patches(), config.width};
    made.positions = vision["position_embd"].tensor("weight", rows);
  }
  made.segments.emplace_back();
  auto deep = config.deep_layers.begin();
  for (std::int64_t i = 0; i < config.layers; ++i) {
    made.segments.back().layers.push_back(layer_part(vision["blk"][i], config, i));
    if (deep == config.deep_layers.end() || *deep != i) continue;
    made.segments.back().merger = deep_merger(vision["deepstack"][i], config);
    made.segments.emplace_back();
    ++deep;
  }
  made.merger.norm = patch_norm(vision["post_ln"], config);
  made.merger.layers.up = nn::Linear<>::init(projector[0]);
  made.merger.layers.down = nn::Linear<>::init(projector[2]);
  made.merger.layers.activation = "gelu";
  return made;
}

}  // namespace tenon::models
