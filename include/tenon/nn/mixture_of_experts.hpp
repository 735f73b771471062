#pragma once

#include <tenon/fields.hpp>
#include <tenon/name.hpp>
#include <tenon/nn/feed_forward.hpp>
#include <tenon/nn/linear.hpp>
#include <tenon/ops/axes.hpp>
#include <tenon/ops/binary.hpp>
#include <tenon/ops/gather.hpp>
#include <tenon/ops/grouped_linear.hpp>
#include <tenon/ops/reduce.hpp>
#include <tenon/ops/slice.hpp>

#include <cstdint>
#include <optional>
#include <source_location>

namespace tenon::nn {

/// Which experts each row goes to, and by what weights their results are added.
struct Routing {
  Tensor experts;  ///< i32 [..., used]
  Tensor weights;  ///< of the logits' dtype [..., used]
};

struct RouterOptions {
  std::int64_t used = 2;    ///< experts for each row
  Name scores = "softmax";  ///< or "sigmoid": of all experts' logits; or "sparsemixer", see route()
  /// The weights of a row are divided by their sum, or by 2^-14 if that is larger.
  bool normalized = true;
  double scale = 1;         ///< multiplies the weights
  std::int64_t groups = 1;  ///< the experts in as many equal groups, of which
  std::int64_t groups_used =
      1;  ///< a row goes to these only: those whose two largest scores have the largest sums
};

/// The `used` experts of the largest scores, largest first; among equals the lower number. `bias`,
/// [E] or empty, is added to the scores for the choice, not to the weights (DeepSeek-V3,
/// arXiv:2412.19437, 2.1.2), in that of groups, too.
///
/// "sparsemixer" chooses two by their logits (SparseMixer: Liu et al., GRIN, arXiv:2409.12136, as Phi-3.5-MoE computes
/// without training): an expert's weight is its share, by softmax, among those that were not chosen before it and whose
/// logits l are near its own m, (m - l) / max(|l|, m) <= 0.02. It knows no bias, groups or normalisation.
///
/// Errors: bad_attribute (another word for `scores`, what "sparsemixer" does not know), out_of_range (`used` not in [1, E] or more than
/// the used groups have, `groups` not a divisor of E that leaves two for each, `groups_used` not in
/// [1, groups]), and those of the ops.
Routing route(const Tensor& logits, const RouterOptions& options, const Tensor& bias = {},
              const std::source_location& where = std::source_location::current());

/// A feed-forward part that each row chooses: sum over its experts e of
/// weight_e * down_e(activation(gate_e(x)) * up_e(x)) (Shazeer et al., arXiv:1701.06538), or without
/// gates down_e(activation(up_e(x))), plus a part that is the same for all rows where there is one. Latent experts read
/// what `latent_down` makes of x, and `latent_up` reads their sum; the router and the shared part read x (Nemotron 3).
template <class T = Tensor>
struct MixtureOfExperts {
  Linear<T> router;                                 ///< [E, width]
  std::optional<T> router_bias;                     ///< [E]: see route()
  std::optional<Linear<T>> latent_down, latent_up;  ///< [latent, width], [width, latent]
  std::optional<T> gate;  ///< [E, hidden, width or latent], of a floating or a block type
  T up;                   ///< the same; with has_fused_gate [E, 2 * hidden, width]
  T down;                 ///< [E, width or latent, hidden]
  /// [E]: multiply what an expert's weights give, before the bias.
  std::optional<T> gate_scale, up_scale, down_scale;
  std::optional<T> gate_bias, up_bias;  ///< [E, hidden]
  std::optional<T> down_bias;           ///< [E, width]
  std::optional<FeedForward<T>> shared;
  std::optional<T> shared_gate;  ///< [width] or [1, width]: sigmoid of w x scales the shared part
  Name activation = "silu";      ///< see gated(), or without gates activate()
  bool has_weighted_inputs =
      false;                    ///< weights multiply what experts read, not their results (Llama 4)
  bool has_fused_gate = false;  ///< the first half of what `up` gives is the gate's
  double sum_scale =
      1;  ///< multiplies the sum of the experts' results and the shared part's (Grok)
  TENON_FIELDS(router, router_bias, latent_down, latent_up, gate, up, down, gate_scale, up_scale,
               down_scale, gate_bias, up_bias, down_bias, shared, shared_gate, activation,
               has_weighted_inputs, has_fused_gate, sum_scale, options)
  RouterOptions options;

  /// x [..., width] -> [..., width].
  Tensor forward(const Tensor& x,
                 const std::source_location& where = std::source_location::current()) const
    requires std::same_as<T, Tensor>
  {
    return forward(x, x, where);
  }

  /// The same where the router reads `routed` [..., width] in place of x (Gemma 4).
  Tensor forward(const Tensor& x, const Tensor& routed,
                 const std::source_location& where = std::source_location::current()) const
    requires std::same_as<T, Tensor>
  {
    const auto [experts, weights] =
        route(router.forward(routed, where), options, router_bias.value_or(Tensor()), where);
    const Tensor shares = unsqueeze(weights, -1, {}, where);
    Tensor rows = unsqueeze(latent_down ? latent_down->forward(x, where) : x, -2, {}, where);
    if (has_weighted_inputs) rows = mul(rows, shares, where);
    const auto of_experts = [&, &chosen = experts](const Tensor& in, const T& weight,
                                                   const std::optional<T>& scale,
                                                   const std::optional<T>& bias) {
      if (!scale) return grouped_linear(in, weight, chosen, bias.value_or(Tensor()), where);
      const Tensor factors = unsqueeze(gather(*scale, chosen, 0, where), -1, {}, where);
      const Tensor made = mul(grouped_linear(in, weight, chosen, {}, where), factors, where);
      return bias ? add(made, gather(*bias, chosen, 0, where), where) : made;
    };
    const Tensor wide = of_experts(rows, up, up_scale, up_bias);
    const auto halves = [&] {
      const std::int64_t size = wide.dim(-1, where) / 2;
      return gated(slice(wide, -1, 0, size, 1, where), slice(wide, -1, size, to_end, 1, where),
                   activation, where);
    };
    const Tensor hidden =
        gate ? gated(of_experts(rows, *gate, gate_scale, gate_bias), wide, activation, where)
        : has_fused_gate ? halves()
                         : activate(wide, activation, where);
    Tensor results = of_experts(hidden, down, down_scale, down_bias);
    if (!has_weighted_inputs) results = mul(results, shares, where);
    Tensor y = sum(results, {-2}, false, where);
    if (latent_up) y = latent_up->forward(y, where);
    if (!shared) return y;
    Tensor common = shared->forward(x, where);
    if (shared_gate) {
      const Tensor row =
          shared_gate->rank() == 1 ? unsqueeze(*shared_gate, 0, {}, where) : *shared_gate;
      const Tensor share = sigmoid(linear(x, row, {}, {}, where), where);  // [..., 1]
      common = mul(common, share, where);
    }
    const Tensor both = add(y, common, where);
    return sum_scale == 1 ? both : mul(both, scalar_like(both, sum_scale, where), where);
  }
};

}  // namespace tenon::nn
