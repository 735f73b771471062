#pragma once

#include <tenon/fields.hpp>
#include <tenon/ops/conv2d.hpp>
#include <tenon/weights_view.hpp>

#include <optional>
#include <source_location>

namespace tenon::nn {

/// 2-D convolution, NCHW. Weight [out, in / groups, kernel height, kernel width]; bias [out],
/// optional.
template <class T = Tensor>
struct Conv2d {
  T weight;
  std::optional<T> bias;
  TENON_FIELDS(weight, bias, options)
  tenon::Conv2d options;  ///< stride, padding, dilation, groups

  static Conv2d init(const WeightsView& view, const tenon::Conv2d& options = {},
                     const std::source_location& where = std::source_location::current()) {
    return {view.tensor("weight", where), view.find("bias", where), options};
  }

  Tensor forward(const Tensor& x,
                 const std::source_location& where = std::source_location::current()) const
    requires std::same_as<T, Tensor>
  {
    return conv2d(x, weight, bias.value_or(Tensor()), options, where);
  }
};

}  // namespace tenon::nn
