#include "nn/steps.hpp"

#include <tenon/nn/mamba.hpp>
#include <tenon/ops.hpp>

namespace tenon::nn {
namespace {

/// The part [begin, end) of the last axis.
Tensor part(const Tensor& x, std::int64_t begin, std::int64_t end,
            const std::source_location& where) {
  return slice(x, -1, begin, end, 1, where);
}

/// x divided by the root of the mean square of its last axis.
Tensor rms_normed(const Tensor& x, double eps, const std::source_location& where) {
  const Tensor mean_square = mean(square(x, where), {-1}, true, where);
  return div(x, sqrt(add(mean_square, scalar_like(mean_square, eps, where), where), where), where);
}

/// What a step of the scan is computed from.
struct Selection {
  Tensor x;        // [B, S, heads, channels]
  Tensor dt;       // [B, S, heads]
  Tensor in, out;  // [B, S, groups, states]
};

Selection select_mamba(const Mamba<>& layer, const Tensor& x, const std::source_location& where) {
  const Tensor all = layer.parameters->forward(x, where);
  const std::int64_t n = layer.states;
  Tensor dt = slice(all, -1, 0, -2 * n, 1, where);
  Tensor in = slice(all, -1, -2 * n, -n, 1, where), out = slice(all, -1, -n, to_end, 1, where);
  if (layer.has_normed_parameters) {
    for (Tensor* parameter : {&dt, &in, &out}) {
      *parameter = rms_normed(*parameter, layer.norm_eps, where);
    }
  }
  if (layer.time_norm) dt = layer.time_norm->forward(dt, where);
  if (layer.in_norm) in = layer.in_norm->forward(in, where);
  if (layer.out_norm) out = layer.out_norm->forward(out, where);
  return {unsqueeze(x, -1, {}, where), softplus(layer.time->forward(dt, where), where),
          unsqueeze(in, 2, {}, where), unsqueeze(out, 2, {}, where)};
}

Selection select_mamba2(const Mamba<>& layer, const Tensor& mixed, const Tensor& dt,
                        const std::source_location& where) {
  const std::int64_t inner = layer.inner, size = layer.groups * layer.states;
  const auto of_groups = [&](std::int64_t begin) {
    return split_axis(part(mixed, begin, begin + size, where), -1, {layer.groups, layer.states},
                      where);
  };
  const Tensor bias = of_type(*layer.time_bias, dt.dtype(), where);
  return {split_axis(part(mixed, 0, inner, where), -1, {layer.heads, inner / layer.heads}, where),
          softplus(add(dt, bias, where), where), of_groups(inner), of_groups(inner + size)};
}

/// The norm of each group's channels.
Tensor group_normed(const Mamba<>& layer, const Tensor& y, const std::source_location& where) {
  const Tensor split = split_axis(y, -1, {layer.groups, layer.inner / layer.groups}, where);
  const Tensor weight = of_type(*layer.norm, y.dtype(), where);
  return merge_axes(mul(rms_normed(split, layer.norm_eps, where), weight, where), -2, -1, {},
                    where);
}

}  // namespace

CausalConvResult causal_conv(const Tensor& x, const Tensor& state, const Tensor& weight,
                             const Tensor& bias, const Tensor& lengths,
                             const std::source_location& where) {
  const std::int64_t taps = weight.dim(1, where);
  const Tensor all = concat({state, x}, 1, where);
  Tensor y = bias;
  for (std::int64_t k = 0; k < taps; ++k) {
    const std::int64_t end = k + 1 == taps ? to_end : k + 1 - taps;
    const Tensor tap = squeeze(slice(weight, 1, k, k + 1, 1, where), 1, where);
    const Tensor product =
        mul(slice(all, 1, k, end, 1, where), of_type(tap, x.dtype(), where), where);
    y = y.is_empty() ? product : add(product, of_type(y, x.dtype(), where), where);
  }
  if (taps == 1) return {y, state};
  return {y, last_steps(all, taps - 1, lengths, where)};
}

MambaResult detail::mamba(const Mamba<>& layer, const Tensor& x, const MambaState<>& state,
                          const Tensor& lengths, const std::source_location& where) {
  const bool is_first = layer.heads == 0;
  const std::int64_t inner = layer.inner, heads = is_first ? inner : layer.heads;
  const std::int64_t convolved = inner + (is_first ? 0 : 2 * layer.groups * layer.states);
  const Tensor all = layer.input.forward(x, where);
  const std::int64_t begin = is_first ? 0 : inner;  // z is behind x, or before it
  const Tensor z = is_first ? part(all, inner, 2 * inner, where) : part(all, 0, inner, where);
  const auto [mixed, conv] =
      causal_conv(part(all, begin, begin + convolved, where), state.conv, layer.conv_weight,
                  layer.conv_bias.value_or(Tensor()), lengths, where);
  const Tensor active = silu(mixed, where);
  const Selection at =
      is_first ? select_mamba(layer, active, where)
               : select_mamba2(layer, active, part(all, inner + convolved, to_end, where), where);
  const auto scanned =
      selective_scan(at.x, at.dt, layer.decay, at.in, at.out, state.scan, lengths, where);
  // One number for each head.
  const Tensor skip = split_axis(flatten(of_type(layer.skip, x.dtype(), where), 0, -1, where), 0,
                                 {heads, 1}, where);
  const Tensor sum = add(scanned.y, mul(at.x, skip, where), where);
  Tensor y = glu(z, merge_axes(sum, 2, 3, {}, where), "silu", where);
  if (layer.norm) y = group_normed(layer, y, where);
  return {layer.output.forward(y, where), {conv, scanned.state}};
}

}  // namespace tenon::nn
