// Networks in int8 against the reference backend on the same network with its values rounded to
// codes where the CPU backend keeps codes: everywhere between the first convolution and the last.
#include "backends/cpu/int8/int8_kernels.hpp"
#include "support/op_testing.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/graph.hpp>
#include <tenon/ops.hpp>
#include <tenon/session.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace tenon::testing {
namespace {

using Weights = std::map<std::string, Buffer>;

/// What a network is recorded with: plain, or with every value rounded to the codes of its range.
struct Recorder {
  const quant::CalibrationTable* rounding = nullptr;
  std::vector<std::string> names;  // of the values, in order
  std::vector<Tensor> values;

  /// Right behind what makes a value that holds codes.
  Tensor value(const Tensor& x) {
    values.push_back(x);
    if (rounding == nullptr) return x;
    const std::string& name = names.at(values.size() - 1);
    const quant::Range& range = rounding->find(name)->tensor;
    const double low = std::min(range.min, 0.0), high = std::max(range.max, 0.0);
    const auto scale = static_cast<double>(static_cast<float>((high - low) / 255));
    const double zero = std::nearbyint(-low / scale);
    return clamp(round(x * (1 / scale)), -zero, 255 - zero) * scale;
  }
};

/// A random network of what runs in int8. The same choices whoever records it.
struct Int8Network {
  std::uint64_t seed;
  std::int64_t batch, channels, side;

  Tensor record(Graph& graph, Recorder& recorder, Weights& weights, int limit) const {
    Random random(seed);
    const auto constant = [&](const Shape& shape, double bound, bool is_filter) {
      const std::string name = fmt::format("w{}", weights.size());
      HostBuffer array = random.uniform(shape, -bound, bound);
      if (is_filter) round_filter(array, limit);
      weights[name] = array.to_device(cpu_device());
      return graph.constant(name, shape);
    };
    const auto conv = [&](const Tensor& x, std::int64_t outputs, std::int64_t kernel,
                          std::int64_t stride, bool depthwise) {
      const std::int64_t depth = depthwise ? 1 : x.shape()[1];
      const Shape shape({outputs, depth, kernel, kernel}, f32);
      const double bound = 1.7 / std::sqrt(static_cast<double>(depth * kernel * kernel));
      const Tensor w = constant(shape, bound, true);
      return conv2d(x, w, constant(Shape({outputs}, f32), 0.2, false),
                    {.stride = {stride, stride},
                     .padding = {kernel / 2, kernel / 2},
                     .groups = depthwise ? x.shape()[1] : 1});
    };
    const Tensor input = graph.input("x", Shape({batch, channels, side, side + 3}, f32));
    Tensor x = recorder.value(input);
    x = recorder.value(relu(conv(x, random.integer(4, 40), 3, 1, false)));
    for (std::int64_t i = random.integer(2, 7); i > 0; --i) {
      const std::int64_t now = x.shape()[1];
      switch (random.integer(0, 5)) {
        case 0:
          x = recorder.value(relu6(conv(x, random.integer(4, 70), 1, 1, false)));
          break;
        case 1:
          x = recorder.value(relu(conv(x, now, 3, x.shape()[2] > 4 ? 2 : 1, true)));
          break;
        case 2:
          x = recorder.value(relu(conv(x, now, 3, 1, false) + x));
          break;
        case 3:
          x = recorder.value(x + conv(x, now, 1, 1, false));
          break;
        case 4:
          if (x.shape()[2] < 4) break;
          // Largest codes are codes already.
          x = max_pool2d(x,
                         {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}, .dilation = {}});
          break;
        default:
          x = recorder.value(conv(x, random.integer(1, 9) * 4, 3, 1, false));
      }
    }
    const Tensor means = mean(recorder.value(conv(x, 24, 1, 1, false)), {2, 3});
    const Tensor w = constant(Shape({10, 24}, f32), 0.4, true);
    return linear(recorder.value(means), w, constant(Shape({10}, f32), 0.2, false));
  }

