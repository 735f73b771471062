// Quantised networks on the CPU's integer kernels: single layers against ONNX Runtime, and random
// networks against the reference backend. Layers written with integer products give the same bits;
// layers written with dequantize_linear may differ by one code where a sum lies between two.
#include "support/op_cases.hpp"
#include "support/op_testing.hpp"
#include "support/program_text.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/graph.hpp>
#include <tenon/ops.hpp>
#include <tenon/optimize.hpp>
#include <tenon/session.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tenon::testing {
namespace {

using Weights = std::map<std::string, Buffer>;

/// A graph in the making, with values for its constants.
struct Network {
  Graph graph;
  Weights weights;

  Tensor constant(const HostBuffer& value) {
    const std::string name = fmt::format("c{}", weights.size());
    weights[name] = value.contiguous().to_device(cpu_device());
    return graph.constant(name, value.shape());
  }
  Tensor constant(float value) { return constant(HostBuffer::of<float>(Shape({}, f32), {value})); }
};

struct Ran {
  std::vector<HostBuffer> results;
  std::vector<std::string> notes;
};

Ran run(const Program& program, const Weights& weights, const std::vector<HostBuffer>& inputs,
        const BackendPtr& backend) {
  Session session(program, {.backends = {backend}});
  session.bind(std::make_shared<const WeightSet>(weights));
  std::vector<Buffer> buffers;
  std::vector<Shape> shapes;
  for (const HostBuffer& input : inputs) {
    buffers.push_back(input.contiguous().to_device(cpu_device()));
    shapes.push_back(input.shape());
  }
  Ran ran;
  for (const auto& part : session.report(shapes).parts) {
    ran.notes.insert(ran.notes.end(), part.notes.begin(), part.notes.end());
  }
  for (const Buffer& result : session.forward(std::move(buffers))) {
    ran.results.push_back(result.to_host());
  }
  return ran;
}

BackendPtr reference() {
  register_reference_backend();
  return make_backend("reference");
}
BackendPtr cpu_backend(int threads) {
  register_cpu_backend();
  return make_backend("cpu", {.threads = threads});
}

void expect_same(const std::vector<HostBuffer>& got, const std::vector<HostBuffer>& want) {
  REQUIRE(got.size() == want.size());
  for (std::size_t i = 0; i < got.size(); ++i) expect_close(got[i], want[i], 0, 0);
}

// Single layers.

/// The case's layer; its inputs: see python/tests/qlinear_oracle.py.
Tensor layer_of(const OpCase& op_case, Network& network, const Tensor& x) {
  std::vector<Tensor> constants;
  for (std::size_t i = 1; i < op_case.inputs.size(); ++i) {
    constants.push_back(network.constant(op_case.inputs[i]));
  }
  const QuantizedTensor image{x, constants[3], constants[1]};
  const QuantizedTensor w{constants[0], constants[4], constants[2]};
  const ScaleAndZero y{constants[5], constants[6]};
  const auto* conv = op_case.op.as<Conv2dInteger>();
  if (conv == nullptr) return qlinear_matmul(image, w, y);
  return qlinear_conv2d(image, w, y, constants.size() > 7 ? constants[7] : Tensor(), *conv);
}

void check_layers(const std::filesystem::path& file) {
  for (const OpCase& op_case : read_op_cases(file)) {
    Network network;
    const Graph::Recording recording(network.graph);
    const Tensor x = network.graph.input("x", op_case.inputs[0].shape());
    const Tensor y = layer_of(op_case, network, x);
    const Program program = network.graph.program({&y, 1});
    for (const BackendPtr& backend : {reference(), cpu_backend(1), cpu_backend(3)}) {
      INFO(file.filename().string() << ", " << op_case.name << ", " << backend->name());
      const Ran ran = run(program, network.weights, {op_case.inputs[0]}, backend);
      expect_same(ran.results, {op_case.output});
    }
  }
}

TEST_CASE("quantised layers: the bits of ONNX Runtime, committed cases") {
  check_layers("tests/int8/data/qlinear.safetensors");
}

TEST_CASE("quantised layers: the bits of ONNX Runtime, fresh cases", "[oracle]") {
  const char* python = std::getenv("TENON_ORACLE_PYTHON");
  if (python == nullptr || *python == '\0') {
    WARN("SKIPPED: TENON_ORACLE_PYTHON names no Python with onnxruntime");
    return;
  }
  const char* wanted = std::getenv("TENON_TEST_SEED");
  const std::string seed =
      wanted != nullptr ? wanted : std::to_string(std::random_device{}() % 1000000);
  std::cout << "quantised layers: TENON_TEST_SEED=" << seed << '\n';
  const auto file = std::filesystem::temp_directory_path() / fmt::format("qlinear_{}.st", seed);
  const std::string command =
      fmt::format("{} python/tests/qlinear_oracle.py {} --seed {}", python, file.string(), seed);
  REQUIRE(std::system(command.c_str()) == 0);
  check_layers(file);
  std::filesystem::remove(file);
}

// Networks.

/// Numbers of one kind for a random layer.
class Choices {
 public:
  explicit Choices(Random& random) : random_(random) {}

