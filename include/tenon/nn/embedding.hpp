#pragma once

#include <tenon/fields.hpp>
#include <tenon/ops/embedding.hpp>
#include <tenon/weights_view.hpp>

#include <source_location>

namespace tenon::nn {

/// Looks up rows of a table [entries, width], of a floating or a block type.
template <class T = Tensor>
struct Embedding {
  T weight;
  TENON_FIELDS(weight)

  static Embedding init(const WeightsView& view,
                        const std::source_location& where = std::source_location::current()) {
    return {view.tensor("weight", where)};
  }

  /// ids [...] (i32 or i64) -> f32 [..., width].
  Tensor forward(const Tensor& ids,
                 const std::source_location& where = std::source_location::current()) const
    requires std::same_as<T, Tensor>
  {
    return embedding(ids, weight, DType::f32, where);
  }
};

}  // namespace tenon::nn
