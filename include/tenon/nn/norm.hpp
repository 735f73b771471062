#pragma once

#include <tenon/fields.hpp>
#include <tenon/ops/norm.hpp>
#include <tenon/weights_view.hpp>

#include <optional>
#include <source_location>

namespace tenon::nn {

/// Layer normalisation of the last axis, with scale and, optionally, shift.
template <class T = Tensor>
struct LayerNorm {
  T weight;
  std::optional<T> bias;
  double eps = 1e-5;
  TENON_FIELDS(weight, bias, eps)

  static LayerNorm init(const WeightsView& view, double eps,
                        const std::source_location& where = std::source_location::current()) {
    return {view.tensor("weight", where), view.find("bias", where), eps};
  }

  Tensor forward(const Tensor& x,
                 const std::source_location& where = std::source_location::current()) const
    requires std::same_as<T, Tensor>
  {
    return bias ? layer_norm(x, weight, *bias, eps, where) : layer_norm(x, weight, eps, where);
  }
};

/// Root-mean-square normalisation of the last axis, with scale.
template <class T = Tensor>
struct RmsNorm {
  T weight;
  double eps = 1e-5;
  TENON_FIELDS(weight, eps)

  static RmsNorm init(const WeightsView& view, double eps,
                      const std::source_location& where = std::source_location::current()) {
    return {view.tensor("weight", where), eps};
  }

  Tensor forward(const Tensor& x,
                 const std::source_location& where = std::source_location::current()) const
    requires std::same_as<T, Tensor>
  {
    return rms_norm(x, weight, eps, where);
  }
};

}  // namespace tenon::nn
