#pragma once

#include <tenon/fields.hpp>
#include <tenon/nn/linear.hpp>
#include <tenon/nn/mamba.hpp>
#include <tenon/ops/binary.hpp>
#include <tenon/ops/slice.hpp>
#include <tenon/tensor.hpp>
#include <tenon/weights_view.hpp>

#include <concepts>
#include <cstdint>
#include <source_location>

namespace tenon::nn {

/// The gated short convolution of LFM2 (Liquid AI, 2025): three parts b, c and v of width numbers are made of x, and
/// y = output(c * conv(b * v)), where conv is causal_conv.
template <class T = Tensor>
struct ShortConv {
  Linear<T> input;   ///< [3 width, width]
  T weight;          ///< [width, taps]
  Linear<T> output;  ///< [width, width]
  TENON_FIELDS(input, weight, output)

  /// Declares "in_proj", "conv" and "out_proj" below `view`.
  static ShortConv init(const WeightsView& view,
                        const std::source_location& where = std::source_location::current()) {
    return {Linear<T>::init(view["in_proj"], where), view["conv"].tensor("weight", where),
            Linear<T>::init(view["out_proj"], where)};
  }

  struct Step {
    Tensor y;      ///< [B, S, width]
    Tensor state;  ///< [B, taps - 1, width]
  };

  /// x [B, S, width]; `state` [B, taps - 1, width], zeros at first. With `lengths` (i32[B]), rows are padded behind them.
  Step forward(const Tensor& x, const Tensor& state, const Tensor& lengths = {},
               const std::source_location& where = std::source_location::current()) const
    requires std::same_as<T, Tensor>
  {
    const Tensor all = input.forward(x, where);
    const std::int64_t width = weight.dim(0, where);
    const auto part = [&](std::int64_t i) {
      return slice(all, -1, i * width, (i + 1) * width, 1, where);
    };
    const auto [mixed, next] =
        causal_conv(mul(part(0), part(2), where), state, weight, {}, lengths, where);
    return {output.forward(mul(part(1), mixed, where), where), next};
  }
};

}  // namespace tenon::nn