  /// Each output's weights to a multiple of its step, as int8 filters hold them.
  static void round_filter(HostBuffer& w, int limit) {
    const auto values = w.mutable_values<float>();
    const auto size = static_cast<std::size_t>(w.shape().elements() / w.shape()[0]);
    for (std::size_t begin = 0; begin < values.size(); begin += size) {
      const auto filter = values.subspan(begin, size);
      float largest = 0;
      for (const float value : filter) largest = std::max(largest, std::abs(value));
      const float unit = largest / static_cast<float>(limit);
      if (unit == 0) continue;
      for (float& value : filter) value = std::nearbyint(value * (1 / unit)) * unit;
    }
  }
};

/// Names of values of the graph.
std::vector<std::string> names_of(const Graph& graph, const std::vector<Tensor>& values) {
  const Program program = graph.program(values);
  std::vector<std::string> names;
  for (const ValueId result : program.main().results) {
    names.push_back(program.main().values[result].name);
  }
  return names;
}

HostBuffer run(const Program& program, const BackendPtr& backend, const Weights& weights,
               const HostBuffer& x, std::vector<std::string>* notes = nullptr) {
  Session session(program, {.backends = {backend}});
  session.bind(std::make_shared<const WeightSet>(weights));
  const HostBuffer y = session.forward({x.to_device(cpu_device())})[0].to_host();
  if (notes != nullptr) *notes = session.report({&x.shape(), 1}).parts.at(0).notes;
  return y;
}

void check(Random& random, std::int64_t batch) {
  register_cpu_backend();
  register_reference_backend();
  const Int8Network network{static_cast<std::uint64_t>(random.integer(0, 1 << 30)), batch,
                            random.integer(1, 8), random.integer(3, 15)};
  INFO("network " << network.seed);
  const int limit = cpu::int8_kernels().weight_limit;
  const BackendPtr reference = make_backend("reference");
  const Shape shape({network.batch, network.channels, network.side, network.side + 3}, f32);
  const HostBuffer x = random.uniform(shape, -1, 1);

  Weights weights;
  Recorder plain, rounding;
  Graph graph;
  std::optional<Program> program;
  {
    const Graph::Recording recording(graph);
    const Tensor y = network.record(graph, plain, weights, limit);
    program = graph.program({&y, 1});
    rounding.names = names_of(graph, plain.values);
  }
  const std::vector<std::vector<HostBuffer>> samples{{x}};
  const quant::CalibrationTable table = quant::calibrate(*program, WeightSet(weights), samples);

  rounding.rounding = &table;
  Weights same;
  Graph rounded_graph;
  std::optional<Program> rounded;
  {
    const Graph::Recording recording(rounded_graph);
    const Tensor y = network.record(rounded_graph, rounding, same, limit);
    rounded = rounded_graph.program({&y, 1});
  }
  const std::vector<double> want = elements(run(*rounded, reference, same, x));

  std::vector<double> first;
  for (const int threads : {1, 2, 7}) {
    BackendOptions options{.threads = threads};
    options.device = cpu::Options{std::make_shared<const quant::CalibrationTable>(table)};
    std::vector<std::string> notes;
    const std::vector<double> got =
        elements(run(*program, make_backend("cpu", options), weights, x, &notes));
    for (const std::string& note : notes) CHECK(note.ends_with(": int8"));
    REQUIRE(got.size() == want.size());
    if (first.empty()) first = got;
    CHECK(got == first);
    double most = 0, worst = 0, square = 0, square_error = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
      const double error = got[i] - want[i];
      most = std::max(most, std::abs(want[i]));
      worst = std::max(worst, std::abs(error));
      square += want[i] * want[i];
      square_error += error * error;
    }
    // Where f32 rounds a sum to the other side of a half, a code differs by one, and in small
    // images some that follow from it.
    CHECK(worst <= 0.05 * most);
    CHECK(std::sqrt(square_error) <= 0.02 * std::sqrt(square));
  }
}

TEST_CASE("int8 networks: codes from the first convolution to the last") {
  Random random;
  for (int round = 0; round < 25; ++round) check(random, random.integer(1, 3));
}

}  // namespace
}  // namespace tenon::testing
