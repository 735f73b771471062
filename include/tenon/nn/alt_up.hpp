#pragma once

#include <tenon/fields.hpp>
#include <tenon/nn/layer_inputs.hpp>
#include <tenon/nn/linear.hpp>
#include <tenon/nn/norm.hpp>
#include <tenon/ops/axes.hpp>
#include <tenon/ops/binary.hpp>
#include <tenon/ops/broadcast_to.hpp>
#include <tenon/ops/concat.hpp>
#include <tenon/ops/fill.hpp>
#include <tenon/ops/grouped_linear.hpp>
#include <tenon/ops/matmul.hpp>
#include <tenon/ops/permute.hpp>
#include <tenon/ops/reduce.hpp>
#include <tenon/ops/slice.hpp>
#include <tenon/ops/unary.hpp>

#include <cmath>
#include <concepts>
#include <cstdint>
#include <source_location>

namespace tenon::nn {

/// What Gemma 3n's layers have besides attention and a feed-forward part (Gemma 3n, Google, 2025). The residual stream is
/// several, of which a layer computes the active one; it predicts all of them before that and corrects them by what came out
/// (AltUp: Baykal et al., Alternating Updates for Efficient Transformers, arXiv:2301.13310). Beside attention runs a low-rank
/// detour (LAuReL: Menghani et al., arXiv:2411.07501), and each layer reads embeddings of its own.
template <class T = Tensor>
struct AltUpLayer {
  RmsNorm<T> router_norm;  ///< [width]
  Linear<T> router;        ///< [streams, width]
  Linear<T> prediction;    ///< [streams * streams, streams]
  Linear<T> correction;    ///< [streams, streams]
  T correction_scale;      ///< [width]
  Linear<T> detour_down;   ///< [rank, width]
  Linear<T> detour_up;     ///< [width, rank]
  RmsNorm<T> detour_norm;  ///< [width]
  LayerInputGate<T> own;
  TENON_FIELDS(router_norm, router, prediction, correction, correction_scale, detour_down,
               detour_up, detour_norm, own, active)

  std::int64_t active = 0;

  /// The active one of streams [B, S, streams, width]: [B, S, width].
  Tensor active_of(const Tensor& streams,
                   const std::source_location& where = std::source_location::current()) const
    requires std::same_as<T, Tensor>
  {
    return squeeze(slice(streams, 2, active, active + 1, 1, where), 2, where);
  }

  /// What the layer takes the streams for, of those before it; both [B, S, streams, width].
  Tensor predicted(const Tensor& streams,
                   const std::source_location& where = std::source_location::current()) const
    requires std::same_as<T, Tensor>
  {
    const std::int64_t count = streams.dim(2, where);
    const Tensor modes = modes_of(active_of(streams, where), where);
    const Tensor mixing = split_axis(prediction.forward(modes, where), -1, {count, count}, where);
    return add(matmul(mixing, streams, where), streams, where);
  }

  /// `x` [B, S, width], which has attention's result in it, and the detour of what attention read, `normed`.
  Tensor joined(const Tensor& x, const Tensor& normed,
                const std::source_location& where = std::source_location::current()) const
    requires std::same_as<T, Tensor>
  {
    const Tensor low = detour_down.forward(normed, where);
    const Tensor detour = detour_norm.forward(detour_up.forward(low, where), where);
    const Tensor both = add(x, add(detour, normed, where), where);
    return mul(both, scalar_like(both, 1 / std::sqrt(2.0), where), where);
  }

  /// The streams behind the layer: those that were predicted, by what the layer computed of the active one [B, S, width],
  /// and by its own inputs [B, S, size], see LayerInputs.
  Tensor corrected(const Tensor& predicted, const Tensor& computed, const Tensor& inputs,
                   const std::source_location& where = std::source_location::current()) const
    requires std::same_as<T, Tensor>
  {
    const Tensor news = unsqueeze(sub(computed, active_of(predicted, where), where), 2, {}, where);
    const Tensor shares = correction.forward(modes_of(computed, where), where);
    const Tensor factors = add(shares, scalar_like(shares, 1, where), where);  // [B, S, streams]
    const Tensor streams =
        add(mul(news, unsqueeze(factors, -1, {}, where), where), predicted, where);
    const Tensor corrected = mul(active_of(streams, where), correction_scale, where);
    const Tensor extra = own.forward(corrected, inputs, where);
    const Tensor first = slice(streams, 2, 0, 1, 1, where);
    const Tensor others =
        add(slice(streams, 2, 1, to_end, 1, where), unsqueeze(extra, 2, {}, where), where);
    return concat({first, others}, 2, where);
  }

 private:
  Tensor modes_of(const Tensor& x, const std::source_location& where) const
    requires std::same_as<T, Tensor>
  {
    const Tensor normed = router_norm.forward(x, where);
    const double scale = 1 / static_cast<double>(x.dim(-1, where));
    return tanh(router.forward(mul(normed, scalar_like(normed, scale, where), where), where),
                where);
  }
};

/// What is before and behind such layers.
template <class T = Tensor>
struct AltUp {
  T widening;  ///< [streams - 1, width, width]
  T merging;   ///< the same
  TENON_FIELDS(widening, merging, active)

  std::int64_t active = 0;

  /// Embeddings x [B, S, width] as streams [B, S, streams, width]: x, and projections that are as long.
  Tensor widened(const Tensor& x,
                 const std::source_location& where = std::source_location::current()) const
    requires std::same_as<T, Tensor>
  {
    const Tensor first = unsqueeze(x, 2, {}, where);
    return concat({first, projected(first, first, widening, where)}, 2, where);
  }

  /// The mean of the streams, all but the first of them projected and made as long as the active one: [B, S, width].
  Tensor merged(const Tensor& streams,
                const std::source_location& where = std::source_location::current()) const
    requires std::same_as<T, Tensor>
  {
    const Tensor first = slice(streams, 2, 0, 1, 1, where);
    const Tensor others = slice(streams, 2, 1, to_end, 1, where);
    const Tensor like = slice(streams, 2, active, active + 1, 1, where);
    return mean(concat({first, projected(others, like, merging, where)}, 2, where), {2}, false,
                where);
  }

 private:
  /// x [B, S, 1 or streams - 1, width] by each stream's weight, as long as `like` [B, S, 1, width] is.
  Tensor projected(const Tensor& x, const Tensor& like, const T& weight,
                   const std::source_location& where) const
    requires std::same_as<T, Tensor>
  {
    const std::int64_t count = weight.dim(0, where);
    const Tensor index = broadcast_to(iota(count, i32, 0, 1, where),
                                      {x.dim(0, where), x.dim(1, where), count}, where);
    const Tensor y = grouped_linear(x, weight, index, {}, where);
    const auto length = [&](const Tensor& z) {
      return sqrt(sum(square(z, where), {-1}, true, where), where);
    };
    return mul(y, div(length(like), length(y), where), where);
  }
};

}  // namespace tenon::nn