  DType codes() { return random_.integer(0, 1) == 0 ? i8 : u8; }
  HostBuffer code_array(const Shape& shape) {
    return shape.dtype() == i8 ? random_.uniform(shape, -128, 128) : random_.uniform(shape, 0, 256);
  }
  HostBuffer zero_point(DType dtype) {
    return dtype == i8 ? random_.uniform(Shape({}, i8), -20, 20)
                       : random_.uniform(Shape({}, u8), 100, 150);
  }
  std::int64_t number(std::int64_t low, std::int64_t high) { return random_.integer(low, high); }
  HostBuffer uniform(const Shape& shape, double low, double high) {
    return random_.uniform(shape, low, high);
  }

 private:
  Random& random_;
};

/// Codes in the making, as layers pass them on.
struct Layer {
  Tensor codes;
  Tensor scale, zero_point;
};

struct Window {
  Conv2dInteger options;
  Shape filter;
};

/// A random window on an image of `shape`; with as many groups as channels: depthwise.
Window random_window(Choices& choices, const Shape& shape, DType dtype) {
  const std::int64_t channels = shape[1];
  const bool is_depthwise = choices.number(0, 3) == 0;
  const std::int64_t taps = shape[2] > 2 && shape[3] > 2 && choices.number(0, 2) > 0 ? 3 : 1;
  Window window;
  window.options.stride = {choices.number(1, 2), choices.number(1, 2)};
  if (taps == 3) window.options.padding = {choices.number(0, 1), 1};
  if (is_depthwise) {
    window.options.groups = channels;
  } else if (channels % 2 == 0 && choices.number(0, 1) == 0) {
    window.options.groups = 2;
  }
  const std::int64_t groups = window.options.groups;
  const std::int64_t outputs = is_depthwise ? channels : groups * choices.number(1, 40 / groups);
  window.filter = Shape({outputs, channels / groups, taps, taps}, dtype);
  return window;
}

/// About the spread of a sum of `products` codes.
float scale_for(std::int64_t products) {
  return static_cast<float>(std::sqrt(static_cast<double>(products)) * 40.0);
}

/// Convolutions of codes with requantised results, then a linear layer.
std::vector<Tensor> record_integers(Network& network, Choices& choices, const Tensor& x) {
  Layer at{x, network.constant(1.0F), network.constant(choices.zero_point(x.dtype()))};
  std::vector<Tensor> results;
  for (std::int64_t i = choices.number(1, 4); i > 0; --i) {
    const Window window = random_window(choices, at.codes.shape(), choices.codes());
    const Shape& filter = window.filter;
    const std::int64_t outputs = filter[0];
    const bool per_output = choices.number(0, 1) == 0;
    const Shape scales = per_output ? Shape({outputs}, f32) : Shape({}, f32);
    QuantizedTensor w{network.constant(choices.code_array(filter)),
                      network.constant(choices.uniform(scales, 0.5, 1.5))};
    if (filter.dtype() == u8) w.zero_point = network.constant(choices.zero_point(u8));
    Tensor bias;
    if (choices.number(0, 1) == 0) {
      bias = network.constant(choices.uniform(Shape({outputs}, i32), -3000, 3000));
    }
    const DType to = choices.codes();
    const ScaleAndZero y{network.constant(scale_for(filter[1] * filter[2] * filter[3])),
                         network.constant(choices.zero_point(to))};
    const QuantizedTensor image{at.codes, at.scale, at.zero_point};
    const Tensor codes = qlinear_conv2d(image, w, y, bias, window.options);
    // Some are read twice, and so stay as they are.
    if (choices.number(0, 3) == 0) results.push_back(codes);
    at = {codes, network.constant(1.0F), y.zero_point};
  }
  const Tensor rows = reshape(at.codes, {at.codes.shape()[0], -1});
  const std::int64_t columns = rows.shape()[1], outputs = choices.number(1, 50);
  const QuantizedTensor w{network.constant(choices.code_array(Shape({outputs, columns}, i8))),
                          network.constant(choices.uniform(Shape({outputs}, f32), 0.5, 1.5))};
  const ScaleAndZero y{network.constant(scale_for(columns)),
                       network.constant(choices.zero_point(u8))};
  results.push_back(qlinear_linear({rows, at.scale, at.zero_point}, w, y));
  // A product of two arrays that are computed, and sums as they are.
  const Tensor turned = permute(results.back(), {1, 0});
  results.push_back(matmul_integer(turned, results.back(), {}, y.zero_point));
  return results;
}

void expect_reference_bits(const Network& network, const Program& program,
                           const std::vector<HostBuffer>& inputs,
                           std::initializer_list<int> thread_counts) {
  const Ran want = run(program, network.weights, inputs, reference());
  for (const int threads : thread_counts) {
    INFO(threads << " threads\n" << print(program));
    const Ran got = run(program, network.weights, inputs, cpu_backend(threads));
    INFO(fmt::format("{}", fmt::join(got.notes, "\n")));
    expect_same(got.results, want.results);
  }
}

TEST_CASE("quantised networks: the reference's bits, with any number of threads") {
  Random random;
  Choices choices(random);
  for (int round = 0; round < 40; ++round) {
    Network network;
    const Graph::Recording recording(network.graph);
    const Shape shape(
        {choices.number(1, 2), choices.number(1, 20), choices.number(1, 14), choices.number(1, 14)},
        choices.codes());
    const Tensor x = network.graph.input("x", shape);
    const std::vector<Tensor> results = record_integers(network, choices, x);
    INFO("round " << round);
    expect_reference_bits(network, network.graph.program(results), {choices.code_array(shape)},
                          {1, 3});
  }
}

/// Residuals and a pool in f32 between integer products, as quantised networks from elsewhere have
/// them. Where scales are one number, images of codes keep their channels last all the way.
std::vector<Tensor> record_residual(Network& network, Choices& choices, const Tensor& x) {
  const std::int64_t channels = x.shape()[1];
  const bool per_channel = choices.number(0, 2) == 0;
  const auto numbers = [&](double low, double high) {
    return network.constant(
        choices.uniform(per_channel ? Shape({channels}, f32) : Shape({}, f32), low, high));
  };
  const auto convolved = [&](const Tensor& codes) {
    const Tensor w = network.constant(choices.code_array(Shape({channels, channels, 3, 3}, i8)));
    const Tensor sums = conv2d_integer(
        codes, w, network.constant(choices.zero_point(codes.dtype())), {}, {.padding = {1, 1}});
    const Tensor scaled = dequantize_linear(sums, numbers(0.5, 1.5));
    return quantize_linear(scaled, network.constant(scale_for(channels * 9)),
                           network.constant(choices.zero_point(choices.codes())));
  };
  const auto values = [&](const Tensor& codes) {
    return dequantize_linear(codes, numbers(0.02, 0.08));
  };
  const auto codes = [&](const Tensor& f) {
    return quantize_linear(f, numbers(0.05, 0.2), {}, {.dtype = u8});
  };
  const Tensor a = convolved(x), b = convolved(a);
  const Tensor sum = codes(relu(values(a) + values(b)));
  const Tensor pooled =
      codes(max_pool2d(values(sum), {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}}));
  std::vector<Tensor> results{convolved(pooled)};
  if (choices.number(0, 2) == 0) results.push_back(sum);
  return results;
}

