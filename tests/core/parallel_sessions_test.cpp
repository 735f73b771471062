// Several host threads on one backend: each gets what it would get alone.
#include "core/runs.hpp"
#include "support/op_testing.hpp"

#include <tenon/ops.hpp>

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon {
namespace {

using namespace testing;

constexpr std::int64_t width = 64;

/// Products, norms and attention with an argmax behind them: tasks that share their work in
/// different ways.
Program small_model() {
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

std::map<std::string, Buffer> small_weights() {
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

}  // namespace

TEST_CASE("forks on threads of their own give every byte that one alone gives") {
  register_cpu_backend();
  for (const int threads : {1, 2, 4}) {
    Session session(small_model(), {.backends = {make_backend("cpu", {.threads = threads})}});
    session.bind(std::make_shared<const WeightSet>(small_weights()));
    std::vector<Buffer> inputs;
    std::vector<std::vector<HostBuffer>> want;
    Random random(5);
    for (const std::int64_t rows : {1, 5}) {
      inputs.push_back(device(random.uniform(Shape({rows, width}, f32))));
      auto& results = want.emplace_back();
      for (const Buffer& output : session.forward({inputs.back()})) {
        results.push_back(output.to_host());
      }
    }
    std::atomic<int> wrong{0};
    std::vector<std::thread> callers;
    for (int caller = 0; caller < 4; ++caller) {
      callers.emplace_back([&, caller] {
        Session own = session.fork();
        for (int i = 0; i < 1000; ++i) {
          const auto which = static_cast<std::size_t>(caller + i) % inputs.size();
          const std::vector<Buffer> got = own.forward({inputs[which]});
          for (std::size_t o = 0; o < got.size(); ++o) {
            wrong += !same_bits(got[o].to_host(), want[which][o]);
          }
        }
      });
    }
    for (std::thread& caller : callers) caller.join();
    CAPTURE(threads);
    CHECK(wrong == 0);
  }
}

}  // namespace tenon
