#pragma once

#include <tenon/fields.hpp>
#include <tenon/shape.hpp>

#include <cstdint>

namespace tenon::nn {

/// Keys and values of past positions, of all layers: [layers, batch, kv_heads, capacity, head_dim].
/// State: an input and a result of forward, updated in place where the caller moves it in.
template <class T = Tensor>
struct KvCache {
  T keys;
  T values;
  TENON_FIELDS(keys, values)
};

/// Shapes of a cache; f16 takes half the memory of f32.
inline KvCache<Shape> kv_cache_shape(std::int64_t layers, std::int64_t batch, std::int64_t kv_heads,
                                     std::int64_t capacity, std::int64_t head_dim, DType dtype) {
  const Shape shape({layers, batch, kv_heads, capacity, head_dim}, dtype);
  return {shape, shape};
}

}  // namespace tenon::nn
