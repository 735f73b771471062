#pragma once

#include <tenon/fields.hpp>
#include <tenon/ops/activation.hpp>
#include <tenon/ops/axes.hpp>
#include <tenon/ops/binary.hpp>
#include <tenon/ops/fill.hpp>
#include <tenon/ops/linear.hpp>
#include <tenon/ops/operators.hpp>
#include <tenon/ops/slice.hpp>
#include <tenon/ops/unary.hpp>
#include <tenon/repeat.hpp>
#include <tenon/weights_view.hpp>

#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>

namespace tenon::nn {

// Recurrent layers over x [steps, batch, in]; weights, gates and names as in PyTorch's layers. The
// part of the gates that comes from x is one product for all steps.

/// What the layers share: weights [gates * width, in] and [gates * width, width], biases
/// [gates * width], which a layer may lack.
template <class T = Tensor>
struct RecurrentWeights {
  T weight_ih, weight_hh;
  std::optional<T> bias_ih{}, bias_hh{};
  TENON_FIELDS(weight_ih, weight_hh, bias_ih, bias_hh)

  /// Declares "weight_ih_l0" and so on below `view`; `suffix` "_l0_reverse" is the other direction.
  static RecurrentWeights init(
      const WeightsView& view, std::string_view suffix = "_l0",
      const std::source_location& where = std::source_location::current()) {
    const auto name = [&](std::string_view word) {
      return std::string(word) + std::string(suffix);
    };
    return {view.tensor(name("weight_ih"), where), view.tensor(name("weight_hh"), where),
            view.find(name("bias_ih"), where), view.find(name("bias_hh"), where)};
  }

  Tensor of_input(const Tensor& x, const std::source_location& where) const {
    return linear(x, weight_ih, bias_ih.value_or(Tensor()), {}, where);
  }
  Tensor of_state(const Tensor& h, const std::source_location& where) const {
    return linear(h, weight_hh, bias_hh.value_or(Tensor()), {}, where);
  }
};

namespace detail {

/// Part `i` of `count` along the last axis.
inline Tensor gate(const Tensor& gates, std::int64_t i, std::int64_t count,
                   const std::source_location& where) {
  const std::int64_t width = gates.dim(-1, where) / count;
  return slice(gates, -1, i * width, (i + 1) * width, 1, where);
}

/// Zeros [batch, width] for x [steps, batch, in], whose sizes may be symbolic, and weight_hh
/// [gates * width, width].
inline Tensor zero_state(const Tensor& x, const Tensor& weight_hh,
                         const std::source_location& where) {
  const DType dtype = x.dtype(where);
  const Full zeros{.value = 0, .dims = {weight_hh.dim(1, where)}, .dtype = dtype};
  const Tensor row = record_beside(x, op_def<Full>(), &zeros, where);
  const Tensor column = unsqueeze(iota(x, 1, dtype, 0, 0, where), -1, {}, where);
  return add(column, row, where);
}

}  // namespace detail

template <class T = Tensor>
struct LstmState {
  T h, c;  ///< [batch, width]
  TENON_FIELDS(h, c)
};

/// i, f, o = sigmoid, g = tanh of W_ih x + W_hh h; c = f c + i g; h = o tanh(c). Gates in the order
/// i, f, g, o (Hochreiter and Schmidhuber, 1997).
template <class T = Tensor>
struct Lstm {
  RecurrentWeights<T> weights;
  TENON_FIELDS(weights)

  static Lstm init(const WeightsView& view, std::string_view suffix = "_l0",
                   const std::source_location& where = std::source_location::current()) {
    return {RecurrentWeights<T>::init(view, suffix, where)};
  }

