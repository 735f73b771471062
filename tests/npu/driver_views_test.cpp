// Values that are parts of others: slices, concatenations and padding lie where they belong, and
// nothing is copied for them that need not be.
#include "npu/driver_checks.hpp"
#include "npu/driver_open.hpp"
#include "npu/driver_rig.hpp"

#include <tenon/ops.hpp>

#include <algorithm>
#include <cmath>

#include <catch2/catch.hpp>

namespace tenon::npu {
namespace {

using namespace tenon::npu::testing;

/// What the compiler made of a network on a large device.
std::string listing(const Network& network) {
  const auto npu = backend(open_npu(large_device), options_for(network));
  Session session(network.program, {.backends = {npu, make_backend("reference")}});
  session.bind(network.weights);
  session.forward({network.sample(1)[0].to_device(cpu_device())});
  std::string text;
  for (const NetworkReport& report : npu->networks()) text += report.text;
  return text;
}

std::size_t count(const std::string& text, const std::string& word) {
  std::size_t found = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    ++found;
  }
  return found;
}

Tensor conv(Graph& graph, const Tensor& x, const std::string& name, std::int64_t outputs,
            std::int64_t kernel = 1, Conv2d attributes = {}) {
  return conv2d(x, graph.constant(name, Shape({outputs, x.shape()[1], kernel, kernel}, f32)), {},
                attributes);
}

TEST_CASE("npu view: slices of whole blocks are read where they are") {
  const Network network =
      of({Shape({2, 16, 6, 5}, f32)},
         [](Graph& graph, const std::vector<Tensor>& in) -> std::vector<Tensor> {
           const Tensor x = relu(conv(graph, in[0], "a", 100));
           return {conv(graph, slice(x, 1, 0, 32), "b", 40, 3, {.padding = {1, 1}}),
                   max_pool2d(slice(x, 1, 32, 96), {.kernel = {2, 2}}),
                   slice(x, 1, 64) * slice(x, 1, 0, 36)};
         });
  check(network, 0.99);
  // The last one's second operand ends within a block: it alone goes through memory.
  CHECK(count(listing(network), "quantize ") == 1 + 1 + 4);
}

TEST_CASE("npu view: slices of rows, one from another") {
  const Network network =
      of({Shape({7, 24}, f32)},
         [](Graph& graph, const std::vector<Tensor>& in) -> std::vector<Tensor> {
           const Tensor qkv = linear(in[0], graph.constant("qkv", Shape({192, 24}, f32)));
           const Tensor kv = slice(qkv, 1, 64);
           return {slice(qkv, 1, 0, 64) + slice(kv, 1, 64), relu(slice(kv, 1, 0, 64))};
         });
  check(network, 0.99);
  CHECK(count(listing(network), "quantize ") == 1 + 2);
}

TEST_CASE("npu view: parts of a concatenation are made in their place") {
  const Network network =
      of({Shape({1, 8, 7, 7}, f32)},
         [](Graph& graph, const std::vector<Tensor>& in) -> std::vector<Tensor> {
           const Tensor a = relu(conv(graph, in[0], "a", 32));
           const Tensor b = silu(conv(graph, in[0], "b", 64));
           const Tensor c = conv(graph, in[0], "c", 20, 3, {.padding = {1, 1}});
           return {conv(graph, concat({a, b, c}, 1), "d", 12)};
         });
  check(network, 0.99);
  CHECK(count(listing(network), "move ") == 0);
}

TEST_CASE("npu view: a part that others read, a part twice, a part that keeps its step") {
  check(of({Shape({2, 32, 6, 6}, f32)},
           [](Graph& graph, const std::vector<Tensor>& in) -> std::vector<Tensor> {
             const Tensor a = conv(graph, in[0], "a", 32);
             const Tensor b =
                 max_pool2d(a, {.kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}});
             const Tensor all = concat({a, b, in[0], a}, 1);
             return {conv(graph, all, "b", 9), a + b, conv(graph, a, "c", 5)};
           }),
        0.99);
}

