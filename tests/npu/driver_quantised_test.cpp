// Networks that come quantised, on the device by their own scales: quant::dequantized().
#include "npu/driver_open.hpp"
#include "npu/driver_rig.hpp"

#include <tenon/backends/reference.hpp>
#include <tenon/calibration.hpp>
#include <tenon/ops.hpp>
#include <tenon/optimize.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>

namespace tenon::npu {
namespace {

using namespace tenon::npu::testing;

constexpr const char* quantised_url = "npu://sim?mac=32x32&ocm=2MiB&acc=256KiB&strict=1";

/// Records a network whose weights are codes; with `ranges`, its values too.
class Recorder {
 public:
  Recorder(Graph& graph, std::map<std::string, Buffer>& weights, std::uint64_t seed)
      : graph_(graph), weights_(weights), random_(seed) {}

  const quant::CalibrationTable* ranges = nullptr;
  std::vector<std::string> names;  ///< of the values, in order
  std::vector<Tensor> values;

  std::int64_t integer(std::int64_t low, std::int64_t high) { return random_.integer(low, high); }

  /// Where the network has codes. `is_positive`: they have the zero point 0.
  Tensor value(const Tensor& x, bool is_positive = false) {
    values.push_back(x);
    const auto form = random_.integer(0, 2);
    if (ranges == nullptr) return x;
    const quant::Range& range = ranges->find(names.at(values.size() - 1))->tensor;
    const std::string name = fmt::format("v{}", values.size());
    Tensor scale, zero;
    if (is_positive || form == 0) {
      const double low = is_positive ? 0 : std::min(range.min, 0.0);
      const double step = std::max(range.max - low, 1e-3) / 255;
      scale = number(name + ".scale", static_cast<float>(step));
      zero = number(name + ".zero", static_cast<std::uint8_t>(std::nearbyint(-low / step)));
    } else {
      scale = number(name + ".scale", static_cast<float>(std::max(range.threshold, 1e-3) / 127));
      zero = number(name + ".zero", std::int8_t{0});
    }
    return dequantize_linear(quantize_linear(x, scale, zero), scale, zero);
  }

  /// Codes of 8 bits with a scale for each output.
  Tensor weight(const Shape& shape) {
    const std::string name = fmt::format("w{}", weights_.size());
    const std::int64_t outputs = shape[0], inputs = shape.elements() / outputs;
    const HostBuffer codes = random_.uniform(Shape(shape.dims(), i8), -127, 128);
    const double width = 1.7 / 127 / std::sqrt(static_cast<double>(inputs));
    return dequantize_linear(
        constant(name, codes),
        constant(name + ".scale", random_.uniform(Shape({outputs}, f32), width / 2, width)), {}, 0);
  }
  Tensor bias(std::int64_t outputs) {
    return constant(fmt::format("b{}", weights_.size()),
                    random_.uniform(Shape({outputs}, f32), -0.1, 0.1));
  }

 private:
  Tensor constant(const std::string& name, const HostBuffer& value) {
    weights_[name] = value.to_device(cpu_device());
    return graph_.constant(name, value.shape());
  }
  template <class T>
  Tensor number(const std::string& name, T value) {
    return constant(name, HostBuffer::of<T>(Shape({}, dtype_of<T>()), {value}));
  }

