#include "nn/steps.hpp"

#include <tenon/nn/gated_delta_net.hpp>
#include <tenon/ops.hpp>

#include <cmath>

namespace tenon::nn {
namespace {

/// x divided by the length of its last axis.
Tensor of_length_one(const Tensor& x, double eps, const std::source_location& where) {
  const Tensor squares = sum(square(x, where), {-1}, true, where);
  return div(x, sqrt(add(squares, scalar_like(squares, eps, where), where), where), where);
}

/// [B, S, groups, N] for each head: [B, S, heads, N].
Tensor of_heads(const GatedDeltaNet<>& layer, const Tensor& x, const std::source_location& where) {
  if (layer.groups == layer.heads) return x;
  const auto times = [&](const Tensor& one, int axis) {
    return concat(std::vector<Tensor>(static_cast<std::size_t>(layer.heads / layer.groups), one),
                  axis, where);
  };
  if (!layer.beta_time) return times(x, 2);
  return merge_axes(times(unsqueeze(x, 3, {}, where), 3), 2, 3, {}, where);
}

/// Beta before its sigmoid and the time step before softplus: [B, S, heads].
struct Steps {
  Tensor beta, time;
};

Steps steps_of(const GatedDeltaNet<>& layer, const Tensor& x, const std::source_location& where) {
  if (!layer.beta_time) return {layer.beta->forward(x, where), layer.time->forward(x, where)};
  const Tensor both = split_axis(layer.beta_time->forward(x, where), -1,
                                 {layer.groups, 2, layer.heads / layer.groups}, where);
  const auto part = [&](std::int64_t i) {
    return merge_axes(squeeze(slice(both, 3, i, i + 1, 1, where), 3, where), 2, 3, {}, where);
  };
  return {part(0), part(1)};
}

}  // namespace

MambaResult detail::gated_delta_net(const GatedDeltaNet<>& layer, const Tensor& x,
                                    const MambaState<>& state, const Tensor& lengths,
                                    const std::source_location& where) {
  const std::int64_t n = state.scan.dim(1, where), p = state.scan.dim(3, where);
  const std::int64_t keys = layer.groups * n;
  const auto [mixed, conv] =
      causal_conv(layer.input.forward(x, where), state.conv, layer.conv_weight, {}, lengths, where);
  const Tensor active = silu(mixed, where);
  const auto heads_at = [&](std::int64_t begin, std::int64_t end, std::int64_t count) {
    return split_axis(slice(active, -1, begin, end, 1, where), -1, {count, (end - begin) / count},
                      where);
  };
  const auto directions = [&](std::int64_t begin) {
    const Tensor all = heads_at(begin, begin + keys, layer.groups);
    return of_heads(layer, of_length_one(all, layer.norm_eps, where), where);
  };
  const Tensor q = directions(0), k = directions(keys);
  const Tensor v = heads_at(2 * keys, 2 * keys + layer.heads * p, layer.heads);

  // One number for each head: [B, S, heads, 1].
  const auto [logit, dt] = steps_of(layer, x, where);
  const Tensor beta = unsqueeze(sigmoid(logit, where), -1, {}, where);
  const Tensor time = softplus(add(dt, of_type(layer.time_bias, dt.dtype(), where), where), where);
  const Tensor kept = exp(mul(time, of_type(layer.decay, dt.dtype(), where), where), where);
  const Tensor keep = unsqueeze(kept, -1, {}, where);

  // h' = keep h - beta keep k (k h) + beta k v
  const Tensor written = mul(k, beta, where);
  const Tensor scale = scalar_like(q, 1 / std::sqrt(static_cast<double>(n)), where);
  const auto step = wkv7({.r = mul(q, scale, where),
                          .w = broadcast_like(keep, k, where),
                          .k = written,
                          .v = v,
                          .a = k,
                          .b = neg(mul(written, keep, where), where)},
                         state.scan, lengths, where);
  const Tensor normed = rms_norm(step.y, layer.norm, layer.norm_eps, where);
  const Tensor gate = layer.gate.forward(x, where);
  const Tensor y = glu(gate, merge_axes(normed, 2, 3, {}, where), "silu", where);
  return {layer.output.forward(y, where), {conv, step.state}};
}

}  // namespace tenon::nn
