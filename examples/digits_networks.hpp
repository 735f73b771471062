// Two classifiers of handwritten digits, images of 8 by 8.
#pragma once

#include <tenon/tenon.hpp>

using namespace tenon;  // NOLINT(google-global-names-in-headers): a header of examples

/// up [64 -> 128], silu, down [128 -> 10].
template <class T = Tensor>
struct Mlp {
  nn::Linear<T> up, down;
  TENON_FIELDS(up, down)

  static Mlp init(const WeightsView& weights) {
    return {nn::Linear<>::init(weights["up"]), nn::Linear<>::init(weights["down"])};
  }
  /// Images [N, 1, 8, 8] -> scores [N, 10].
  Tensor forward(const Tensor& images) const {
    return down.forward(silu(up.forward(flatten(images, 1, 3))));
  }
};

/// Twice: 3x3 convolution, relu, 2x2 max pool; then a linear layer.
template <class T = Tensor>
struct Cnn {
  nn::Conv2d<T> conv1, conv2;
  nn::Linear<T> head;
  TENON_FIELDS(conv1, conv2, head)

  static Cnn init(const WeightsView& weights) {
    const Conv2d same{.padding = {1, 1, 1, 1}};
    return {nn::Conv2d<>::init(weights["conv1"], same), nn::Conv2d<>::init(weights["conv2"], same),
            nn::Linear<>::init(weights["head"])};
  }
  Tensor forward(const Tensor& images) const {
    const MaxPool2d halve{.kernel = {2, 2}, .stride = {2, 2}};
    const Tensor first = max_pool2d(relu(conv1.forward(images)), halve);
    const Tensor second = max_pool2d(relu(conv2.forward(first)), halve);
    return head.forward(flatten(second, 1, 3));
  }
};

/// The shapes of their weights.
inline Mlp<Shape> mlp_shapes() {
  return {.up = {Shape({128, 64}, f32), Shape({128}, f32)},
          .down = {Shape({10, 128}, f32), Shape({10}, f32)}};
}

inline Cnn<Shape> cnn_shapes() {
  const Conv2d same{.padding = {1, 1, 1, 1}};
  return {.conv1 = {Shape({16, 1, 3, 3}, f32), Shape({16}, f32), same},
          .conv2 = {Shape({32, 16, 3, 3}, f32), Shape({32}, f32), same},
          .head = {Shape({10, 128}, f32), Shape({10}, f32)}};
}
