#pragma once

#include <tenon/fields.hpp>
#include <tenon/ops/linear.hpp>
#include <tenon/weights_view.hpp>

#include <optional>
#include <source_location>

namespace tenon::nn {

/// y = x W^T + b. Weight [out, in], of a floating or a block type; bias [out], optional.
template <class T = Tensor>
struct Linear {
  T weight;
  std::optional<T> bias;
  TENON_FIELDS(weight, bias)

  /// Declares "weight" and, where the file has it, "bias" below `view`.
  static Linear init(const WeightsView& view,
                     const std::source_location& where = std::source_location::current()) {
    return {view.tensor("weight", where), view.find("bias", where)};
  }

  /// x [..., in] -> [..., out].
  Tensor forward(const Tensor& x,
                 const std::source_location& where = std::source_location::current()) const
    requires std::same_as<T, Tensor>
  {
    return linear(x, weight, bias.value_or(Tensor()), Tensor(), where);
  }
};

}  // namespace tenon::nn