TEST_CASE("quantised networks: residuals and pools between integer products") {
  Random random;
  Choices choices(random);
  for (int round = 0; round < 25; ++round) {
    Network network;
    const Graph::Recording recording(network.graph);
    const Shape shape(
        {choices.number(1, 2), choices.number(1, 40), choices.number(2, 19), choices.number(2, 19)},
        choices.codes());
    const Tensor x = network.graph.input("x", shape);
    const Program program = network.graph.program(record_residual(network, choices, x));
    INFO("round " << round);
    expect_reference_bits(network, program, {choices.code_array(shape)}, {1, 2, 7});
  }
}

/// Layers in the form of ONNX's QDQ: f32 between dequantize_linear and quantize_linear.
std::vector<Tensor> record_qdq(Network& network, Choices& choices, const Tensor& x) {
  Layer at{x, network.constant(0.05F), network.constant(choices.zero_point(x.dtype()))};
  const auto dequantized = [](const Layer& layer) {
    return dequantize_linear(layer.codes, layer.scale, layer.zero_point);
  };
  for (std::int64_t i = choices.number(1, 3); i > 0; --i) {
    const Window window = random_window(choices, at.codes.shape(), i8);
    const std::int64_t outputs = window.filter[0];
    const Tensor w = dequantize_linear(
        network.constant(choices.code_array(window.filter)),
        network.constant(choices.uniform(Shape({outputs}, f32), 0.005, 0.015)), {}, 0);
    Tensor bias;
    if (choices.number(0, 1) == 0) {
      bias = network.constant(choices.uniform(Shape({outputs}, f32), -1, 1));
    }
    Tensor y = conv2d(dequantized(at), w, bias,
                      {.stride = window.options.stride,
                       .padding = window.options.padding,
                       .dilation = {},
                       .groups = window.options.groups});
    if (choices.number(0, 1) == 0) y = relu(y);
    const DType to = choices.codes();
    const Shape& filter = window.filter;
    const Tensor scale = network.constant(0.0005F * scale_for(filter[1] * filter[2] * filter[3]));
    const Tensor zero = network.constant(choices.zero_point(to));
    at = {quantize_linear(y, scale, zero), network.constant(0.05F), zero};
  }
  return {at.codes};
}

