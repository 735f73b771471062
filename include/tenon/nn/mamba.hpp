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

/// What Mamba layers keep between inputs, of all layers: the last inputs of the convolution,
/// [layers, batch, taps - 1, channels], and the state of the scan, [layers, batch, states, heads, size
/// of a head]. State as a KvCache is, but for its size, which does not grow, and its beginning: zeros.
template <class T = Tensor>
struct MambaState {
  T conv;
  T scan;
  TENON_FIELDS(conv, scan)
};

struct CausalConvResult {
  Tensor y;      ///< of x's sizes
  Tensor state;  ///< [B, taps - 1, C]
};

/// Convolution of each channel with its own taps over the steps so far:
/// y[b, s, c] = bias[c] + sum_k weight[c, k] * z[b, s + k, c], where z is `state` followed by x. The
/// new state is the end of z, or, with `lengths` (i32[B]), its part before the end of row b's first
/// lengths[b] steps.
///
/// x [B, S, C]; state [B, taps - 1, C]; weight [C, taps]; bias [C] or empty. Errors: those of the ops.
CausalConvResult causal_conv(const Tensor& x, const Tensor& state, const Tensor& weight,
                             const Tensor& bias = {}, const Tensor& lengths = {},
                             const std::source_location& where = std::source_location::current());

template <class T = Tensor>
struct Mamba;

struct MambaResult {
  Tensor y;                  ///< [B, S, width]
  MambaState<Tensor> state;  ///< of this layer: without the first axis
};

namespace detail {
MambaResult mamba(const Mamba<Tensor>& layer, const Tensor& x, const MambaState<Tensor>& state,
                  const Tensor& lengths, const std::source_location& where);
}

/// A selective state-space layer: Mamba (Gu and Dao, arXiv:2312.00752) or, with `heads`, Mamba-2 (Dao
/// and Gu, arXiv:2405.21060). `inner` channels, N numbers of state for each.
template <class T>
struct Mamba {
  Linear<T> input;  ///< [2 inner, width]; Mamba-2: [2 inner + 2 groups N + heads, width]
  T conv_weight;    ///< [inner, taps]; Mamba-2: [inner + 2 groups N, taps]
  std::optional<T> conv_bias;
  std::optional<Linear<T>> parameters;  ///< of Mamba: [rank + 2 N, inner]
  std::optional<Linear<T>> time;        ///< of Mamba: [inner, rank]
  std::optional<RmsNorm<T>> time_norm;  ///< of Jamba: of the first part of the parameters, [rank],
  std::optional<RmsNorm<T>> in_norm;    ///< the second, [N],
  std::optional<RmsNorm<T>> out_norm;   ///< and the third, [N]
  std::optional<T> time_bias;           ///< of Mamba-2: [heads]
  T decay;                              ///< negative, [inner, N]; Mamba-2: [heads, 1]
  T skip;                               ///< [inner]; Mamba-2: [heads, 1]
  std::optional<T> norm;                ///< of Mamba-2: [groups, inner / groups]
  Linear<T> output;                     ///< [width, inner]
  TENON_FIELDS(input, conv_weight, conv_bias, parameters, time, time_norm, in_norm, out_norm,
               time_bias, decay, skip, norm, output, inner, states, heads, groups, norm_eps,
               has_normed_parameters)

  std::int64_t inner = 1;
  std::int64_t states = 1;
  std::int64_t heads = 0;  ///< 0: Mamba
  std::int64_t groups = 1;
  double norm_eps = 1e-5;
  bool has_normed_parameters =
      false;  ///< FalconMamba: each part of them divided by its root mean square

  /// x [B, S, width]; `state` of this layer. With `lengths` (i32[B]), rows are padded behind them.
  MambaResult forward(const Tensor& x, const MambaState<Tensor>& state, const Tensor& lengths = {},
                      const std::source_location& where = std::source_location::current()) const
    requires std::same_as<T, Tensor>
  {
    return detail::mamba(*this, x, state, lengths, where);
  }
};

}  // namespace tenon::nn
