// A program with a loop of three layers, and weights for it.
#pragma once

#include "core/runs.hpp"
#include "support/op_testing.hpp"
#include "support/program_text.hpp"

#include <map>
#include <memory>
#include <string>

namespace tenon::testing {

/// x: f32[S, 4] -> f32[S, 4].
inline Program layered_model() {
  Program program = program_of(R"(def block(x: f32[S, 4], i: i64, s: Scope):
    w: f32[4, 4] = const(s, "w")
    a = linear(x, w)
    y = tanh(a)
    return y

def forward(x: f32[S, 4]):
    s = scope("layers")
    t = pack(x)
    r = repeat(block, 3, t, s)
    y = item(r, 0)
    z = neg(y)
    return z
)");
  verify(program);
  return program;
}

inline std::map<std::string, Buffer> layered_weights() {
  std::map<std::string, Buffer> weights;
  for (int i = 0; i < 3; ++i) {
    weights["layers." + std::to_string(i) + ".w"] =
        device(Random(static_cast<std::uint64_t>(i) + 1).uniform(Shape({4, 4}, f32)));
  }
  return weights;
}

inline std::shared_ptr<const WeightSet> layered_weight_set() {
  return std::make_shared<const WeightSet>(layered_weights());
}

}  // namespace tenon::testing
