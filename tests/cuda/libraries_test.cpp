// Products and convolutions that NVIDIA's libraries compute; in the emulation the reference stands in.
#include "cases.hpp"
#include "emulated.hpp"
#include "run_twice.hpp"
#include "support/expect_error.hpp"
#include "support/op_testing.hpp"

#include <tenon/graph.hpp>
#include <tenon/ops.hpp>
#include <tenon/session.hpp>

#include <algorithm>
#include <map>
#include <memory>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/ranges.h>

namespace tenon::testing {
namespace {

/// A program whose weights and inputs are random.
class Network {
 public:
  Graph graph;

  Tensor input(const Shape& shape) {
    inputs_.push_back(random_.uniform(shape));
    return graph.input("", shape);
  }
  Tensor weight(const Shape& shape) {
    const std::string name = "w" + std::to_string(weights_.size());
    weights_[name] = random_.uniform(shape, -0.5, 0.5).to_device(cpu_device());
    return graph.constant(name, shape);
  }
  RunOutcome run(const std::vector<Tensor>& outputs,
                 const std::vector<BackendPtr>& backends) const {
    Session session(graph.program(outputs), {.backends = backends, .forbid_fallback = true});
    session.bind(std::make_shared<const WeightSet>(weights_));
    return run_twice(session, inputs_);
  }
  /// On a device and on the reference; returns the device's notes.
  std::vector<std::string> check(const std::vector<Tensor>& outputs, const std::string& keys,
                                 bool is_exact, double allowed) const {
    const RunOutcome got = run(outputs, device_backends(test_device(keys), {.exact = is_exact}));
    const RunOutcome wanted = run(outputs, {make_reference_backend({})});
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      INFO("result " << i);
      expect_close(got.results[i], wanted.results[i],
                   allowed * std::max(1.0, largest(wanted.results[i])), allowed);
    }
    if (has_gpu()) WARN(fmt::format("{}", fmt::join(got.notes, "\n")));
    return got.notes;
  }

