// A small transformer, and weights for it.
#pragma once

#include "core/runs.hpp"
#include "support/op_testing.hpp"

#include <tenon/graph.hpp>
#include <tenon/ops.hpp>

#include <cstdint>
#include <map>
#include <string>

namespace tenon::testing {

inline constexpr std::int64_t small_model_width = 64;

/// Matrix multiplications, norms and attention, followed by an argmax: tasks that are split between
/// threads in different ways.
inline Program small_model() {
  constexpr std::int64_t width = small_model_width;
  Graph graph;
  Tensor x = graph.input("x", Shape({symbol("S"), width}, f32));
  for (int i = 0; i < 2; ++i) {
    const auto weight = [&](const char* name, std::int64_t rows) {
      return graph.constant(name + std::to_string(i), Shape({rows, width}, f32));
    };
    const auto heads = [](const Tensor& t) { return reshape(t, {1, -1, 4, width / 4}); };
    const Tensor n = rms_norm(x, graph.constant("norm" + std::to_string(i), Shape({width}, f32)));
    const Tensor a =
        attention(heads(linear(n, weight("q", width))), heads(linear(n, weight("k", width))),
                  heads(linear(n, weight("v", width))), {.causal = true});
    x = x + linear(reshape(a, {-1, width}), weight("o", width));
    x = x + silu(linear(x, weight("up", width)));
  }
  const Tensor scores = linear(x, graph.constant("head", Shape({512, width}, f32)));
  const Tensor outputs[] = {softmax(scores), argmax(scores)};
  return graph.program(outputs);
}

inline std::map<std::string, Buffer> small_weights() {
  constexpr std::int64_t width = small_model_width;
  std::map<std::string, Buffer> weights;
  Random random(4);
  const auto add = [&](const std::string& name, const Shape& shape) {
    weights[name] = device(random.uniform(shape));
  };
  for (int i = 0; i < 2; ++i) {
    for (const char* name : {"q", "k", "v", "o", "up"}) {
      add(name + std::to_string(i), Shape({width, width}, f32));
    }
    add("norm" + std::to_string(i), Shape({width}, f32));
  }
  add("head", Shape({512, width}, f32));
  return weights;
}

}  // namespace tenon::testing