TEST_CASE("npu view: concatenations of concatenations, as dense blocks have them") {
  const Network network =
      of({Shape({1, 32, 6, 6}, f32)},
         [](Graph& graph, const std::vector<Tensor>& in) -> std::vector<Tensor> {
           Tensor x = relu(conv(graph, in[0], "stem", 32));
           for (const char* name : {"a", "b", "c"}) {
             x = concat({x, relu(conv(graph, x, name, 32, 3, {.padding = {1, 1}}))}, 1);
           }
           return {conv(graph, slice(x, 1, 32, 96), "head", 10)};
         });
  check(network, 0.98);
}

TEST_CASE("npu view: a concatenation within another has one value twice") {
  // Its parts are copied, the first of them before anything else of the outer one is made.
  check(of({Shape({2, 8, 5, 6}, f32)},
           [](Graph& graph, const std::vector<Tensor>& in) -> std::vector<Tensor> {
             const Tensor a = relu(conv(graph, in[0], "a", 32));
             return {conv(graph, concat({a, concat({a, a}, 1), a}, 1), "b", 9)};
           }),
        0.99);
}

TEST_CASE("npu view: parts whose ranges are far apart") {
  // The first part's step is raised after the second one was bound: both have the same then.
  const Network network =
      of({Shape({1, 32, 4, 4}, f32)},
         [](Graph& graph, const std::vector<Tensor>& in) -> std::vector<Tensor> {
           const Tensor small = conv(graph, in[0], "a", 32) * graph.constant("s", Shape({1}, f32));
           return {concat({small, conv(graph, in[0], "b", 32)}, 1)};
         });
  check(network, 0.98);
}

TEST_CASE("npu view: what is computed of an image that was flattened, or of rows that became one") {
  check(of({Shape({2, 6, 4, 3}, f32)},
           [](Graph& graph, const std::vector<Tensor>& in) -> std::vector<Tensor> {
             const Tensor x = conv(graph, in[0], "a", 20);
             const Tensor rows =
                 linear(flatten(x, 1, 3), graph.constant("b", Shape({96, 240}, f32)));
             const Tensor image = tanh(reshape(rows, {2, 32, 3, 1}));
             return {tanh(flatten(x, 1, 3)), relu(flatten(neg(in[0]))), image,
                     image + reshape(sigmoid(rows), {2, 32, 3, 1})};
           }),
        0.99);
}

TEST_CASE("npu view: a value per channel beside an image that is held as rows") {
  const Network network = make_network(
      {Shape({1, 33, 4, 6}, f32)},
      [](Graph& graph, const std::vector<Tensor>& in) -> std::vector<Tensor> {
        const Tensor x = linear(in[0], graph.constant("a", Shape({5, 6}, f32)));
        const Tensor y = silu(reshape(in[0], {1, 1, 33, 4, 6}));
        return {x - mean(x, {2, 3}, true), mean(x, {2, 3}, true) * x,
                reshape(y, {1, 33, 4, 6}) * mean(in[0], {2, 3}, true)};
      },
      3);
  check(network, 0.98);
}

TEST_CASE("npu view: values per channel of other ranks, and beside a constant, are refused") {
  const Network network = make_network(
      {Shape({2, 20, 5, 4}, f32), Shape({20, 1, 1}, f32), Shape({1, 20}, f32)},
      [](Graph& graph, const std::vector<Tensor>& in) -> std::vector<Tensor> {
        const Tensor c = graph.constant("c", Shape({3, 20}, f32));
        return {neg(in[0]) * neg(in[1]), maximum(neg(in[2]), c), c - neg(in[2])};
      },
      6);
  check(network, 0.99);
  const auto npu = backend(open_npu(small_device), options_for(network));
  Session session(network.program, {.backends = {npu, make_backend("reference")}});
  session.bind(network.weights);
  CHECK(session.explain("mul0", network.inputs)[0] ==
        "npu: f32[20, 1, 1] spread over f32[2, 20, 5, 4]");
  CHECK(session.explain("maximum0", network.inputs)[0] == "npu: what is computed is spread");
  CHECK(session.explain("sub0", network.inputs)[0] == "npu: what is computed is spread");
}

