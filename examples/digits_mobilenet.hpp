// A classifier of digits, 32 by 32, of MobileNetV2's parts (Sandler et al., arXiv:1801.04381).
#pragma once

#include <tenon/tenon.hpp>

#include <optional>
#include <utility>
#include <vector>

using namespace tenon;  // NOLINT(google-global-names-in-headers): a header of examples

/// A convolution while it is trained: its sums are normalised by the statistics of the batch.
template <class T = Tensor>
struct NormalizedConv {
  T weight, gain, shift;
  TENON_FIELDS(weight, gain, shift, options)
  tenon::Conv2d options;

  Tensor forward(const Tensor& x) const { return folded(x).first; }
  /// The result, and the convolution that gives the same without the batch's statistics.
  std::pair<Tensor, nn::Conv2d<Tensor>> folded(const Tensor& x) const {
    constexpr double eps = 1e-3;
    const auto normal = batch_norm_training(conv2d(x, weight, {}, options), gain, shift, eps);
    const Tensor factor = gain / sqrt(normal.variance + eps);
    const Tensor scaled = weight * reshape(factor, {-1, 1, 1, 1});
    return {normal.y, {scaled, shift - normal.mean * factor, options}};
  }
};

/// Channels are multiplied by `expand`, where there is one; each is convolved; `project` mixes them.
template <class Conv>
struct InvertedResidual {
  std::optional<Conv> expand;
  Conv depthwise, project;
  TENON_FIELDS(expand, depthwise, project)
};

/// `Conv` is NormalizedConv in training, nn::Conv2d afterwards.
template <class Conv = nn::Conv2d<Tensor>>
struct MobileNet {
  Conv stem;
  InvertedResidual<Conv> block0, block1, block2, block3, block4, block5, block6;
  Conv last;
  nn::Linear<decltype(Conv::weight)> head;
  TENON_FIELDS(stem, block0, block1, block2, block3, block4, block5, block6, last, head)

  /// Images [N, 1, 32, 32] -> scores [N, 10].
  Tensor forward(const Tensor& images) const {
    return run(images, [](const Conv& conv, const Tensor& x) { return conv.forward(x); });
  }

  /// Weights and biases of the convolutions without normalisation, in order, by these images.
  std::vector<Tensor> folded(const Tensor& images) const {
    std::vector<Tensor> plain;
    run(images, [&](const Conv& conv, const Tensor& x) {
      auto [y, same] = conv.folded(x);
      plain.insert(plain.end(), {same.weight, *same.bias});
      return y;
    });
    return plain;
  }

 private:
  template <class Layer>
  Tensor run(const Tensor& images, const Layer& layer) const {
    Tensor x = relu6(layer(stem, images));
    for (const auto* block : {&block0, &block1, &block2, &block3, &block4, &block5, &block6}) {
      const Tensor wide = block->expand ? relu6(layer(*block->expand, x)) : x;
      const Tensor y = layer(block->project, relu6(layer(block->depthwise, wide)));
      x = x.shape() == y.shape() ? x + y : y;
    }
    return head.forward(mean(relu6(layer(last, x)), {2, 3}));
  }
};

template <class T = Tensor>
using TrainedMobileNet = MobileNet<NormalizedConv<T>>;

/// The convolution of a kernel [out, in / groups, side, side], padded so that sizes stay.
inline NormalizedConv<Shape> conv_shapes(std::int64_t in, std::int64_t out, std::int64_t side,
                                         std::int64_t stride = 1, std::int64_t groups = 1) {
  const std::int64_t around = side / 2;
  return {Shape({out, in / groups, side, side}, f32),
          Shape({out}, f32),
          Shape({out}, f32),
          {.stride = {stride, stride}, .padding = {around, around}, .groups = groups}};
}

inline TrainedMobileNet<Shape> mobilenet_shapes() {
  std::int64_t channels = 16;
  const auto block = [&](std::int64_t expansion, std::int64_t stride, std::int64_t out) {
    const std::int64_t in = std::exchange(channels, out), wide = expansion * in;
    InvertedResidual<NormalizedConv<Shape>> made;
    if (expansion > 1) made.expand = conv_shapes(in, wide, 1);
    made.depthwise = conv_shapes(wide, wide, 3, stride, wide);
    made.project = conv_shapes(wide, out, 1);
    return made;
  };
  return {.stem = conv_shapes(1, 16, 3, 2),
          .block0 = block(1, 1, 16),
          .block1 = block(4, 2, 24),
          .block2 = block(4, 1, 24),
          .block3 = block(4, 2, 32),
          .block4 = block(4, 1, 32),
          .block5 = block(4, 1, 32),
          .block6 = block(4, 1, 48),
          .last = conv_shapes(48, 128, 1),
          .head = {Shape({10, 128}, f32), Shape({10}, f32)}};
}
