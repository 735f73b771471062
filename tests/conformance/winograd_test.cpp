// 3 by 3 convolutions by Winograd's filtering against the reference: images that end within a
// tile, channels that end within a vector, what follows a convolution, and what its docs say of
// values that are not finite.
#include "support/op_testing.hpp"
#include "support/rounds.hpp"
#include "support/small_graph.hpp"

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
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tenon::testing {
namespace {

BackendPtr cpu(int threads, bool exact = false) {
  register_cpu_backend();
  return make_backend("cpu", {.threads = threads, .exact = exact});
}
BackendPtr reference() {
  register_reference_backend();
  return make_backend("reference");
}

struct TileSizes {
  std::int64_t batch, channels, outputs, rows, columns;
  IntList padding;
};

using Rest = std::function<Tensor(Tensor sum, Tensor shortcut)>;

/// Errors go with a tile's sums, of which the largest elements tell, not with the element.
void expect_close_sums(const HostBuffer& got, const HostBuffer& want) {
  float largest = 1;
  for (const float value : want.values<float>()) {
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  }
  expect_close(got, want, 2e-5 * static_cast<double>(largest), 2e-5);
}

/// rest(conv(x) + bias, conv(x)) with two filters of 3 by 3 taps, and the operands of a run.
class Layer {
 public:
  Layer(Random& random, const TileSizes& sizes, const Rest& rest, bool channels_last) {
    Graph graph(small_graph_bytes);
    const Graph::Recording recording(graph);
    const Shape shape({sizes.batch, sizes.channels, sizes.rows, sizes.columns}, f32);
    input_ = random.uniform(shape, -1, 1);
    const auto constant = [&](const char* name, const Shape& of, double range) {
      weights_[name] = random.uniform(of, -range, range).to_device(cpu_device());
      return graph.constant(name, of);
    };
    Tensor x = graph.input("x", shape);
    // Behind another convolution the image is the network's own.
    if (channels_last) {
      x = conv2d(x, constant("w0", Shape({sizes.channels, sizes.channels, 1, 1}, f32), 0.3));
    }
    const double range = 1.5 / std::sqrt(static_cast<double>(9 * sizes.channels));
    const Tensor w = constant("w", Shape({sizes.outputs, sizes.channels, 3, 3}, f32), range);
    Conv2d op;
    op.padding = sizes.padding;
    const Tensor sum = conv2d(x, w, constant("bias", Shape({sizes.outputs}, f32), 1), op);
    const Tensor shortcut = conv2d(x, constant("v", w.shape(), range), {}, op);
    Tensor y = rest(sum, shortcut);
    if (channels_last) y = permute(y, {0, 2, 3, 1});
    program_ = std::make_unique<Program>(graph.program({&y, 1}));
  }

  HostBuffer& input() { return input_; }
  HostBuffer run(const BackendPtr& backend) const {
    Session session(*program_, {.backends = {backend}});
    session.bind(std::make_shared<const WeightSet>(weights_));
    return session.forward({input_.to_device(cpu_device())}).at(0).to_host();
  }

  /// On 1, 2 and 7 threads the same bits, close to the reference.
  void check() const {
    const HostBuffer want = run(reference());
    const HostBuffer first = run(cpu(1));
    expect_close_sums(first, want);
    for (const int threads : {2, 7}) {
      const HostBuffer got = run(cpu(threads));
      CHECK(std::ranges::equal(got.values<float>(), first.values<float>(), [](float a, float b) {
        return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
      }));
    }
  }

 private:
  HostBuffer input_ = HostBuffer::zeros(Shape({0}, f32));
  std::map<std::string, Buffer> weights_;
  std::unique_ptr<Program> program_;
};

TEST_CASE("winograd: images that end within a tile, channels within a vector", "[every_path]") {
  Random random;
  // At least 16 tiles each: fewer go the direct way.
  const std::vector<TileSizes> all{
      {4, 64, 64, 8, 8, {1, 1}},         {2, 64, 96, 14, 14, {1, 1}},  {3, 67, 70, 9, 11, {1, 1}},
      {16, 80, 65, 5, 3, {0, 0}},        {17, 64, 64, 3, 3, {0, 0}},   {3, 64, 64, 1, 30, {1, 1}},
      {2, 96, 130, 13, 6, {2, 1, 0, 2}}, {1, 256, 64, 20, 21, {1, 1}}, {0, 64, 64, 8, 8, {1, 1}},
      {5, 32, 290, 9, 9, {1, 1}},        {2, 17, 16, 18, 10, {1, 1}},
  };
  for (const TileSizes& sizes : all) {
    for (const bool channels_last : {false, true}) {
      INFO(fmt::format("{} images of {} channels to {}, {} x {}", sizes.batch, sizes.channels,
                       sizes.outputs, sizes.rows, sizes.columns));
      Layer(random, sizes, [](Tensor sum, Tensor) { return sum; }, channels_last).check();
    }
  }
}

TEST_CASE("winograd: residual, limits and other functions behind the sum") {
  Random random;
  const std::vector<std::pair<std::string, Rest>> all{
      {"relu", [](Tensor sum, Tensor) { return relu(sum); }},
      {"residual", [](Tensor sum, Tensor shortcut) { return sum + shortcut; }},
      {"residual, relu", [](Tensor sum, Tensor shortcut) { return relu(sum + shortcut); }},
      {"silu", [](Tensor sum, Tensor) { return silu(sum); }},
      {"residual, silu", [](Tensor sum, Tensor shortcut) { return silu(sum + shortcut); }},
  };
  EveryThird third;
  for (const auto& [name, rest] : all) {
    for (const bool channels_last : {false, true}) {
      if (third.skips()) continue;
      INFO(name);
      Layer(random, {2, 64, 72, 10, 17, {1, 1}}, rest, channels_last).check();
    }
  }
}

TEST_CASE("winograd: a value that is not finite spoils the tiles that read it, and no other") {
  Random random;
  for (const float bad :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    Layer layer(random, {1, 64, 64, 16, 16, {1, 1}}, [](Tensor sum, Tensor) { return sum; }, false);
    const HostBuffer clean = layer.run(cpu(2)), clean_exact = layer.run(cpu(2, true));
    // Row 6 and column 9 of channel 5: read by the tiles that begin at 4 and 8 and neighbours, of
    // which none reads both.
    layer.input().mutable_values<float>()[(5 * 16 + 6) * 16 + 9] = bad;
    const HostBuffer spoilt = layer.run(cpu(2)), exact = layer.run(cpu(2, true));
    bool in_tile = true, beside = true, in_window = true, around = true;
    for (std::int64_t i = 0; i < 64 * 16 * 16; ++i) {
      const std::int64_t row = i / 16 % 16, column = i % 16;
      const auto at = [i](const HostBuffer& y) {
        return y.values<float>()[static_cast<std::size_t>(i)];
      };
      const bool reads = row / 4 == 1 && column / 4 == 2;
      (reads ? in_tile : beside) &= reads ? !std::isfinite(at(spoilt)) : at(spoilt) == at(clean);
      const bool meets = std::abs(row - 6) <= 1 && std::abs(column - 9) <= 1;
      (meets ? in_window : around) &=
          meets ? !std::isfinite(at(exact)) : at(exact) == at(clean_exact);
    }
    CHECK(in_tile);
    CHECK(beside);
    CHECK(in_window);
    CHECK(around);
  }
}

TEST_CASE("winograd: large and small images that share a filter") {
  Random random;
  Graph graph;
  const Graph::Recording recording(graph);
  const Tensor w = graph.constant("w", Shape({64, 64, 3, 3}, f32));
  std::map<std::string, Buffer> weights;
  weights["w"] = random.uniform(Shape({64, 64, 3, 3}, f32), -0.1, 0.1).to_device(cpu_device());
  std::vector<Tensor> results;
  std::vector<Buffer> inputs;
  for (const std::int64_t side : {32, 3, 16}) {
    const Shape shape({1, 64, side, side}, f32);
    results.push_back(conv2d(graph.input(fmt::format("x{}", side), shape), w, {},
                             {.stride = {}, .padding = {1, 1}, .dilation = {}}));
    inputs.push_back(random.uniform(shape, -1, 1).to_device(cpu_device()));
  }
  const Program program = graph.program(results);
  const auto run = [&](const BackendPtr& backend) {
    Session session(program, {.backends = {backend}});
    session.bind(std::make_shared<const WeightSet>(weights));
    return session.forward(inputs);
  };
  const std::vector<Buffer> want = run(reference()), got = run(cpu(2));
  for (std::size_t i = 0; i < want.size(); ++i) {
    expect_close_sums(got[i].to_host(), want[i].to_host());
  }
}

}  // namespace
}  // namespace tenon::testing
