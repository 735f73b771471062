#pragma once

#include <tenon/fields.hpp>
#include <tenon/name.hpp>
#include <tenon/nn/linear.hpp>
#include <tenon/ops/activation.hpp>
#include <tenon/ops/glu.hpp>

#include <optional>
#include <source_location>

namespace tenon::nn {

/// Applies an activation by name: silu, gelu, gelu_tanh, relu or sigmoid. Errc::bad_attribute for
/// another name.
Tensor activate(const Tensor& x, Name activation,
                const std::source_location& where = std::source_location::current());

/// down(activation(up(x))), or with a gate: down(activation(gate(x)) * up(x)).
template <class T = Tensor>
struct FeedForward {
  std::optional<Linear<T>> gate;
  Linear<T> up;
  Linear<T> down;
  Name activation = "silu";
  TENON_FIELDS(gate, up, down, activation)

  Tensor forward(const Tensor& x,
                 const std::source_location& where = std::source_location::current()) const
    requires std::same_as<T, Tensor>
  {
    const Tensor wide = up.forward(x, where);
    const Tensor hidden = gate ? glu(gate->forward(x, where), wide, activation, where)
                               : activate(wide, activation, where);
    return down.forward(hidden, where);
  }
};

}  // namespace tenon::nn
