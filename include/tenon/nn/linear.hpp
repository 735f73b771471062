#pragma once

#include <tenon/fields.hpp>
#include <tenon/ops/binary.hpp>
#include <tenon/ops/fill.hpp>
#include <tenon/ops/linear.hpp>
#include <tenon/ops/slice.hpp>
#include <tenon/weights_view.hpp>

#include <cstdint>
#include <optional>
#include <source_location>

namespace tenon::nn {

/// A low-rank change of a linear layer: the layer computes x (W + scale B A)^T + b (Hu et al., LoRA,
/// arXiv:2106.09685). W stays as it is; a and b are trained.
template <class T = Tensor>
struct Lora {
  T a;  ///< [rank, in], of x's dtype
  T b;  ///< [out, rank], of x's dtype
  double scale = 1;
  TENON_FIELDS(a, b, scale)
};

/// y = s x W^T + b. Weight [out, in], of a floating or a block type; scale [1] and bias [out], optional. Files that have
/// several layers in one weight, one below the other, give each its rows of it.
template <class T = Tensor>
struct Linear {
  T weight;
  std::optional<T> bias{};
  std::optional<Lora<T>> lora{};  ///< no part of files of weights: models::with_adapters sets it
  std::int64_t first_row = 0;     ///< of the weight and the bias
  std::int64_t rows = 0;          ///< how many of them; 0: all
  std::optional<T> scale{};       ///< of the whole weight (nvfp4)
  TENON_FIELDS(weight, bias, lora, first_row, rows, scale)

  /// Declares "weight" and, where the file has them, "bias" and "scale" below `view`. A "scale" of several numbers is
  /// something else's.
  static Linear init(const WeightsView& view,
                     const std::source_location& where = std::source_location::current()) {
    Linear made{view.tensor("weight", where), view.find("bias", where)};
    made.scale = view.find("scale", where);
    if (made.scale && made.scale->shape(where).elements() != 1) made.scale.reset();
    return made;
  }

  /// Declares the part of a weight that begins at `first_row`.
  static Linear init_rows(const WeightsView& view, std::int64_t first_row, std::int64_t rows,
                          const std::source_location& where = std::source_location::current()) {
    Linear made = init(view, where);
    made.first_row = first_row;
    made.rows = rows;
    return made;
  }

  /// x [..., in] -> [..., out].
  Tensor forward(const Tensor& x,
                 const std::source_location& where = std::source_location::current()) const
    requires std::same_as<T, Tensor>
  {
    const Tensor added = bias ? part_of(*bias, where) : Tensor();
    Tensor y = linear(x, part_of(weight, where), scale ? Tensor() : added, Tensor(), where);
    if (scale) {
      y = mul(y, *scale, where);
      if (bias) y = add(y, added, where);
    }
    if (!lora) return y;
    const Tensor low = linear(x, lora->a, Tensor(), Tensor(), where);
    return linear(mul(low, scalar_like(low, lora->scale, where), where), lora->b, Tensor(), y,
                  where);
  }

 private:
  Tensor part_of(const Tensor& all, const std::source_location& where) const
    requires std::same_as<T, Tensor>
  {
    return rows == 0 ? all : slice(all, 0, first_row, first_row + rows, 1, where);
  }
};

}  // namespace tenon::nn