TEST_CASE("npu view: what is picked of a constant has a range before weights are bound") {
  const Network network = make_network(
      {Shape({2, 4}, f32)},
      [](Graph& graph, const std::vector<Tensor>& in) -> std::vector<Tensor> {
        const Tensor c = graph.constant("c", Shape({1, 2, 4, 6}, f32));
        const Tensor d = graph.constant("d", Shape({1, 2, 2, 6}, f32));
        const Tensor x = max_pool2d(c, {.kernel = {2, 1}, .stride = {2, 1}});
        return {glu(x, d, Name("relu")), glu(x, d, Name("silu")), neg(in[0])};
      },
      7);
  check(network, 0.99);
}

TEST_CASE("npu view: a constant that leaves the program is not rounded") {
  const Network network = make_network(
      {Shape({2, 40}, f32)},
      [](Graph& graph, const std::vector<Tensor>& in) -> std::vector<Tensor> {
        const Tensor c = graph.constant("c", Shape({3, 70}, f32));
        return {relu(in[0]), slice(c, 0, 1), c};
      },
      4);
  const auto npu = backend(open_npu(small_device), options_for(network));
  const auto inputs = network.sample(2);
  const auto results = run(network, npu, inputs), real = run_reference(network, inputs);
  const bool same = same_bits({results[1], results[2]}, {real[1], real[2]});
  CHECK(same);
  CHECK(npu->last_run().cycles > 0);
}

TEST_CASE("npu view: ranges of channels are those of the value, not of a view of it") {
  // Channels of equal numbers that are others: a transposed matrix, rows of an image, halves.
  const Network network =
      make_network({Shape({8, 8}, f32), Shape({2, 8, 3, 8}, f32), Shape({3, 2, 24}, f32)},
                   [](Graph& graph, const std::vector<Tensor>& in) -> std::vector<Tensor> {
                     const Tensor scale = exp(graph.constant("scale", Shape({8}, f32)) * 14.0);
                     const Tensor w = graph.constant("w", Shape({8, 8}, f32));
                     const Tensor v = graph.constant("v", Shape({48, 24}, f32));
                     return {linear(in[0], w, {}, transpose(in[0] * scale)),
                             linear(in[1] * reshape(scale, {1, 8, 1, 1}), w) * 1.0,
                             linear(slice(in[2], 1, 0, 1), v, {}, reshape(in[2], {3, 1, 48}))};
                   },
                   5, {.observer = {}, .per_channel = true});
  check(network, 0.99);
}

TEST_CASE("npu op: a constant beside ranges of channels keeps its own range") {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    INFO("seed " << seed);
    const Network network =
        make_network({Shape({1, 6}, f32)},
                     [](Graph& graph, const std::vector<Tensor>& in) -> std::vector<Tensor> {
                       // What is cut off below zero is in no range of the result.
                       const Tensor c = graph.constant("c", Shape({2, 6}, f32));
                       return {relu(c), in[0] * 0.5};
                     },
                     seed, {.observer = {}, .per_channel = true});
    const auto inputs = network.sample(1);
    const auto exact = run(network, backend(nullptr, options_for(network, Mode::exact)), inputs);
    CHECK(cosine(exact[0], run_reference(network, inputs)[0]) > 0.99);
  }
}

TEST_CASE("npu op: padding becomes that of the convolutions behind it") {
  const Network network =
      of({Shape({2, 20, 9, 7}, f32)},
         [](Graph& graph, const std::vector<Tensor>& in) -> std::vector<Tensor> {
           const Tensor x = pad(relu(conv(graph, in[0], "a", 40)), {0, 0, 0, 1}, {0, 0, 2, 1});
           const Tensor w = graph.constant("w", Shape({40, 1, 3, 3}, f32));
           return {conv(graph, x, "b", 12, 3, {.stride = {2, 2}}),
                   conv2d(x, w, {}, {.stride = {2, 2}, .padding = {1, 0, 0, 1}, .groups = 40}),
                   avg_pool2d(x, {.kernel = {3, 3}, .count_include_pad = true})};
         });
  check(network, 0.99);
  CHECK(count(listing(network), "sum_pool") == 1);
}

