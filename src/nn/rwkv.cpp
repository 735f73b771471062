#include "nn/steps.hpp"

#include <tenon/nn/rwkv.hpp>
#include <tenon/ops.hpp>

namespace tenon::nn {
namespace {

/// x and, for each step, what was there one step before.
struct Shifted {
  Tensor x, before;
  Tensor last;  // [B, 1, width]
};

Shifted shifted(const Tensor& x, const Tensor& state, const Tensor& lengths,
                const std::source_location& where) {
  const Tensor all = concat({state, x}, 1, where);
  return {x, slice(all, 1, 0, -1, 1, where), last_steps(all, 1, lengths, where)};
}

/// x with `share`, [width], of the step before.
Tensor mixed(const Shifted& in, const Tensor& share, const std::source_location& where) {
  const Tensor factor = of_type(flatten(share, 0, -1, where), in.x.dtype(), where);
  return add(in.x, mul(sub(in.before, in.x, where), factor, where), where);
}

Tensor low_rank(const LowRank<>& layer, const Tensor& x, const std::source_location& where) {
  return layer.up.forward(layer.down.forward(x, where), where);
}

/// Operands of the recurrence, [B, S, heads, head size], and the gate.
struct TimeMixInputs {
  Wkv7Inputs in;
  Tensor first_value;
  Tensor gate;  // [B, S, width], or empty
};

TimeMixInputs time_mix_inputs(const Rwkv7Layer<>& layer, const Shifted& x, const Tensor& first,
                              const std::source_location& where) {
  const auto input = [&](std::int64_t i) {
    return mixed(x, slice(layer.time_mix, 0, i, i + 1, 1, where), where);
  };
  const auto factor = [&](const Tensor& weight) { return of_type(weight, x.x.dtype(), where); };
  const auto heads = [&](const Tensor& all) {
    const std::int64_t size = layer.head_size;
    return split_axis(all, -1, {all.dim(-1, where) / size, size}, where);
  };
  const Tensor r = layer.receptance.forward(input(0), where);
  const Tensor low_decay = tanh(layer.decay.down.forward(input(1), where), where);
  // e^(-1/2), the largest decay's logarithm.
  const Tensor rate_of_decay = sigmoid(layer.decay.up.forward(low_decay, where), where);
  const Tensor w =
      exp(mul(rate_of_decay, scalar_like(rate_of_decay, -0.606531, where), where), where);
  const Tensor k = layer.key.forward(input(2), where);
  const Tensor in_v = input(3);
  Tensor v = layer.value.forward(in_v, where), first_value = v;
  if (layer.residual) {
    const Tensor share = sigmoid(low_rank(*layer.residual, in_v, where), where);
    v = add(v, mul(sub(first, v, where), share, where), where);
    first_value = first;
  }
  const Tensor a = sigmoid(low_rank(layer.rate, input(4), where), where);
  Tensor gate;
  if (layer.gate) {
    gate = layer.gate->up.forward(sigmoid(layer.gate->down.forward(input(5), where), where), where);
  }
  const Tensor removed =
      l2_normalize(heads(mul(k, factor(layer.key_removed), where)), -1, 1e-12, where);
  const Tensor scaled = mul(k, factor(layer.key_rate), where);
  const Tensor added = add(k, sub(mul(a, scaled, where), scaled, where), where);
  return {{heads(r), heads(w), heads(added), heads(v), neg(removed, where),
           mul(removed, heads(a), where)},
          first_value,
          gate};
}

/// The norm of each head, with a factor and a shift of each number.
Tensor head_normed(const LayerNorm<>& norm, const Tensor& y, const std::source_location& where) {
  const std::int64_t rows = y.dim(0, where), heads = y.dim(2, where);
  const Tensor flat = merge_axes(merge_axes(y, 2, 3, {}, where), 0, 1, {}, where);
  const Tensor normed =
      group_norm(flat, heads, norm.weight, norm.bias.value_or(Tensor()), norm.eps, where);
  return split_axis(normed, 0, {rows, y.dim(1, where)}, where);
}

/// RWKV-6's recurrence by that of RWKV-7: nothing is removed, and keys, values and decays come one step late, so that each step
/// reads the state before it. k, v, w and r: [B, S, heads, head size].
Wkv7Result late_wkv(const Wkv7Inputs& in, const Tensor& state, const Tensor& lengths,
                    const std::source_location& where) {
  const Tensor first = slice(in.k, 1, 0, 1, 1, where);
  const Tensor nothing = full_like(first, 0, where);
  const auto late = [&](const Tensor& x, double before) {
    return concat({full_like(first, before, where), x}, 1, where);
  };
  const Tensor k = late(in.k, 0);
  const Tensor zeros = full_like(k, 0, where);
  const Tensor steps =
      lengths.is_empty() ? lengths : add(lengths, scalar_like(lengths, 1, where), where);
  const auto [y, after] =
      wkv7({concat({in.r, nothing}, 1, where), late(in.w, 1), k, late(in.v, 0), zeros, zeros},
           state, steps, where);
  return {slice(y, 1, 0, -1, 1, where), after};
}

}  // namespace

RwkvStep detail::rwkv6_layer(const Rwkv6Layer<>& layer, const RwkvStep& in, const Tensor& lengths,
                             const std::source_location& where) {
  const auto of_state = [&](std::int64_t i) {
    return slice(in.state.shift, 1, i, i + 1, 1, where);
  };
  const Shifted time = shifted(layer.time_norm.forward(in.x, where), of_state(0), lengths, where);
  constexpr std::int64_t inputs = 5;
  const Tensor low =
      tanh(layer.mix_down.forward(mixed(time, layer.first_mix, where), where), where);
  const Tensor split =
      split_axis(low, -1, {inputs, low.dim(-1, where) / inputs}, where);  // [B, S, 5, rank]
  const Tensor index = broadcast_to(iota(inputs, i32, 0, 1, where),
                                    {low.dim(0, where), low.dim(1, where), inputs}, where);
  const Tensor made = grouped_linear(split, layer.mix_up, index, {}, where);
  const Tensor difference = sub(time.before, time.x, where);
  const auto input = [&](std::int64_t i) {
    const Tensor fixed = of_type(
        flatten(slice(layer.time_mix, 0, i, i + 1, 1, where), 0, -1, where), in.x.dtype(), where);
    const Tensor share = add(squeeze(slice(made, 2, i, i + 1, 1, where), 2, where), fixed, where);
    return add(time.x, mul(difference, share, where), where);
  };
  const auto heads = [&](const Tensor& all) {
    const std::int64_t size = layer.head_size;
    return split_axis(all, -1, {all.dim(-1, where) / size, size}, where);
  };
  const Tensor low_decay = tanh(layer.decay.down.forward(input(0), where), where);
  const Tensor w =
      heads(exp(neg(exp(layer.decay.up.forward(low_decay, where), where), where), where));
  const Tensor k = heads(layer.key.forward(input(1), where));
  const Tensor v = heads(layer.value.forward(input(2), where));
  const Tensor r = heads(layer.receptance.forward(input(3), where));
  const Tensor gate = silu(layer.gate.forward(input(4), where), where);
  const auto [recalled, wkv] = late_wkv({r, w, k, v, {}, {}}, in.state.wkv, lengths, where);
  const Tensor bonus = mul(mul(k, r, where), of_type(layer.bonus, in.x.dtype(), where), where);
  const Tensor with_own = add(recalled, mul(v, sum(bonus, {-1}, true, where), where), where);
  const Tensor y = mul(head_normed(layer.head_norm, with_own, where), gate, where);
  const Tensor x = add(layer.output.forward(y, where), in.x, where);

  const Shifted channel =
      shifted(layer.channel_norm.forward(x, where), of_state(1), lengths, where);
  const Tensor key = square(
      relu(layer.channel_key.forward(mixed(channel, layer.channel_key_mix, where), where), where),
      where);
  const Tensor open = sigmoid(
      layer.channel_receptance.forward(mixed(channel, layer.channel_receptance_mix, where), where),
      where);
  Tensor next = add(mul(open, layer.channel_value.forward(key, where), where), x, where);
  if (layer.scale != 1) next = mul(next, scalar_like(next, layer.scale, where), where);
  return {next, in.first_value, {concat({time.last, channel.last}, 1, where), wkv}};
}

RwkvStep detail::rwkv7_layer(const Rwkv7Layer<>& layer, const RwkvStep& in, const Tensor& lengths,
                             const std::source_location& where) {
  const auto of_state = [&](std::int64_t i) {
    return slice(in.state.shift, 1, i, i + 1, 1, where);
  };
  const Shifted time = shifted(layer.time_norm.forward(in.x, where), of_state(0), lengths, where);
  const TimeMixInputs mix = time_mix_inputs(layer, time, in.first_value, where);
  const auto [recalled, wkv] = wkv7(mix.in, in.state.wkv, lengths, where);
  const std::int64_t heads = mix.in.k.dim(2, where);
  const Tensor weight = split_axis(of_type(flatten(layer.bonus, 0, -1, where), in.x.dtype(), where),
                                   0, {heads, layer.head_size}, where);
  const Tensor product = mul(mul(mix.in.k, mix.in.r, where), weight, where);
  const Tensor bonus = mul(mix.in.v, sum(product, {-1}, true, where), where);
  Tensor y =
      add(head_normed(layer.head_norm, recalled, where), merge_axes(bonus, 2, 3, {}, where), where);
  if (!mix.gate.is_empty()) y = mul(y, mix.gate, where);
  const Tensor x = add(layer.output.forward(y, where), in.x, where);

  const Shifted channel =
      shifted(layer.channel_norm.forward(x, where), of_state(1), lengths, where);
  const Tensor key = layer.channel_key.forward(mixed(channel, layer.channel_mix, where), where);
  const Tensor value = layer.channel_value.forward(square(relu(key, where), where), where);
  return {
      add(value, x, where), mix.first_value, {concat({time.last, channel.last}, 1, where), wkv}};
}

}  // namespace tenon::nn