  /// x [steps, batch, in] -> {state after the last step, h of every step [steps, batch, width]}.
  Scanned<LstmState<Tensor>, Tensor> forward(
      const Tensor& x, const LstmState<Tensor>& state,
      const std::source_location& where = std::source_location::current()) const
    requires std::same_as<T, Tensor>
  {
    return scan(
        state, weights.of_input(x, where),
        [&](const LstmState<Tensor>& last, const Tensor& from_x) {
          const Tensor gates = add(from_x, weights.of_state(last.h, where), where);
          const auto gate = [&](int i) { return detail::gate(gates, i, 4, where); };
          const Tensor c =
              sigmoid(gate(1), where) * last.c + sigmoid(gate(0), where) * tanh(gate(2), where);
          const Tensor h = sigmoid(gate(3), where) * tanh(c, where);
          return std::pair(LstmState<Tensor>{h, c}, h);
        },
        where);
  }

  /// The same from a state of zeros.
  Scanned<LstmState<Tensor>, Tensor> forward(
      const Tensor& x, const std::source_location& where = std::source_location::current()) const
    requires std::same_as<T, Tensor>
  {
    const Tensor zero = detail::zero_state(x, weights.weight_hh, where);
    return forward(x, LstmState<Tensor>{zero, zero}, where);
  }
};

/// r, z = sigmoid of W_ih x + W_hh h; n = tanh(W_in x + r (W_hn h)); h = (1 - z) n + z h. Gates in
/// the order r, z, n (Cho et al., arXiv:1406.1078, with the reset after the product).
template <class T = Tensor>
struct Gru {
  RecurrentWeights<T> weights;
  TENON_FIELDS(weights)

  static Gru init(const WeightsView& view, std::string_view suffix = "_l0",
                  const std::source_location& where = std::source_location::current()) {
    return {RecurrentWeights<T>::init(view, suffix, where)};
  }

  /// x [steps, batch, in], h [batch, width] -> {h after the last step, h of every step}.
  Scanned<Tensor, Tensor> forward(
      const Tensor& x, const Tensor& state,
      const std::source_location& where = std::source_location::current()) const
    requires std::same_as<T, Tensor>
  {
    return scan(
        state, weights.of_input(x, where),
        [&](const Tensor& last, const Tensor& from_x) {
          const Tensor from_h = weights.of_state(last, where);
          const auto of_x = [&](int i) { return detail::gate(from_x, i, 3, where); };
          const auto of_h = [&](int i) { return detail::gate(from_h, i, 3, where); };
          const Tensor r = sigmoid(add(of_x(0), of_h(0), where), where);
          const Tensor z = sigmoid(add(of_x(1), of_h(1), where), where);
          const Tensor n = tanh(of_x(2) + r * of_h(2), where);
          const Tensor h = n + z * (last - n);
          return std::pair(h, h);
        },
        where);
  }

  /// The same from a state of zeros.
  Scanned<Tensor, Tensor> forward(
      const Tensor& x, const std::source_location& where = std::source_location::current()) const
    requires std::same_as<T, Tensor>
  {
    const Tensor zero = detail::zero_state(x, weights.weight_hh, where);
    return forward(x, zero, where);
  }
};

/// h = tanh(W_ih x + W_hh h) (Elman, 1990).
template <class T = Tensor>
struct Rnn {
  RecurrentWeights<T> weights;
  TENON_FIELDS(weights)

  static Rnn init(const WeightsView& view, std::string_view suffix = "_l0",
                  const std::source_location& where = std::source_location::current()) {
    return {RecurrentWeights<T>::init(view, suffix, where)};
  }

  /// As Gru::forward.
  Scanned<Tensor, Tensor> forward(
      const Tensor& x, const Tensor& state,
      const std::source_location& where = std::source_location::current()) const
    requires std::same_as<T, Tensor>
  {
    return scan(
        state, weights.of_input(x, where),
        [&](const Tensor& last, const Tensor& from_x) {
          const Tensor h = tanh(add(from_x, weights.of_state(last, where), where), where);
          return std::pair(h, h);
        },
        where);
  }

  /// The same from a state of zeros.
  Scanned<Tensor, Tensor> forward(
      const Tensor& x, const std::source_location& where = std::source_location::current()) const
    requires std::same_as<T, Tensor>
  {
    const Tensor zero = detail::zero_state(x, weights.weight_hh, where);
    return forward(x, zero, where);
  }
};

}  // namespace tenon::nn