TEST_CASE("npu op: padding that others read is a layer") {
  const Network network = of(
      {Shape({2, 37, 5, 6}, f32)},
      [](Graph&, const std::vector<Tensor>& in) -> std::vector<Tensor> {
        const Tensor x = pad(in[0], {0, 0, 15, 2}, {0, 0, 14, 15});
        return {x,
                max_pool2d(pad(neg(relu(in[0])), {0, 0, 1, 1}, {0, 0, 1, 1}), {.kernel = {2, 2}})};
      });
  check(network, 0.99);
  // Not one value is rounded: the same bits as without padding.
  const auto inputs = network.sample(5);
  const auto padded = run(network, backend(open_npu(large_device), options_for(network)), inputs);
  const HostBuffer inner = padded[0].slice(2, 15, 20).slice(3, 2, 8).contiguous();
  const auto values = inner.values<float>();
  const auto real = inputs[0].values<float>();
  const double step = *std::ranges::max_element(real) / 127;
  for (std::size_t i = 0; i < real.size(); ++i) {
    CHECK(std::abs(double{values[i]} - double{real[i]}) <= step);
  }
}

TEST_CASE("npu op: windows that see nothing but padding, in tiles of a row") {
  check(of({Shape({1, 33, 3, 40}, f32)},
           [](Graph& graph, const std::vector<Tensor>& in) -> std::vector<Tensor> {
             return {conv(graph, pad(in[0], {0, 0, 9, 5}, {0, 0, 14, 15}), "a", 33),
                     max_pool2d(pad(in[0], {0, 0, 13, 15}, {0, 0, 15, 1}), {.kernel = {2, 2}})};
           }),
        0.99);
}

TEST_CASE("npu op: means of large images keep their sums") {
  const Network network =
      of({Shape({2, 40, 33, 29}, f32)},
         [](Graph& graph, const std::vector<Tensor>& in) -> std::vector<Tensor> {
           const Tensor x = relu(conv(graph, in[0], "a", 36));
           return {mean(x, {2, 3}), x * mean(x, {2, 3}, true), avg_pool2d(x, {.kernel = {33, 29}})};
         });
  check(network, 0.99);
  // One rounding of the sum: within a step of the mean, which the many pixels make exact.
  const auto inputs = network.sample(3);
  const auto found = run(network, backend(open_npu(large_device), options_for(network)), inputs);
  const auto fake =
      run(network, backend(nullptr, options_for(network, Mode::fake_quantized)), inputs);
  const double step = network.calibration->find("mean0")->tensor.threshold / 127;
  for (std::size_t i = 0; i < found[0].values<float>().size(); ++i) {
    CHECK(std::abs(found[0].values<float>()[i] - fake[0].values<float>()[i]) < 1.5 * step);
  }
}

TEST_CASE("npu op: what padding and means cannot be says why") {
  const Network network = make_network(
      {Shape({1, 8, 20, 20}, f32), Shape({1, 2, 150, 150}, f32)},
      [](Graph&, const std::vector<Tensor>& in) -> std::vector<Tensor> {
        return {pad(in[0], {0, 0, 1, 1}, {0, 0, 1, 1}, 1.0), pad(in[0], {0, 8, 0, 0}, {0, 0, 0, 0}),
                pad(in[0], {0, 0, 16, 0}, {0, 0, 0, 0}), mean(in[1], {2, 3})};
      },
      2);
  const auto npu = backend(open_npu(large_device), options_for(network));
  Session session(network.program, {.backends = {npu, make_backend("reference")}});
  session.bind(network.weights);
  const auto refusal = [&](const char* value) {
    return session.explain(value, network.inputs)[0].substr(5);
  };
  CHECK(refusal("pad0") == "padding of 1");
  CHECK(refusal("pad1") == "images or channels are added");
  CHECK(refusal("pad2") == "padding 16, at most 15");
  CHECK(refusal("mean0") == "a mean of 150x150 pixels, at most 16384");
}

}  // namespace
}  // namespace tenon::npu