TEST_CASE("networks in QDQ form: integer kernels, within one code of the reference") {
  Random random;
  Choices choices(random);
  for (int round = 0; round < 30; ++round) {
    Network network;
    const Graph::Recording recording(network.graph);
    const Shape shape(
        {choices.number(1, 2), choices.number(1, 20), choices.number(3, 14), choices.number(3, 14)},
        choices.codes());
    const Tensor x = network.graph.input("x", shape);
    const std::vector<Tensor> results = record_qdq(network, choices, x);
    const Program program = network.graph.program(results);
    Program optimized = program;
    optimize(optimized);
    const std::vector<HostBuffer> inputs{choices.code_array(shape)};
    INFO("round " << round << '\n' << print(program));
    // One layer at a time: a code that differs changes what later layers see.
    const bool is_one_layer =
        std::ranges::count_if(program.main().body, [](const Instruction& instruction) {
          return instruction.kind == Instruction::Kind::op &&
                 instruction.op.as<Conv2d>() != nullptr;
        }) == 1;
    const Ran got = run(optimized, network.weights, inputs, cpu_backend(2));
    INFO(fmt::format("{}", fmt::join(got.notes, "\n")));
    CHECK(std::ranges::any_of(got.notes, [](const std::string& note) {
      return note.find(": int8, ") != std::string::npos;
    }));
    // The rewritten program, step by step: every bit.
    expect_same(got.results, run(optimized, network.weights, inputs, reference()).results);
    if (!is_one_layer) continue;
    const Ran want = run(program, network.weights, inputs, reference());
    expect_close(got.results[0], want.results[0], 1, 0);
  }
}

