#pragma once

#include <tenon/fields.hpp>
#include <tenon/nn/linear.hpp>
#include <tenon/nn/mamba.hpp>
#include <tenon/tensor.hpp>

#include <concepts>
#include <cstdint>
#include <optional>
#include <source_location>

namespace tenon::nn {

template <class T = Tensor>
struct GatedDeltaNet;

namespace detail {
MambaResult gated_delta_net(const GatedDeltaNet<Tensor>& layer, const Tensor& x,
                            const MambaState<Tensor>& state, const Tensor& lengths,
                            const std::source_location& where);
}

/// A linear attention whose state forgets and is corrected: Gated DeltaNet (Yang et al., arXiv:2412.06464), as Qwen3.5 has it.
/// With queries q and keys k of length 1 and values v of each head, h += beta k (v - k h) after h *= exp(decay softplus(dt)).
/// `groups` heads of queries and keys of N numbers serve `heads` heads of values of P: head i has those of group i mod groups,
/// or, with `beta_time` (Qwen3-Next), of group i / (heads / groups).
template <class T>
struct GatedDeltaNet {
  Linear<T> input;                ///< [2 groups N + heads P, width]: queries, keys, values
  Linear<T> gate;                 ///< [heads P, width]
  std::optional<Linear<T>> beta;  ///< [heads, width]
  std::optional<Linear<T>> time;  ///< [heads, width]
  /// In place of both, [2 heads, width]: of each group its heads' beta, then their time.
  std::optional<Linear<T>> beta_time;
  T time_bias;       ///< [heads]
  T decay;           ///< negative, [heads]
  T conv_weight;     ///< [2 groups N + heads P, taps]
  T norm;            ///< [P]
  Linear<T> output;  ///< [width, heads P]
  TENON_FIELDS(input, gate, beta, time, beta_time, time_bias, decay, conv_weight, norm, output,
               heads, groups, norm_eps)

  std::int64_t heads = 1;
  std::int64_t groups = 1;
  double norm_eps = 1e-6;

  /// x [B, S, width]; `state` of this layer: conv [B, taps - 1, 2 groups N + heads P], scan [B, N, heads, P]. With
  /// `lengths` (i32[B]), rows are padded behind them.
  MambaResult forward(const Tensor& x, const MambaState<Tensor>& state, const Tensor& lengths = {},
                      const std::source_location& where = std::source_location::current()) const
    requires std::same_as<T, Tensor>
  {
    return detail::gated_delta_net(*this, x, state, lengths, where);
  }
};

}  // namespace tenon::nn
