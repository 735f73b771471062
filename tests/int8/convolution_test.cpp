// One convolution in int8 against the same in plain integer arithmetic: codes, rounded weights,
// sums.
#include "backends/cpu/int8/int8_kernels.hpp"
#include "support/op_testing.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/graph.hpp>
#include <tenon/ops.hpp>
#include <tenon/session.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace tenon::testing {
namespace {

struct Sizes {
  std::int64_t batch, channels, rows, columns, outputs, kernel, stride, padding, dilation, groups;
  std::int64_t above = 0, behind = 0;  // further padding, of one side

  std::int64_t height() const { return out(rows + above); }
  std::int64_t width() const { return out(columns + behind); }
  std::int64_t out(std::int64_t size) const {
    return (size + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1;
  }
};

std::string to_string(const Sizes& s) {
  return fmt::format(
      "{} x {} x {} x {} to {}, kernel {}, stride {}, padding {}, dilation {}, in {}", s.batch,
      s.channels, s.rows, s.columns, s.outputs, s.kernel, s.stride, s.padding, s.dilation,
      s.groups);
}

/// The codes of a range, by the definition: 0 is a code, 255 steps from lowest to highest.
struct Grid {
  float scale;
  std::int64_t zero;
  Grid(double low, double high)
      : scale(static_cast<float>((high - low) / 255)),
        zero(std::lround(-low / static_cast<double>(scale))) {}
  std::int64_t code(float x) const {
    const double steps = std::nearbyint(static_cast<double>(x) / static_cast<double>(scale)) +
                         static_cast<double>(zero);
    return static_cast<std::int64_t>(std::clamp(steps, 0.0, 255.0));
  }
};

/// y[n][o][i][j], from integers.
std::vector<double> model(const Sizes& s, const Grid& grid, const HostBuffer& x,
                          const HostBuffer& w, const HostBuffer& bias, int limit) {
  const auto xs = x.values<float>(), ws = w.values<float>(), bs = bias.values<float>();
  const std::int64_t depth = s.channels / s.groups, share = s.outputs / s.groups;
  const std::int64_t height = s.height(), width = s.width();
  const std::int64_t per_output = depth * s.kernel * s.kernel;
  std::vector<double> y;
  for (std::int64_t n = 0; n < s.batch; ++n) {
    for (std::int64_t o = 0; o < s.outputs; ++o) {
      const auto filter = ws.subspan(static_cast<std::size_t>(o * per_output),
                                     static_cast<std::size_t>(per_output));
      float largest = 0;
      for (const float value : filter) largest = std::max(largest, std::abs(value));
      const float unit = largest / static_cast<float>(limit);
      for (std::int64_t i = 0; i < height; ++i) {
        for (std::int64_t j = 0; j < width; ++j) {
          std::int64_t sum = 0;
          for (std::int64_t k = 0; k < per_output; ++k) {
            const std::int64_t c = o / share * depth + k / (s.kernel * s.kernel);
            const std::int64_t row =
                i * s.stride + k / s.kernel % s.kernel * s.dilation - s.padding - s.above;
            const std::int64_t column = j * s.stride + k % s.kernel * s.dilation - s.padding;
            if (row < 0 || row >= s.rows || column < 0 || column >= s.columns) continue;
            const float value = xs[static_cast<std::size_t>(
                ((n * s.channels + c) * s.rows + row) * s.columns + column)];
            const auto weight = static_cast<std::int64_t>(
                std::nearbyint(filter[static_cast<std::size_t>(k)] * (1 / unit)));
            sum += (grid.code(value) - grid.zero) * weight;
          }
          y.push_back(static_cast<double>(sum) * static_cast<double>(unit) *
                          static_cast<double>(grid.scale) +
                      static_cast<double>(bs[static_cast<std::size_t>(o)]));
        }
      }
    }
  }
  return y;
}

/// Values well inside a step, so that it is beyond doubt which code they round to.
HostBuffer clear_values(Random& random, const Shape& shape, const Grid& grid) {
  HostBuffer x = HostBuffer::zeros(shape);
  for (float& value : x.mutable_values<float>()) {
    const auto step = static_cast<double>(random.integer(0, 255) - grid.zero);
    const double within = 0.01 * static_cast<double>(random.integer(-40, 40));
    value = static_cast<float>((step + within) * static_cast<double>(grid.scale));
  }
  return x;
}

void check(Random& random, const Sizes& s, double low, double high) {
  INFO(to_string(s));
  const Grid grid(low, high);
  const Shape x_shape({s.batch, s.channels, s.rows, s.columns}, f32);
  const HostBuffer x = clear_values(random, x_shape, grid);
  const HostBuffer w =
      random.uniform(Shape({s.outputs, s.channels / s.groups, s.kernel, s.kernel}, f32), -1, 1);
  const HostBuffer bias = random.uniform(Shape({s.outputs}, f32), -1, 1);

  Graph graph;
  const Graph::Recording recording(graph);
  const Tensor image = graph.input("x", x_shape);
  const Tensor y =
      conv2d(image, graph.constant("w", w.shape()), graph.constant("b", bias.shape()),
             {.stride = {s.stride, s.stride},
              .padding = {s.padding + s.above, s.padding, s.padding, s.padding + s.behind},
              .dilation = {s.dilation, s.dilation},
              .groups = s.groups});
  quant::CalibrationTable table;
  table.values["x"].tensor = {low, high, std::max(-low, high)};
  register_cpu_backend();
  BackendOptions options{.threads = 2};
  options.device = cpu::Options{std::make_shared<const quant::CalibrationTable>(table)};
  Session session(graph.program({&y, 1}), {.backends = {make_backend("cpu", options)}});
  session.bind(std::make_shared<const WeightSet>(std::map<std::string, Buffer>{
      {"w", w.to_device(cpu_device())}, {"b", bias.to_device(cpu_device())}}));
  const HostBuffer got = session.forward({x.to_device(cpu_device())})[0].to_host();
  const auto notes = session.report({&x_shape, 1}).parts.at(0).notes;
  REQUIRE(notes.size() == 1);
  CHECK(notes[0].ends_with(": int8"));

  const std::vector<double> want = model(s, grid, x, w, bias, cpu::int8_kernels().weight_limit);
  const std::vector<double> values = elements(got);
  REQUIRE(values.size() == want.size());
  double most = 0, worst = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    most = std::max(most, std::abs(want[i]));
    worst = std::max(worst, std::abs(values[i] - want[i]));
  }
  // The sums are exact; what is left are a few roundings of f32.
  CHECK(worst <= 2e-6 * (most + 255 * static_cast<double>(grid.scale)));
}

TEST_CASE("int8 convolution: 1x1, 3x3, strides, dilation") {
  Random random;
  check(random, {1, 8, 5, 7, 16, 1, 1, 0, 1, 1}, 0, 4);
  check(random, {1, 64, 9, 14, 40, 3, 1, 1, 1, 1}, -3, 5);
  check(random, {2, 12, 11, 11, 33, 3, 2, 1, 1, 1}, -3, 5);
  check(random, {1, 8, 12, 13, 16, 3, 1, 2, 2, 1}, -1, 1);
  check(random, {1, 16, 7, 7, 48, 5, 1, 2, 1, 1}, 0, 2);
  check(random, {1, 256, 7, 7, 64, 1, 1, 0, 1, 1}, -3, 5);
}

TEST_CASE("int8 convolution: few channels, as in first layers") {
  Random random;
  check(random, {1, 3, 20, 24, 32, 3, 2, 1, 1, 1}, -2, 2.5);
  check(random, {2, 3, 19, 23, 20, 7, 2, 3, 1, 1}, -2, 2.5);
  check(random, {1, 1, 8, 8, 16, 3, 1, 1, 1, 1}, 0, 1);
  check(random, {1, 6, 4, 4, 16, 3, 1, 1, 2, 1}, -1, 0.5);
}

TEST_CASE("int8 convolution: padding on one side") {
  Random random;
  check(random, {1, 64, 6, 40, 32, 2, 1, 0, 1, 1, 0, 1}, -3, 5);
  check(random, {1, 32, 9, 40, 32, 3, 1, 0, 1, 32, 2, 1}, -3, 5);
  check(random, {1, 32, 6, 70, 32, 3, 2, 1, 1, 1, 1, 1}, -3, 5);
}

TEST_CASE("int8 convolution: groups and channels by themselves") {
  Random random;
  check(random, {1, 16, 9, 9, 24, 3, 1, 1, 1, 2}, -1, 2);
  check(random, {1, 32, 9, 10, 32, 3, 1, 1, 1, 32}, -1, 2);
  check(random, {2, 19, 12, 11, 19, 3, 2, 1, 1, 19}, 0, 6);
  check(random, {1, 40, 14, 14, 40, 5, 2, 2, 1, 40}, -4, 6);
  check(random, {1, 8, 10, 10, 8, 3, 1, 2, 2, 8}, 0, 6);
}

TEST_CASE("int8 convolution: random sizes") {
  Random random;
  for (int round = 0; round < 60; ++round) {
    Sizes s{};
    s.batch = random.integer(1, 2);
    s.channels = random.integer(1, 70);
    s.rows = random.integer(1, 18);
    s.columns = random.integer(1, 33);
    s.outputs = random.integer(1, 70);
    s.kernel = std::min({random.integer(1, 4), s.rows, s.columns});
    s.stride = random.integer(1, 2);
    s.padding = random.integer(0, s.kernel - 1);
    s.dilation = 1;
    s.groups = 1;
    if (random.integer(0, 3) == 0) s.outputs = s.groups = s.channels;
    check(random, s, random.integer(0, 1) == 0 ? 0.0 : -2.5, 3.0);
  }
}

}  // namespace
}  // namespace tenon::testing