/// The first program on docs/quantised.md.
Program page_program() {
  std::ifstream file("docs/quantised.md");
  const std::string page(std::istreambuf_iterator<char>(file), {});
  constexpr std::string_view begin = "```python\n";
  const std::size_t first = page.find(begin) + begin.size();
  return program_of(page.substr(first, page.find("```", first) - first));
}

TEST_CASE("networks in QDQ form: the page's example is one step in int8") {
  Program program = page_program();
  optimize(program);
  Random random;
  const auto number = [](float value) { return HostBuffer::of<float>(Shape({}, f32), {value}); };
  Weights weights;
  for (const auto& [name, value] :
       std::map<std::string, HostBuffer>{{"x_scale", number(0.02F)},
                                         {"x_zero", number(128).to(u8)},
                                         {"w", random.uniform(Shape({16, 3, 3, 3}, i8), -128, 128)},
                                         {"w_scale", random.uniform(Shape({16}, f32), 0.005, 0.01)},
                                         {"bias", random.uniform(Shape({16}, f32), -1, 1)},
                                         {"y_scale", number(0.1F)},
                                         {"y_zero", number(0).to(u8)}}) {
    weights[name] = value.to_device(cpu_device());
  }
  const std::vector<HostBuffer> inputs{random.uniform(Shape({2, 3, 32, 32}, u8), 0, 256)};
  const Ran got = run(program, weights, inputs, cpu_backend(2));
  CHECK(got.notes == std::vector<std::string>{"y: int8, 4 steps on its sums merged"});
  const Ran want = run(page_program(), weights, inputs, reference());
  expect_close(got.results[0], want.results[0], 1, 0);
}

TEST_CASE("networks in QDQ form: what is not optimised says that it computes in f32") {
  Network network;
  const Graph::Recording recording(network.graph);
  const Tensor x = network.graph.input("x", Shape({2, 8}, u8));
  const Tensor w = network.graph.constant("w", Shape({4, 8}, i8));
  const Tensor scale = network.constant(0.5F);
  const Tensor y = linear(dequantize_linear(x, scale), dequantize_linear(w, scale, {}, 0));
  network.weights["w"] = HostBuffer::zeros(Shape({4, 8}, i8)).to_device(cpu_device());
  const Program program = network.graph.program({&y, 1});
  const std::vector<HostBuffer> inputs{HostBuffer::zeros(Shape({2, 8}, u8))};
  const auto says = [](const Ran& ran, std::string_view what) {
    return std::ranges::any_of(
        ran.notes, [&](const std::string& note) { return note.find(what) != std::string::npos; });
  };
  CHECK(says(run(program, network.weights, inputs, cpu_backend(1)),
             "f32, though its operands are codes"));
  Program optimized = program;
  optimize(optimized);
  const Ran ran = run(optimized, network.weights, inputs, cpu_backend(1));
  CHECK(says(ran, ": int8"));
  CHECK_FALSE(says(ran, "f32, though its operands are codes"));
}

}  // namespace
}  // namespace tenon::testing
