// The vision encoders of Qwen2-VL, Qwen2.5-VL and Qwen3-VL, which read images of any size.
#pragma once

#include <tenon/fields.hpp>
#include <tenon/host_buffer.hpp>
#include <tenon/models/decoder.hpp>
#include <tenon/models/vision.hpp>
#include <tenon/nn.hpp>
#include <tenon/ops.hpp>
#include <tenon/repeat.hpp>

#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

namespace tenon::models {

/// Windows of an image, each of which is a batch of its own, filled up to one size.
template <class T = Tensor>
struct PatchWindows {
  T patches;  ///< i32 [windows, size]: which ones it has; 0 where it has fewer
  T axes;     ///< i32 [windows, 2, size], as PatchPlaces::axes
  T mask;     ///< f32 [windows, 1, 1, size]: -inf where it has no patch
  T places;   ///< i32 [N]: where a patch is among the windows' patches
  TENON_FIELDS(patches, axes, mask, places)
};

/// Where patches are on a table of learned positions of another size: each between four of them.
template <class T = Tensor>
struct PatchCorners {
  T rows;     ///< i32 [4, N], of the table
  T weights;  ///< f32 [4, N, 1]
  TENON_FIELDS(rows, weights)
};

/// What a PatchTransformer knows of its N patches besides their pixels. The order is that of the embeddings, row after row,
/// and within one that of its square of patches.
template <class T = Tensor>
struct PatchPlaces {
  T axes;  ///< i32 [2, N]: row and column
  std::optional<PatchWindows<T>> windows;
  std::optional<PatchCorners<T>> corners;
  TENON_FIELDS(axes, windows, corners)
};

/// Those of an image of so many embeddings.
PatchPlaces<HostBuffer> places_of(const VisionConfig& config, const ImageGrid& grid);

/// Pixels f32 [1, 3, height, width] as patches in their order, f32 [1, N, 3 * patch size * patch size].
HostBuffer patches_of(const VisionConfig& config, const HostBuffer& pixels);

template <class T = Tensor>
struct PatchLayer {
  DecoderNorm<T> attention_norm;
  nn::MultiHeadAttention<T> attention;
  DecoderNorm<T> feed_forward_norm;
  nn::FeedForward<T> feed_forward;
  bool has_windows = false;
  TENON_FIELDS(attention_norm, attention, feed_forward_norm, feed_forward, has_windows)
};

/// Squares of patches as embeddings of the language model.
template <class T = Tensor>
struct PatchMerger {
  DecoderNorm<T> norm;  ///< of patches, or of whole squares
  nn::FeedForward<T> layers;
  bool norms_squares = false;
  TENON_FIELDS(norm, layers, norms_squares)

  /// x [1, N, width] -> [1, N / square, model width].
  Tensor forward(const Tensor& x, std::int64_t square) const
    requires std::same_as<T, Tensor>
  {
    const auto merged = [&](const Tensor& patches) {
      return merge_axes(split_axis(patches, 1, {x.dim(1) / square, square}), 2, 3);
    };
    return layers.forward(norms_squares ? norm.forward(merged(x)) : merged(norm.forward(x)));
  }
};

/// Layers, and what becomes of their results besides the next layers' input.
template <class T = Tensor>
struct PatchSegment {
  std::vector<PatchLayer<T>> layers;
  std::optional<PatchMerger<T>> merger;
  TENON_FIELDS(layers, merger)
};

/// A vision transformer whose patches have rotary positions of two axes (Wang et al., Qwen2-VL, arXiv:2409.12191; Bai et
/// al., Qwen2.5-VL, arXiv:2502.13923; Qwen3-VL's as modeling_qwen3_vl.py of transformers has it).
template <class T = Tensor>
struct PatchTransformer {
  T patch_weight;         ///< [width, 3, patch size, patch size], of the first of two frames
  T second_patch_weight;  ///< of the second, which is an image's once more
  std::optional<T> patch_bias;
  std::optional<T> positions;  ///< [patches of a square, width], row after row
  std::vector<PatchSegment<T>> segments;
  PatchMerger<T> merger;
  TENON_FIELDS(patch_weight, second_patch_weight, patch_bias, positions, segments, merger, config)
  VisionConfig config;

  /// Declares the weights by their GGUF names. Errors: bad_reference, shape_mismatch.
  static PatchTransformer init(const WeightsView& view, const VisionConfig& config);

  /// patches as patches_of() has them -> f32 [N / merge^2, VisionConfig::row()].
  Tensor forward(const Tensor& patches, const PatchPlaces<Tensor>& places) const
    requires std::same_as<T, Tensor>
  {
    Tensor x = linear(patches, merge_axes(patch_weight, 1, 3), patch_bias.value_or(Tensor())) +
               linear(patches, merge_axes(second_patch_weight, 1, 3), Tensor());
    if (positions) {
      const Tensor corners = embedding(places.corners->rows, *positions);  // [4, N, width]
      x = x + unsqueeze(sum(corners * places.corners->weights, {0}), 0);
    }
    const Tensor factors = rope_factors();
    std::vector<Tensor> made;
    for (const PatchSegment<Tensor>& segment : segments) {
      x = repeat(segment.layers, x,
                 [&](const PatchLayer<Tensor>& layer, const Tensor&, const Tensor& carry) {
                   const Tensor normed = layer.attention_norm.forward(carry);
                   const Tensor middle = carry + mixed(layer, normed, places, factors);
                   return middle +
                          layer.feed_forward.forward(layer.feed_forward_norm.forward(middle));
                 });
      if (segment.merger) made.push_back(segment.merger->forward(x, config.merge * config.merge));
    }
    made.insert(made.begin(), merger.forward(x, config.merge * config.merge));
    return squeeze(made.size() == 1 ? made.front() : concat(made, -1), 0);
  }

 private:
  /// Half of the pairs of a head turn by the row, half by the column, both with the frequencies 10000^(-4i / head size): as
  /// factors of a rotation with frequencies of 1.
  Tensor rope_factors() const
    requires std::same_as<T, Tensor>
  {
    const std::int64_t pairs = config.width / config.heads / 4;
    const double step = std::log(10000.0) / static_cast<double>(pairs);
    const Tensor half = exp(cast(iota(pairs, i32), f32) * step);
    return concat({half, half}, 0);
  }

  Tensor mixed(const PatchLayer<Tensor>& layer, const Tensor& x, const PatchPlaces<Tensor>& places,
               const Tensor& factors) const
    requires std::same_as<T, Tensor>
  {
    nn::MultiHeadAttention<Tensor> attention = layer.attention;
    attention.rope_factors = factors;
    if (!layer.has_windows) return attention.forward(x, places.axes, Tensor());
    const PatchWindows<Tensor>& windows = *places.windows;
    const Tensor cut = gather(squeeze(x, 0), windows.patches);
    const Tensor y = attention.forward(cut, windows.axes, windows.mask);
    return unsqueeze(gather(merge_axes(y, 0, 1), windows.places), 0);
  }
};

template <>
PatchTransformer<Tensor> PatchTransformer<Tensor>::init(const WeightsView& view,
                                                        const VisionConfig& config);

}  // namespace tenon::models
