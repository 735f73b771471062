#pragma once

#include <tenon/fields.hpp>
#include <tenon/shape.hpp>

#include <cstdint>

namespace tenon::nn {

/// Keys and values of past positions, of layers whose heads are alike: [layers, batch, kv_heads, capacity, head_dim],
/// or, of values, value_dim.
/// State: an input and a result of forward, updated in place where the caller moves it in.
template <class T = Tensor>
struct KvCache {
  T keys;
  T values;
  TENON_FIELDS(keys, values)
};

/// Shapes of a cache; f16 takes half the memory of f32. value_dim 0: head_dim.
inline KvCache<Shape> kv_cache_shape(std::int64_t layers, std::int64_t batch, std::int64_t kv_heads,
                                     std::int64_t capacity, std::int64_t head_dim, DType dtype,
                                     std::int64_t value_dim = 0) {
  const auto of = [&](std::int64_t dim) {
    return Shape({layers, batch, kv_heads, capacity, dim}, dtype);
  };
  return {of(head_dim), of(value_dim == 0 ? head_dim : value_dim)};
}

}  // namespace tenon::nn
