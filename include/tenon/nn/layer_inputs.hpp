#pragma once

#include <tenon/fields.hpp>
#include <tenon/nn/embedding.hpp>
#include <tenon/nn/linear.hpp>
#include <tenon/nn/norm.hpp>
#include <tenon/ops/activation.hpp>
#include <tenon/ops/axes.hpp>
#include <tenon/ops/binary.hpp>
#include <tenon/ops/fill.hpp>
#include <tenon/ops/permute.hpp>

#include <cmath>
#include <concepts>
#include <cstdint>
#include <source_location>

namespace tenon::nn {

/// What each layer of Gemma 3n and 4 reads besides the residual stream: vectors of its own, in equal parts embeddings of the
/// tokens and projections of the stream's first ones (Gemma 3n, Google, 2025).
template <class T = Tensor>
struct LayerInputs {
  Embedding<T> tokens;   ///< [vocabulary, layers * size]
  Linear<T> projection;  ///< [layers * size, width]
  RmsNorm<T> norm;       ///< [size], of what is projected
  TENON_FIELDS(tokens, projection, norm, layers)

  std::int64_t layers = 1;

  /// Of ids [B, S] and their embeddings x [B, S, width]: [layers, B, S, size].
  Tensor forward(const Tensor& ids, const Tensor& x,
                 const std::source_location& where = std::source_location::current()) const
    requires std::same_as<T, Tensor>
  {
    const auto scaled = [&](const Tensor& y, double scale) {
      return mul(y, scalar_like(y, scale, where), where);
    };
    const std::int64_t size = norm.weight.dim(0, where);
    const Tensor read = split_axis(tokens.forward(ids, where), -1, {layers, size}, where);
    const Tensor made = split_axis(projection.forward(x, where), -1, {layers, size}, where);
    const double shrink = 1 / std::sqrt(static_cast<double>(x.dim(-1, where)));
    const Tensor both = add(norm.forward(scaled(made, shrink), where),
                            scaled(read, std::sqrt(static_cast<double>(size))), where);
    return permute(scaled(both, 1 / std::sqrt(2.0)), {2, 0, 1, 3}, where);
  }
};

/// How a layer reads its own: it opens a gate for them, and adds what they give.
template <class T = Tensor>
struct LayerInputGate {
  Linear<T> gate;        ///< [size, width]
  Linear<T> projection;  ///< [width, size]
  RmsNorm<T> norm;       ///< [width]
  TENON_FIELDS(gate, projection, norm)

  /// What is to be added to x [B, S, width], of the layer's `own` [B, S, size].
  Tensor forward(const Tensor& x, const Tensor& own,
                 const std::source_location& where = std::source_location::current()) const
    requires std::same_as<T, Tensor>
  {
    const Tensor open = mul(gelu_tanh(gate.forward(x, where), where), own, where);
    return norm.forward(projection.forward(open, where), where);
  }
};

}  // namespace tenon::nn
