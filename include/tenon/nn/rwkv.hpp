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

/// What RWKV-7's layers keep between inputs, of all layers: the last inputs of their two parts,
/// [layers, batch, 2, width], and the state of the recurrence, [layers, batch, head size, heads, head
/// size]. Begins as zeros, as a MambaState does.
template <class T = Tensor>
struct Rwkv7State {
  T shift;
  T wkv;
  TENON_FIELDS(shift, wkv)
};

/// Two linear layers, of which the first makes a vector of few numbers.
template <class T = Tensor>
struct LowRank {
  Linear<T> down;
  Linear<T> up;
  TENON_FIELDS(down, up)
};

template <class T = Tensor>
struct Rwkv7Layer;

struct Rwkv7Step {
  Tensor x;                  ///< [B, S, width]
  Tensor first_value;        ///< the values of the first layer, which the others mix in
  Rwkv7State<Tensor> state;  ///< of this layer: without the first axis
};

namespace detail {
Rwkv7Step rwkv7_layer(const Rwkv7Layer<Tensor>& layer, const Rwkv7Step& in, const Tensor& lengths,
                      const std::source_location& where);
}

/// A layer of RWKV-7 (Peng et al., arXiv:2503.14456): x + time_mix(norm(x)), then x +
/// channel_mix(norm(x)). Each part mixes its input with that of the step before.
template <class T>
struct Rwkv7Layer {
  LayerNorm<T> time_norm, channel_norm;
  T time_mix;  ///< [6, ..., width]: shares of the step before in the inputs of r, w, k, v, a and the gate
  Linear<T> receptance, key, value, output;
  LowRank<T> decay, rate;              ///< of w and of a
  std::optional<LowRank<T>> residual;  ///< of the first layer's values; none in that layer
  std::optional<LowRank<T>> gate;
  T key_removed;           ///< [width]: factor of the keys that are removed
  T key_rate;              ///< [width]: how far `a` scales keys
  T bonus;                 ///< [width]
  LayerNorm<T> head_norm;  ///< of each head, its weight and bias [width]
  T channel_mix;           ///< [..., width]
  Linear<T> channel_key, channel_value;
  TENON_FIELDS(time_norm, channel_norm, time_mix, receptance, key, value, output, decay, rate,
               residual, gate, key_removed, key_rate, bonus, head_norm, channel_mix, channel_key,
               channel_value, head_size)

  std::int64_t head_size = 64;

  /// `in`: x, the first layer's values (anything of x's sizes for that layer), this layer's state.
  /// With `lengths` (i32[B]), rows are padded behind them.
  Rwkv7Step forward(const Rwkv7Step& in, const Tensor& lengths = {},
                    const std::source_location& where = std::source_location::current()) const
    requires std::same_as<T, Tensor>
  {
    return detail::rwkv7_layer(*this, in, lengths, where);
  }
};

}  // namespace tenon::nn
