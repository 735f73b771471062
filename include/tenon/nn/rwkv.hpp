#pragma once

#include <tenon/fields.hpp>
#include <tenon/nn/linear.hpp>
#include <tenon/nn/norm.hpp>
#include <tenon/shape.hpp>
#include <tenon/tensor.hpp>

#include <concepts>
#include <cstdint>
#include <optional>
#include <source_location>

namespace tenon::nn {

/// What layers of RWKV-6 and RWKV-7 keep between inputs, of all layers: the last inputs of their two parts,
/// [layers, batch, 2, width], and the state of the recurrence, [layers, batch, head size, heads, head
/// size]. Begins as zeros, as a MambaState does.
template <class T = Tensor>
struct RwkvState {
  T shift;
  T wkv;
  TENON_FIELDS(shift, wkv)
};

/// Two linear layers, of which the first makes a vector of few numbers.
template <class T = Tensor>
struct LowRank {
  Linear<T> down;  ///< [rank, width]
  Linear<T> up;    ///< [width, rank]
  TENON_FIELDS(down, up)
};

template <class T = Tensor>
struct Rwkv6Layer;
template <class T = Tensor>
struct Rwkv7Layer;

struct RwkvStep {
  Tensor x;                 ///< [B, S, width]
  Tensor first_value;       ///< the values of the first layer, which the others mix in
  RwkvState<Tensor> state;  ///< of this layer: without the first axis
};

namespace detail {
RwkvStep rwkv6_layer(const Rwkv6Layer<Tensor>& layer, const RwkvStep& in, const Tensor& lengths,
                     const std::source_location& where);
RwkvStep rwkv7_layer(const Rwkv7Layer<Tensor>& layer, const RwkvStep& in, const Tensor& lengths,
                     const std::source_location& where);
}  // namespace detail

/// A layer of RWKV-6 (Peng et al., Eagle and Finch, arXiv:2404.05892): x + time_mix(norm(x)), then x + channel_mix(norm(x)).
/// Each part mixes its input with that of the step before, time_mix by shares that it computes. The state is read before the
/// step's key and value are in it, which `bonus` adds: y = r (h + bonus k v), h = w h + k v.
template <class T>
struct Rwkv6Layer {
  LayerNorm<T> time_norm, channel_norm;
  T first_mix;  ///< [..., width]: shares of the step before in what the other shares are made of
  T time_mix;  ///< [5, ..., width]: those in the inputs of w, k, v, r and the gate, to which are added
  Linear<T> mix_down;                              ///< [5 rank, width]
  T mix_up;                                        ///< [5, width, rank]
  LowRank<T> decay;                                ///< of w
  T bonus;                                         ///< [heads, head size]
  Linear<T> receptance, key, value, gate, output;  ///< [width, width] each
  LayerNorm<T> head_norm;                          ///< of each head, its weight and bias [width]
  T channel_key_mix, channel_receptance_mix;       ///< [..., width]
  /// [hidden, width], [width, hidden] and [width, width].
  Linear<T> channel_key, channel_value, channel_receptance;
  TENON_FIELDS(time_norm, channel_norm, first_mix, time_mix, mix_down, mix_up, decay, bonus,
               receptance, key, value, gate, output, head_norm, channel_key_mix,
               channel_receptance_mix, channel_key, channel_value, channel_receptance, head_size,
               scale)

  std::int64_t head_size = 64;
  double scale = 1;  ///< multiplies what the layer gives

  /// As Rwkv7Layer's; the first layer's values go through.
  RwkvStep forward(const RwkvStep& in, const Tensor& lengths = {},
                   const std::source_location& where = std::source_location::current()) const
    requires std::same_as<T, Tensor>
  {
    return detail::rwkv6_layer(*this, in, lengths, where);
  }
};

/// A layer of RWKV-7 (Peng et al., arXiv:2503.14456): x + time_mix(norm(x)), then x +
/// channel_mix(norm(x)). Each part mixes its input with that of the step before.
template <class T>
struct Rwkv7Layer {
  LayerNorm<T> time_norm, channel_norm;
  T time_mix;  ///< [6, ..., width]: shares of the step before in the inputs of r, w, k, v, a and the gate
  Linear<T> receptance, key, value, output;  ///< [width, width] each
  LowRank<T> decay, rate;                    ///< of w and of a
  std::optional<LowRank<T>> residual;        ///< of the first layer's values; none in that layer
  std::optional<LowRank<T>> gate;
  T key_removed;                         ///< [width]: factor of the keys that are removed
  T key_rate;                            ///< [width]: how far `a` scales keys
  T bonus;                               ///< [width]
  LayerNorm<T> head_norm;                ///< of each head, its weight and bias [width]
  T channel_mix;                         ///< [..., width]
  Linear<T> channel_key, channel_value;  ///< [hidden, width] and [width, hidden]
  TENON_FIELDS(time_norm, channel_norm, time_mix, receptance, key, value, output, decay, rate,
               residual, gate, key_removed, key_rate, bonus, head_norm, channel_mix, channel_key,
               channel_value, head_size)

  std::int64_t head_size = 64;

  /// `in`: x, the first layer's values (anything of x's sizes for that layer), this layer's state.
  /// With `lengths` (i32[B]), rows are padded behind them.
  RwkvStep forward(const RwkvStep& in, const Tensor& lengths = {},
                   const std::source_location& where = std::source_location::current()) const
    requires std::same_as<T, Tensor>
  {
    return detail::rwkv7_layer(*this, in, lengths, where);
  }
};

}  // namespace tenon::nn