 private:
  Random random_;
  std::vector<HostBuffer> inputs_;
  std::map<std::string, Buffer> weights_;
};

bool says(const std::vector<std::string>& notes, const std::string& what) {
  return std::ranges::any_of(
      notes, [&](const std::string& note) { return note.find(what) != std::string::npos; });
}

struct LinearTypes {
  DType x, w;
};

TEST_CASE("cuda libraries: linear layers", "[gpu][libraries]") {
  for (const auto& [x_type, w_type] :
       {LinearTypes{f32, f32}, {f16, f16}, {bf16, bf16}, {f32, bf16}, {f32, f16}}) {
    CAPTURE(name(x_type), name(w_type));
    Network network;
    const Graph::Recording recording(network.graph);
    const Tensor w = network.weight(Shape({24, 40}, w_type));
    const Tensor x = network.input(Shape({3, 7, 40}, x_type));
    const Tensor turned = network.input(Shape({40, 17}, x_type));
    const Tensor bias = network.weight(Shape({24}, x_type));
    const std::vector<Tensor> results{linear(x, w), linear(x, w, bias),
                                      linear(x, w, bias, linear(x, w)),
                                      linear(transpose(turned), w)};
    const double allowed = x_type == f32 ? 1e-5 : 2e-2;
    const bool is_mixed = x_type != w_type;
    const auto fast = network.check(results, "", false, is_mixed ? 2e-2 : allowed);
    CHECK(says(fast, "5 calls of ") == (!is_mixed || w_type == bf16));
    CHECK(says(network.check(results, "", true, allowed), "5 calls of ") == !is_mixed);
    network.check(results, "?libraries=off", true, allowed);
    const auto off = network.check(results, "?libraries=off", false, is_mixed ? 2e-2 : allowed);
    CHECK(says(off, "libraries=off"));
    CHECK(!says(off, "calls of "));
  }
}

TEST_CASE("cuda libraries: layers that read the same rows share their copy as bf16",
          "[gpu][libraries]") {
  Network network;
  const Graph::Recording recording(network.graph);
  const Tensor a = network.input(Shape({20, 40}, f32)), x = a + a;
  std::vector<Tensor> results;
  for (int i = 0; i < 3; ++i) results.push_back(linear(x, network.weight(Shape({24, 40}, bf16))));
  const auto notes = network.check(results, "?fusion=off", false, 2e-2);
  CHECK(says(notes, "3 calls of "));
  CHECK(says(notes, "5 launches"));
}

TEST_CASE("cuda libraries: a type that needs another, and few rows, are left to kernels",
          "[gpu][libraries]") {
  Network network;
  const Graph::Recording recording(network.graph);
  const Tensor w = network.weight(Shape({24, 40}, f32));
  const std::vector<Tensor> results{linear(network.input(Shape({8, 40}, f32)), w),
                                    linear(network.input(Shape({20, 40}, bf16)), w)};
  CHECK(!says(network.check(results, "", false, 2e-2), "calls of "));
}

TEST_CASE("cuda libraries: matrix products", "[gpu][libraries]") {
  for (const DType dtype : {f32, f16, bf16}) {
    CAPTURE(name(dtype));
    Network network;
    const Graph::Recording recording(network.graph);
    const Tensor a = network.input(Shape({9, 16}, dtype)),
                 b = network.input(Shape({16, 24}, dtype));
    const Tensor of_batch = network.input(Shape({3, 5, 16}, dtype));
    const Tensor to_batch = network.input(Shape({3, 16, 8}, dtype));
    const Tensor turned = network.input(Shape({24, 16}, dtype));
    const Tensor one = network.input(Shape({1, 16, 8}, dtype));
    const std::vector<Tensor> results{matmul(a, b),
                                      matmul(a, transpose(turned)),
                                      matmul(of_batch, b),
                                      matmul(of_batch, to_batch),
                                      matmul(transpose(b), transpose(a)),
                                      matmul(of_batch, one)};  // the last one by a kernel
    const auto notes = network.check(results, "", true, dtype == f32 ? 1e-5 : 2e-2);
    CHECK(says(notes, "5 calls of "));
  }
}

TEST_CASE("cuda libraries: convolutions", "[gpu][libraries]") {
  for (const DType dtype : {f32, f16}) {
    CAPTURE(name(dtype));
    Network network;
    const Graph::Recording recording(network.graph);
    const Tensor x = network.input(Shape({2, 8, 11, 9}, dtype));
    const Tensor w = network.weight(Shape({16, 8, 3, 3}, dtype));
    const Tensor grouped = network.weight(Shape({16, 2, 3, 1}, dtype));
    const Tensor bias = network.weight(Shape({16}, dtype));
    Conv2d even{.stride = {2, 2}, .padding = {1, 1}};
    const std::vector<Tensor> results{
        conv2d(x, w), conv2d(x, w, bias, even),
        conv2d(x, w, {}, {.padding = {1, 2, 0, 1}, .dilation = {2, 1}}),
        conv2d(x, grouped, bias, {.groups = 4})};
    const auto notes = network.check(results, "", true, dtype == f32 ? 1e-5 : 2e-2);
    CHECK(says(notes, "calls of "));
  }
}

TEST_CASE("cuda libraries: activations are part of a convolution's call", "[gpu][libraries]") {
  for (const DType dtype : {f32, f16}) {
    CAPTURE(name(dtype));
    Network network;
    const Graph::Recording recording(network.graph);
    const Tensor x = network.input(Shape({2, 8, 11, 9}, dtype));
    const Tensor w = network.weight(Shape({8, 8, 3, 3}, dtype));
    const Tensor bias = network.weight(Shape({8}, dtype));
    const auto layer = [&](const Tensor& in, bool has_bias) {
      return conv2d(in, w, has_bias ? bias : Tensor(), {.padding = {1, 1}});
    };
    Tensor y = relu(layer(x, true));
    for (const auto& activation : {sigmoid, tanh, silu, gelu, gelu_tanh}) {
      y = activation(layer(y, dtype == f32), std::source_location::current());
    }
    // One that others read, and one whose result takes the place of its input.
    const Tensor read = layer(x, false), residual = layer(y, true) + x;
    const std::vector<Tensor> results{y, relu(read) + sigmoid(read), relu(residual)};
    const double allowed = dtype == f32 ? 1e-5 : 2e-2;
    const auto fast = network.check(results, "", false, allowed);
    const auto exact = network.check(results, "", true, allowed);
    if (!has_gpu()) {  // cuDNN has engines for some
      CHECK(says(fast, "6 of the convolutions with their activation"));
      CHECK(says(exact, "1 of the convolutions with their"));
    }
    CHECK(!says(network.check(results, "?libraries=off", false, allowed), "with their activation"));
  }
}

TEST_CASE("cuda libraries: an activation in a call keeps NaNs", "[gpu][libraries]") {
  Network network;
  const Graph::Recording recording(network.graph);
  const Tensor x = network.input(Shape({1, 4, 6, 5}, f32));
  const Tensor w = network.weight(Shape({4, 4, 3, 3}, f32));
  const Tensor odd = sqrt(x - 0.5);  // NaNs
  Tensor y = x;
  for (int i = 0; i < 4; ++i) y = relu(conv2d(y, w, {}, {.padding = {1, 1}}));
  const auto notes = network.check({relu(conv2d(odd, w)), y}, "", true, 1e-5);
  if (!has_gpu()) CHECK(says(notes, "5 of the convolutions with their activation"));
}

TEST_CASE("cuda libraries: an array that is not aligned is refused by name") {
  Network network;
  const Graph::Recording recording(network.graph);
  const DevicePtr device = emulated_device("");
  const Tensor y = matmul(network.graph.input("a", Shape({4, 4}, f32)),
                          network.graph.input("b", Shape({4, 4}, f32)));
  Session session(network.graph.program({&y, 1}), {.backends = device_backends(device)});
  session.bind(std::make_shared<const WeightSet>(std::map<std::string, Buffer>()));
  MemRegion& region = device->default_mem_region();
  const MemChunk chunk = region.malloc(256);
  const Buffer odd(Shape({4, 4}, f32), chunk, 4), even(Shape({4, 4}, f32), chunk, 128);
  session.forward({even, even});
  const std::string what = expect_error(Errc::bad_argument, [&] { session.forward({even, odd}); });
  CHECK(what.find("input 1 at ") != std::string::npos);
  CHECK(what.find("multiple of 16") != std::string::npos);
  session.forward({even, even});
}

TEST_CASE("cuda libraries: weights that are not aligned are copied") {
  Network network;
  const Graph::Recording recording(network.graph);
  const DevicePtr device = emulated_device("");
  const Shape shape({4, 4}, f32);
  const Tensor y = matmul(network.graph.input("a", shape), network.graph.constant("b", shape));
  Session session(network.graph.program({&y, 1}), {.backends = device_backends(device)});
  const MemChunk chunk = device->default_mem_region().malloc(256);
  const HostBuffer b = HostBuffer::of<float>(shape, std::vector<float>(16, 3));
  chunk.write(b.bytes(), 4, 64);
  const Buffer odd(shape, chunk, 4);
  session.bind(std::make_shared<const WeightSet>(std::map<std::string, Buffer>{{"b", odd}}));
  const HostBuffer product = session.forward({b.to_device(device)}).at(0).to_host();
  CHECK(product.values<float>()[15] == 36);
}

}  // namespace
}  // namespace tenon::testing
