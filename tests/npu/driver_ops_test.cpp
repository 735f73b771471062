// Every op the NPU takes: the device gives the bits of the exact host mode, and the network the
// values of f32 within what eight bits hold.
#include "npu/driver_checks.hpp"
#include "npu/driver_open.hpp"
#include "npu/driver_rig.hpp"

#include <tenon/backends/reference.hpp>
#include <tenon/ops.hpp>

#include <algorithm>

#include <catch2/catch.hpp>

namespace tenon::npu {
namespace {

using namespace tenon::npu::testing;

TEST_CASE("npu op: conv2d") {
  const auto conv = [](Shape x, Shape w, Conv2d attributes) {
    return of({x}, [=](Graph& graph, const std::vector<Tensor>& in) -> std::vector<Tensor> {
      return {conv2d(in[0], graph.constant("w", w), graph.constant("b", Shape({w[0]}, f32)),
                     attributes)};
    });
  };
  SECTION("3x3, few channels") {
    check(conv(Shape({1, 3, 9, 7}, f32), Shape({5, 3, 3, 3}, f32), {.padding = {1, 1}}));
  }
  SECTION("1x1, blocks") { check(conv(Shape({2, 70, 6, 5}, f32), Shape({40, 70, 1, 1}, f32), {})); }
  SECTION("stride and dilation, uneven padding") {
    check(conv(Shape({1, 36, 12, 13}, f32), Shape({33, 36, 3, 2}, f32),
               {.stride = {2, 3}, .padding = {2, 1, 0, 1}, .dilation = {2, 1}}));
  }
  SECTION("11x11") {
    check(conv(Shape({1, 1, 16, 16}, f32), Shape({8, 1, 11, 11}, f32), {.padding = {5, 5}}));
  }
  SECTION("images of a batch") {
    check(conv(Shape({7, 16, 5, 5}, f32), Shape({48, 16, 3, 3}, f32), {.padding = {1, 1}}));
  }
}

TEST_CASE("npu op: depthwise conv2d") {
  check(of({Shape({2, 40, 9, 8}, f32)},
           [](Graph& graph, const std::vector<Tensor>& in) -> std::vector<Tensor> {
             return {conv2d(in[0], graph.constant("w", Shape({40, 1, 3, 3}, f32)),
                            graph.constant("b", Shape({40}, f32)),
                            {.stride = {2, 2}, .padding = {1, 1}, .groups = 40})};
           }));
}

TEST_CASE("npu op: linear, and an image flattened to a row") {
  check(of({Shape({9, 70}, f32)},
           [](Graph& graph, const std::vector<Tensor>& in) -> std::vector<Tensor> {
             return {linear(in[0], graph.constant("w", Shape({45, 70}, f32)),
                            graph.constant("b", Shape({45}, f32)))};
           }));
  check(of({Shape({3, 6, 8, 8}, f32)},
           [](Graph& graph, const std::vector<Tensor>& in) -> std::vector<Tensor> {
             const Tensor y = max_pool2d(in[0], {.kernel = {2, 2}});
             return {linear(flatten(y, 1, 3), graph.constant("w", Shape({10, 96}, f32)))};
           }));
  check(of({Shape({2, 5, 40}, f32), Shape({2, 5, 33}, f32)},
           [](Graph& graph, const std::vector<Tensor>& in) -> std::vector<Tensor> {
             return {linear(in[0], graph.constant("w", Shape({33, 40}, f32)),
                            graph.constant("b", Shape({33}, f32)), in[1])};
           }));
}

TEST_CASE("npu op: a sum of more products than an accumulator takes at once") {
  constexpr std::int64_t inputs = 140'000;
  Network network = make_network(
      {Shape({2, inputs}, f32)},
      [](Graph& graph, const std::vector<Tensor>& in) -> std::vector<Tensor> {
        return {linear(in[0], graph.constant("w", Shape({3, inputs}, f32)))};
      },
      5);
  // Every weight at its limit and every input at 1: in 8 bits each, the sum would leave 32 bits.
  HostBuffer weights = HostBuffer::zeros(Shape({3, inputs}, f32));
  HostBuffer ones = HostBuffer::zeros(Shape({2, inputs}, f32));
  std::ranges::fill(weights.mutable_values<float>(), 0.5F);
  std::ranges::fill(ones.mutable_values<float>(), 1.0F);
  network.weights = std::make_shared<const WeightSet>(
      std::map<std::string, Buffer>{{"w", weights.to_device(cpu_device())}});
  const std::vector<std::vector<HostBuffer>> samples{{ones}};
  network.calibration = std::make_shared<const CalibrationTable>(
      calibrate(network.program, *network.weights, samples));
  const auto exact = run(network, backend(nullptr, options_for(network, Mode::exact)), {ones});
  const auto found = run(network, backend(open_npu(large_device), options_for(network)), {ones});
  CHECK(same_bits(found, exact));
  for (const float value : found[0].values<float>()) {
    CHECK(value == Approx(0.5 * inputs).epsilon(0.02));
  }
}

TEST_CASE("npu op: a device of eight-bit multipliers") {
  const Network network =
      of({Shape({1, 20, 9, 9}, f32)},
         [](Graph& graph, const std::vector<Tensor>& in) -> std::vector<Tensor> {
           const Tensor x = relu(conv2d(in[0], graph.constant("a", Shape({40, 20, 3, 3}, f32))));
           return {conv2d(x, graph.constant("b", Shape({8, 40, 1, 1}, f32)),
                          graph.constant("c", Shape({8}, f32)))};
         });
  const auto inputs = network.sample(3);
  Options options = options_for(network, Mode::exact);
  options.profile = Profile::m8;
  const auto exact = run(network, backend(nullptr, options), inputs);
  const auto wide = run(network, backend(nullptr, options_for(network, Mode::exact)), inputs);
  const auto found = run(
      network, backend(open_npu("npu://sim?mac=16x16&profile=m8&strict=1"), options_for(network)),
      inputs);
  CHECK(same_bits(found, exact));
  CHECK_FALSE(same_bits(exact, wide));
  CHECK(cosine(exact[0], run_reference(network, inputs)[0]) > 0.99);
}

TEST_CASE("npu op: refusals name the clause that fails") {
  const Network network = make_network(
      {Shape({1, 64, 20, 20}, f32)},
      [](Graph& graph, const std::vector<Tensor>& in) -> std::vector<Tensor> {
        const auto conv = [&](const char* name, std::int64_t k, const Conv2d& attributes) {
          return conv2d(in[0], graph.constant(name, Shape({32, 64, k, k}, f32)), {}, attributes);
        };
        return {conv("a", 13, {}),
                conv("b", 3, {.stride = {5, 5}}),
                conv("c", 3, {.dilation = {5, 5}}),
                conv("d", 11, {}),
                max_pool2d(in[0], {.kernel = {17, 17}}),
                softmax(in[0], 1),
                concat({slice(in[0], 1, 0, 20), in[0]}, 1)};
      },
      4);
  const auto npu = backend(open_npu(small_device), options_for(network));
  Session session(network.program, {.backends = {npu, make_backend("reference")}});
  session.bind(network.weights);
  const auto refusal = [&](const char* value) {
    const std::string line = session.explain(value, network.inputs)[0];
    INFO(line);
    CHECK(line.starts_with("npu: "));
    return line.substr(5);
  };
  CHECK(refusal("conv2d0") == "kernel 13x13, at most 11x11");
  CHECK(refusal("conv2d1") == "stride 5x5, at most 4x4");
  CHECK(refusal("conv2d2") == "dilation 5x5, at most 4x4");
  CHECK(refusal("conv2d3").find("bytes on chip, the device has 32768") != std::string::npos);
  CHECK(refusal("max_pool2d0") == "window 17x17, at most 15x15");
  CHECK(refusal("softmax0") == "softmax has no NPU layer");
  CHECK(refusal("concat0") == "20 channels in part 0, a multiple of 32 is needed");
  // They run elsewhere, and the whole is right.
  const auto inputs = network.sample(8);
  const auto real = run_reference(network, inputs);
  const auto mixed = run(network, npu, inputs);
  for (std::size_t i = 0; i < real.size(); ++i) CHECK(cosine(mixed[i], real[i]) > 0.999);
}

TEST_CASE("npu op: per-channel ranges of activations") {
  const Network network =
      of({Shape({2, 24, 8, 8}, f32)},
         [](Graph& graph, const std::vector<Tensor>& in) -> std::vector<Tensor> {
           // Channels of very different size, through everything that keeps them apart.
           const Tensor x = in[0] * graph.constant("scale", Shape({1, 24, 1, 1}, f32));
           const Tensor y = conv2d(x, graph.constant("dw", Shape({24, 1, 3, 3}, f32)), {},
                                   {.padding = {1, 1}, .groups = 24});
           const Tensor z = max_pool2d(relu(y + x), {.kernel = {2, 2}});
           return {conv2d(z, graph.constant("w", Shape({20, 24, 1, 1}, f32))), z,
                   linear(flatten(z, 1, 3), graph.constant("l", Shape({7, 24 * 16}, f32)))};
         },
         {.observer = {}, .per_channel = true});
  check(network, 0.98);
}

TEST_CASE("npu op: matmul of two computed operands") {
  check(of({Shape({2, 9, 40}, f32), Shape({2, 40, 35}, f32)},
           [](Graph&, const std::vector<Tensor>& in) -> std::vector<Tensor> {
             return {matmul(in[0], in[1])};
           }));
}

TEST_CASE("npu op: pools and means") {
  check(of({Shape({2, 37, 9, 8}, f32)},
           [](Graph&, const std::vector<Tensor>& in) -> std::vector<Tensor> {
             return {max_pool2d(in[0], {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}}),
                     avg_pool2d(in[0], {.kernel = {2, 3}, .stride = {1, 2}}),
                     avg_pool2d(in[0], {.kernel = {3, 3},
                                        .stride = {2, 2},
                                        .padding = {1, 1},
                                        .count_include_pad = true}),
                     mean(in[0], {2, 3}), global_avg_pool2d(in[0])};
           }),
        0.99);
}

TEST_CASE("npu op: sums, products, maxima") {
  const Shape shape({2, 33, 5, 6}, f32);
  check(of({shape, shape},
           [](Graph&, const std::vector<Tensor>& in) -> std::vector<Tensor> {
             return {in[0] + in[1], in[0] - in[1], in[0] * in[1], maximum(in[0], in[1])};
           }),
        0.99);
}

TEST_CASE("npu op: operands spread over pixels, and constants") {
  check(of({Shape({2, 33, 5, 6}, f32), Shape({2, 33, 1, 1}, f32)},
           [](Graph& graph, const std::vector<Tensor>& in) -> std::vector<Tensor> {
             const Tensor c = graph.constant("c", Shape({1, 33, 1, 1}, f32));
             const Tensor all = graph.constant("all", Shape({33, 5, 6}, f32));
             return {in[0] * in[1], in[0] + c, in[0] - all, c - in[0]};
           }),
        0.99);
}

TEST_CASE("npu op: numbers beside what is computed, and divisors") {
  check(of({Shape({3, 40}, f32)},
           [](Graph& graph, const std::vector<Tensor>& in) -> std::vector<Tensor> {
             const Graph::Recording recording(graph);
             const Tensor y = linear(in[0], graph.constant("w", Shape({33, 40}, f32)));
             return {relu(0.25 * y + 0.5), 1 - sigmoid(y), maximum(y, scalar_like(y, -0.1)),
                     y / 3.0 - full(0.125, Shape({1}, f32))};
           }));
  check(of({Shape({2, 5, 4, 6}, f32)},
           [](Graph& graph, const std::vector<Tensor>& in) -> std::vector<Tensor> {
             // A constant divisor for each channel, far from 0.
             const Tensor x = conv2d(in[0], graph.constant("w", Shape({5, 5, 1, 1}, f32)));
             return {x / exp(graph.constant("s", Shape({5, 1, 1}, f32))) * 2.0};
           }));
}

TEST_CASE("npu op: activations alone and behind a convolution") {
  check(of({Shape({1, 20, 6, 6}, f32)},
           [](Graph& graph, const std::vector<Tensor>& in) -> std::vector<Tensor> {
             const auto conv = [&](const char* name) {
               return conv2d(in[0], graph.constant(name, Shape({20, 20, 1, 1}, f32)));
             };
             return {relu(in[0]),
                     relu(conv("a")),
                     relu6(conv("b") * conv("b2")),
                     clamp(conv("c"), -0.25, 0.5),
                     leaky_relu(conv("d"), 0.125),
                     leaky_relu(in[0], 0.3),
                     sigmoid(conv("e")),
                     silu(conv("f")),
                     gelu(in[0]),
                     tanh(conv("g")),
                     hardswish(conv("h")),
                     neg(in[0])};
           }),
        0.98);
}

TEST_CASE("npu op: glu, concat, residuals") {
  check(of({Shape({6, 48}, f32)},
           [](Graph& graph, const std::vector<Tensor>& in) -> std::vector<Tensor> {
             const Tensor gate = linear(in[0], graph.constant("gate", Shape({64, 48}, f32)));
             const Tensor up = linear(in[0], graph.constant("up", Shape({64, 48}, f32)));
             return {glu(gate, up, "gelu")};
           }),
        0.98);
  check(of({Shape({1, 32, 6, 6}, f32)},
           [](Graph& graph, const std::vector<Tensor>& in) -> std::vector<Tensor> {
             const Tensor a = relu(conv2d(in[0], graph.constant("a", Shape({64, 32, 1, 1}, f32))));
             const Tensor b = conv2d(in[0], graph.constant("b", Shape({20, 32, 1, 1}, f32)));
             const Tensor y = concat({a, b}, 1);
             return {conv2d(y, graph.constant("c", Shape({8, 84, 3, 3}, f32)), {},
                            {.padding = {1, 1}})};
           }),
        0.99);
  check(of({Shape({2, 32, 8, 8}, f32)},
           [](Graph& graph, const std::vector<Tensor>& in) -> std::vector<Tensor> {
             const auto conv = [&](const Tensor& x, const char* name) {
               return conv2d(x, graph.constant(name, Shape({32, 32, 3, 3}, f32)), {},
                             {.padding = {1, 1}});
             };
             const Tensor x = relu(conv(in[0], "a"));
             const Tensor y = conv(relu(conv(x, "b")), "c");
             return {relu(x + y)};
           }),
        0.98);
}

TEST_CASE("npu op: views that no layout on chip has go through memory") {
  check(of({Shape({1, 8, 6, 4}, f32)},
           [](Graph& graph, const std::vector<Tensor>& in) -> std::vector<Tensor> {
             const Tensor y = relu(conv2d(in[0], graph.constant("a", Shape({8, 8, 1, 1}, f32))));
             const Tensor rows = reshape(permute(y, {0, 2, 3, 1}), {24, 8});
             const Tensor part = slice(y, 1, 2, 7);
             return {linear(rows, graph.constant("b", Shape({12, 8}, f32))),
                     conv2d(part, graph.constant("c", Shape({6, 5, 1, 1}, f32)))};
           }),
        0.99);
}

}  // namespace
}  // namespace tenon::npu
