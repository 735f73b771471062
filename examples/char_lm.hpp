// A small transformer that predicts the next character (the design of GPT-2: Radford et al., 2019).
#pragma once

#include <tenon/tenon.hpp>

#include <cstdint>
#include <tuple>
#include <vector>

namespace char_lm {

using namespace tenon;

/// x + attention(norm(x)), then x + mlp(norm(x)).
template <class T = Tensor>
struct Block {
  nn::LayerNorm<T> before_attention;
  nn::Linear<T> qkv, out;
  nn::LayerNorm<T> before_mlp;
  nn::Linear<T> up, down;
  std::int64_t heads = 1;
  TENON_FIELDS(before_attention, qkv, out, before_mlp, up, down, heads)

  /// x [batch, steps, width].
  Tensor forward(const Tensor& x) const {
    const Tensor mixed = qkv.forward(before_attention.forward(x));
    const Tensor parts = split_axis(mixed, 2, {3, heads, -1});  // [batch, steps, 3, heads, depth]
    const auto part = [&](std::int64_t i) { return squeeze(slice(parts, 2, i, i + 1), 2); };
    const Tensor seen = attention(part(0), part(1), part(2), {.causal = true});
    const Tensor after = x + out.forward(merge_axes(seen, 2, 3));
    return after + down.forward(gelu(up.forward(before_mlp.forward(after))));
  }
};

template <class T = Tensor>
struct CharLm {
  nn::Embedding<T> tokens, positions;
  std::vector<Block<T>> blocks;
  nn::LayerNorm<T> norm;
  nn::Linear<T> head;
  TENON_FIELDS(tokens, positions, blocks, norm, head)

  /// ids i32 [batch, steps] -> scores [batch, steps, vocabulary].
  Tensor forward(const Tensor& ids) const {
    Tensor x = tokens.forward(ids) + slice(positions.weight, 0, 0, ids.dim(1));
    for (const Block<T>& block : blocks) x = block.forward(x);
    return head.forward(norm.forward(x));
  }
};

struct Sizes {
  std::int64_t vocabulary = 128, context = 64, width = 64, layers = 2, heads = 4;
};

inline CharLm<Shape> shapes(const Sizes& sizes) {
  const std::int64_t width = sizes.width;
  const auto vector = [](std::int64_t n) { return Shape({n}, f32); };
  const auto linear = [&](std::int64_t in, std::int64_t out) {
    return nn::Linear<Shape>{Shape({out, in}, f32), vector(out)};
  };
  const nn::LayerNorm<Shape> norm{vector(width), vector(width)};
  const Block<Shape> block{norm,       linear(width, 3 * width), linear(width, width),
                           norm,       linear(width, 4 * width), linear(4 * width, width),
                           sizes.heads};
  return {{Shape({sizes.vocabulary, width}, f32)},
          {Shape({sizes.context, width}, f32)},
          std::vector(static_cast<std::size_t>(sizes.layers), block),
          norm,
          linear(width, sizes.vocabulary)};
}

/// Weights normal with deviation 0.02, as GPT-2's.
inline train::Initial initial(std::string_view path, const Shape& shape) {
  if (shape.rank() < 2) return train::he_uniform(path, shape);
  return {train::Initial::Kind::normal, 0.02};
}

struct Training {
  train::Adam optimizer = train::adamw(0.01);
  double max_norm = 1;
  TENON_FIELDS()

  /// ids i32 [batch, steps + 1]: each character and, shifted by one, the next.
  std::tuple<CharLm<Tensor>, train::AdamState<CharLm<Tensor>>, Tensor> step(
      CharLm<Tensor> net, train::AdamState<CharLm<Tensor>> state, Tensor ids, Tensor rate) const {
    const std::int64_t steps = ids.dim(1) - 1;
    const Tensor loss =
        cross_entropy(net.forward(slice(ids, 1, 0, steps)), slice(ids, 1, 1, steps + 1));
    const auto gradients = train::clip_norm(grad(loss, net), max_norm).first;
    auto [next, next_state] = optimizer.update(net, gradients, state, rate);
    return {next, next_state, loss};
  }

  /// Scores of the character after the last: [batch, vocabulary].
  Tensor next_scores(CharLm<Tensor> net, Tensor ids) const {
    return squeeze(slice(net.forward(ids), 1, -1), 1);
  }
};

}  // namespace char_lm