  Graph& graph_;
  std::map<std::string, Buffer>& weights_;
  Random random_;
};

struct Quantised {
  Program plain, codes;
  std::shared_ptr<const WeightSet> weights;
  Shape input{{}, f32};
};

using RecordCodes = std::function<Tensor(Recorder& network, const Tensor& input)>;

/// The network by codes, with scales as a calibration of the plain one gives them.
Quantised make_quantised(const Shape& input, const RecordCodes& record, std::uint64_t seed) {
  register_reference_backend();
  std::map<std::string, Buffer> weights;
  Quantised made;
  made.input = input;
  Recorder plain_recorder = [&] {
    Graph graph;
    Recorder recorder(graph, weights, seed);
    const Tensor y = record(recorder, graph.input("x", input));
    made.plain = graph.program({&y, 1});
    const Program values = graph.program(recorder.values);
    for (const ValueId result : values.main().results) {
      recorder.names.push_back(values.main().values[result].name);
    }
    return recorder;
  }();
  Random random(seed + 1);
  std::vector<std::vector<HostBuffer>> samples;
  for (int i = 0; i < 3; ++i) samples.push_back({random.uniform(input)});
  const quant::CalibrationTable ranges = quant::calibrate(made.plain, WeightSet(weights), samples);

  weights.clear();
  Graph graph;
  Recorder recorder(graph, weights, seed);
  recorder.ranges = &ranges;
  recorder.names = plain_recorder.names;
  const Tensor y = record(recorder, graph.input("x", input));
  made.codes = graph.program({&y, 1});
  made.weights = std::make_shared<const WeightSet>(weights);
  return made;
}

/// Residual blocks, a depthwise convolution, pools, a classifier.
Tensor small_codes(Recorder& network, const Tensor& input) {
  const auto conv = [&](const Tensor& x, std::int64_t outputs, std::int64_t kernel,
                        std::int64_t groups = 1) {
    const std::int64_t depth = x.shape()[1] / groups;
    return conv2d(x, network.weight(Shape({outputs, depth, kernel, kernel}, f32)),
                  network.bias(outputs), {.padding = {kernel / 2, kernel / 2}, .groups = groups});
  };
  Tensor x = network.value(input);
  x = network.value(relu(conv(x, 32, 3)), true);
  x = max_pool2d(x, {.kernel = {2, 2}, .stride = {2, 2}});
  const Tensor inner = network.value(conv(x, 32, 3));
  x = network.value(relu(network.value(inner + x)), true);
  x = network.value(conv(x, 32, 3, 32), true);  // the codes' lower limit is the relu
  x = network.value(conv(x, network.integer(20, 50), 1));
  x = network.value(mean(x, {2, 3}));
  return linear(x, network.weight(Shape({10, x.shape()[1]}, f32)), network.bias(10));
}

struct OnDevice {
  HostBuffer y;
  std::vector<PlanReport::Fallback> fallbacks;
};
OnDevice run_on_device(const Program& program, const std::shared_ptr<const WeightSet>& weights,
                       const HostBuffer& x) {
  const quant::CalibratedProgram made = quant::dequantized(program, *weights);
  INFO(print(made.program));
  Options options;
  options.calibration = std::make_shared<const CalibrationTable>(made.calibration);
  register_reference_backend();
  Session session(made.program, {.backends = {backend(open_npu(quantised_url), options),
                                              make_backend("reference")}});
  session.bind(weights);
  OnDevice result;
  result.y = session.forward({x.to_device(cpu_device())})[0].to_host();
  result.fallbacks = session.report({&x.shape(), 1}).fallbacks;
  return result;
}

HostBuffer on_reference(const Program& program, const std::shared_ptr<const WeightSet>& weights,
                        const HostBuffer& x) {
  Session session(program, {.backends = {make_backend("reference")}});
  session.bind(weights);
  return session.forward({x.to_device(cpu_device())})[0].to_host();
}

/// The largest difference of numbers, as a share of the largest magnitude.
double largest_difference(const HostBuffer& got, const HostBuffer& wanted) {
  double largest = 0, difference = 0;
  const HostBuffer a = got.to(f32), b = wanted.to(f32);
  for (std::size_t i = 0; i < a.values<float>().size(); ++i) {
    largest = std::max(largest, std::abs(double{b.values<float>()[i]}));
    difference =
        std::max(difference, std::abs(double{a.values<float>()[i]} - b.values<float>()[i]));
  }
  return difference / largest;
}

TEST_CASE("npu: a network that comes quantised runs by its own scales") {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    CAPTURE(seed);
    const Shape shape({2, 3, 16, 16}, f32);
    const Quantised network = make_quantised(shape, small_codes, seed);
    const HostBuffer x = Random(seed + 100).uniform(shape);
    const OnDevice got = run_on_device(network.codes, network.weights, x);
    // The result is no codes, so that nothing says how the device could hold it.
    REQUIRE(got.fallbacks.size() == 1);
    CHECK(got.fallbacks[0].op == "linear");
    const HostBuffer wanted = on_reference(network.codes, network.weights, x);
    const double difference = largest_difference(got.y, wanted);
    CAPTURE(difference, cosine(got.y, wanted));
    CHECK(difference < 0.05);
    // The same layers after optimize() has made integer products of them.
    Program products = network.codes;
    optimize(products);
    const OnDevice again = run_on_device(products, network.weights, x);
    REQUIRE(again.fallbacks.size() == 1);
    CHECK(again.fallbacks[0].op == "linear");
    CHECK(largest_difference(again.y, wanted) < 0.05);
  }
}

// As files in ONNX's QOperator form: codes from layer to layer, biases in 32 bits.
TEST_CASE("npu: layers of codes run by their own scales") {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    std::map<std::string, Buffer> weights;
    Graph graph;
    const auto constant = [&](const std::string& name, const HostBuffer& value) {
      weights[name] = value.to_device(cpu_device());
      return graph.constant(name, value.shape());
    };
    const auto number = [&](const std::string& name, float value) {
      return constant(name, HostBuffer::of<float>(Shape({}, f32), {value}));
    };
    const auto zero = [&](const std::string& name, std::uint8_t value) {
      return constant(name, HostBuffer::of<std::uint8_t>(Shape({}, u8), {value}));
    };
    /// Codes that give sums of about `inputs` to the power of 1/2, and a bias in their units.
    const auto filter = [&](const std::string& name, const Shape& shape) {
      const auto inputs = static_cast<double>(shape.elements() / shape[0]);
      const double width = 1 / 127.0 / std::sqrt(inputs);
      const Shape scales({shape[0]}, f32);
      return QuantizedTensor{constant(name, random.uniform(shape, -127, 128)),
                             constant(name + ".scale", random.uniform(scales, width, 2 * width))};
    };
    const auto bias = [&](const std::string& name, std::int64_t outputs) {
      return constant(name, random.uniform(Shape({outputs}, i32), -2000, 2000));
    };
    const Shape shape({1, 6, 12, 12}, u8);
    QuantizedTensor x{graph.input("x", shape), number("x.scale", 1 / 64.0F), zero("x.zero", 128)};
    const ScaleAndZero first{number("a.scale", 1 / 64.0F), zero("a.zero", 0)};
    x = {qlinear_conv2d(x, filter("wa", Shape({32, 6, 3, 3}, i8)), first, bias("ba", 32),
                        {.padding = {1, 1, 1, 1}}),
         first.scale, first.zero_point};
    const ScaleAndZero second{number("b.scale", 1 / 50.0F), zero("b.zero", 100)};
    x = {qlinear_conv2d(x, filter("wb", Shape({24, 32, 1, 1}, i8)), second), second.scale,
         second.zero_point};
    const Tensor rows = reshape(x.codes, {1, 24 * 144});
    const ScaleAndZero third{number("c.scale", 1 / 40.0F), zero("c.zero", 120)};
    const Tensor y = qlinear_linear({rows, second.scale, second.zero_point},
                                    filter("wc", Shape({16, 24 * 144}, i8)), third, bias("bc", 16));
    const Program program = graph.program({&y, 1});
    const auto set = std::make_shared<const WeightSet>(weights);
    const HostBuffer codes = random.uniform(shape, 0, 256);
    const OnDevice got = run_on_device(program, set, codes);
    for (const PlanReport::Fallback& fallback : got.fallbacks) {
      CAPTURE(fallback.value, fallback.why);
      CHECK((fallback.op == "dequantize_linear" || fallback.op == "quantize_linear"));
    }
    const HostBuffer wanted = on_reference(program, set, codes);
    int largest = 0;
    for (std::size_t i = 0; i < wanted.values<std::uint8_t>().size(); ++i) {
      largest = std::max(
          largest, std::abs(got.y.values<std::uint8_t>()[i] - wanted.values<std::uint8_t>()[i]));
    }
    CHECK(largest <= 3);
  }
}

}  // namespace
}  // namespace tenon::npu
