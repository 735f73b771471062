// What examples/finetune_lora.cpp trains: low-rank adapters of a decoder, whose weights stay as the
// file has them.
#pragma once

#include <tenon/models/adapters.hpp>
#include <tenon/tenon.hpp>

#include <concepts>
#include <tuple>

namespace lora_training {

using namespace tenon;

template <class T = Tensor>
struct Training {
  models::Decoder<T> decoder;
  TENON_FIELDS(decoder)
  train::Adam optimizer = train::adamw(0.01);

  using Adapters = models::DecoderAdapters<>;
  using State = train::AdamState<Adapters>;

  /// The mean of -log p of each token but the first of ids [B, S + 1], given those before it.
  Tensor loss(const Adapters& adapters, const Tensor& ids) const
    requires std::same_as<T, Tensor>
  {
    const std::int64_t steps = ids.dim(1) - 1;
    const auto adapted = models::with_adapters(decoder, adapters);
    return cross_entropy(adapted.scores(slice(ids, 1, 0, steps)), slice(ids, 1, 1));
  }

  /// The adapters and the optimiser's state after a step, and the loss before it.
  std::tuple<Adapters, State, Tensor> step(const Adapters& adapters, const State& state,
                                           const Tensor& ids, const Tensor& rate) const
    requires std::same_as<T, Tensor>
  {
    const Tensor before = loss(adapters, ids);
    const Adapters gradients = train::clip_norm(grad(before, adapters), 1.0).first;
    auto [next, next_state] = optimizer.update(adapters, gradients, state, rate);
    return {next, next_state, before};
  }
};

}  // namespace lora_training
