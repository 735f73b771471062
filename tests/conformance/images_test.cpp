// Random networks on images: the CPU backend against the reference. In a network, unlike in a
// program of one op, convolutions take over what follows them, images lie with their channels last,
// and batches are done image by image.
#include "support/op_testing.hpp"
#include "support/program_text.hpp"
#include "support/rounds.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/graph.hpp>
#include <tenon/ops.hpp>
#include <tenon/program.hpp>
#include <tenon/session.hpp>

#include <bit>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace tenon::testing {
namespace {

std::vector<BackendPtr> cpu(int threads) {
  register_cpu_backend();
  return {make_backend("cpu", {.threads = threads})};
}

/// A network that grows op by op; values are images of one batch size.
class Network {
 public:
  Network(Random& random, std::int64_t batch, std::int64_t channels, std::int64_t side)
      : random_(random), recording_(graph_) {
    const Shape shape({batch, channels, side, side + 2}, f32);
    values_.push_back(graph_.input("x", shape));
    input_ = random.uniform(shape, -1, 1);
  }

  void grow() {
    const Tensor x = pick();
    switch (random_.integer(0, 9)) {
      case 0:
      case 1:
      case 2:
      case 3:
        return add(convolution(x));
      case 4:
        return add(activation(x));
      case 5:
        return add_sum(x);
      case 6:
        if (x.shape()[2] > 3 && x.shape()[3] > 3) return add(pool(x));
        return;
      case 7:
        return add(x * constant(Shape({x.shape()[1], 1, 1}, f32), 0.5, 1.5));
      case 8:
        return add(x * sigmoid(mean(x, {2, 3}, true)));
      case 9:
        return add(slice(x, 3, 0, x.shape()[3]) + x);
    }
  }

  /// On 1, 2 and 7 threads the same bits, close to the reference.
  void check() {
    const Tensor last = mean(values_.back(), {2, 3});
    std::vector<Tensor> results{last};
    if (random_.integer(0, 1) == 1) results.push_back(pick());
    const Program program = graph_.program(results);
    INFO(print(program));
    register_reference_backend();
    const std::vector<HostBuffer> want = run(program, {make_backend("reference")});
    static const std::vector<std::vector<BackendPtr>> pools{cpu(1), cpu(2), cpu(7)};
    std::vector<HostBuffer> first;
    for (const auto& pool : pools) {
      const std::vector<HostBuffer> got = run(program, pool);
      if (first.empty()) first = got;
      for (std::size_t i = 0; i < got.size(); ++i) {
        expect_close(got[i], want[i], 1e-4 * largest(want[i]), 1e-4);
        CHECK(std::ranges::equal(
            got[i].values<float>(), first[i].values<float>(), [](float a, float b) {
              return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
            }));
      }
    }
  }

 private:
  Tensor pick() {
    // Mostly the newest: long chains, some branches.
    const auto count = static_cast<std::int64_t>(values_.size());
    return values_[static_cast<std::size_t>(
        random_.integer(0, 3) > 0 ? count - 1 : random_.integer(0, count - 1))];
  }
  void add(const Tensor& value) { values_.push_back(value); }

  Tensor constant(const Shape& shape, double low, double high) {
    const std::string name = fmt::format("w{}", weights_.size());
    weights_[name] = random_.uniform(shape, low, high).to_device(cpu_device());
    return graph_.constant(name, shape);
  }

  Tensor convolution(const Tensor& x) {
    const std::int64_t channels = x.shape()[1];
    Conv2d op;
    std::int64_t outputs = random_.integer(0, 1) == 1 ? channels : random_.integer(1, 40);
    const std::int64_t kind = random_.integer(0, 5);
    if (kind == 0) {
      op.groups = outputs = channels;
    } else if (kind == 1 && channels % 2 == 0) {
      op.groups = 2;
      outputs = 2 * random_.integer(1, 20);
    }
    const std::int64_t most = std::min<std::int64_t>({5, x.shape()[2], x.shape()[3]});
    const std::int64_t kernel = random_.integer(0, 2) == 0 ? 1 : random_.integer(1, most);
    const std::int64_t stride = random_.integer(0, 3) == 0 ? 2 : 1;
    op.stride = {stride, stride};
    op.padding = {kernel / 2, kernel / 2};
    const Shape w({outputs, channels / op.groups, kernel, kernel}, f32);
    const double scale = 1.7 / std::sqrt(static_cast<double>(w[1] * kernel * kernel));
    const Tensor filter = constant(w, -scale, scale);
    Tensor bias;
    if (random_.integer(0, 1) == 1) bias = constant(Shape({outputs}, f32), -0.2, 0.2);
    const Tensor y = conv2d(x, filter, bias, op);
    // What convolutions take over stands behind most of them.
    const std::int64_t next = random_.integer(0, 3);
    if (next == 0) return y;
    const Tensor sum = next == 1 ? with_residual(y) : y;
    return random_.integer(0, 3) == 0 ? sum : activation(sum);
  }

  Tensor with_residual(const Tensor& y) {
    for (auto value = values_.rbegin(); value != values_.rend(); ++value) {
      if (value->shape() == y.shape()) return random_.integer(0, 1) == 1 ? *value + y : y + *value;
    }
    return y;
  }
  void add_sum(const Tensor& x) { add(with_residual(x)); }

  Tensor activation(const Tensor& x) {
    switch (random_.integer(0, 5)) {
      case 0:
        return relu(x);
      case 1:
        return relu6(x);
      case 2:
        return silu(x);
      case 3:
        return hardswish(x);
      case 4:
        return leaky_relu(x, 0.2);
      default:
        return clamp(x, -0.5, 0.75);
    }
  }

  Tensor pool(const Tensor& x) {
    const std::int64_t kernel = random_.integer(2, 3), stride = random_.integer(1, 2);
    if (random_.integer(0, 1) == 1) {
      return max_pool2d(x, {.kernel = {kernel, kernel},
                            .stride = {stride, stride},
                            .padding = {1, 1},
                            .dilation = {}});
    }
    return avg_pool2d(x, {.kernel = {kernel, kernel},
                          .stride = {stride, stride},
                          .padding = {1, 1},
                          .count_include_pad = random_.integer(0, 1) == 1});
  }

  static double largest(const HostBuffer& array) {
    double most = 0;
    for (const double value : elements(array)) most = std::max(most, std::fabs(value));
    return most;
  }

  std::vector<HostBuffer> run(const Program& program, const std::vector<BackendPtr>& backends) {
    Session session(program, {.backends = backends});
    session.bind(std::make_shared<const WeightSet>(weights_));
    std::vector<HostBuffer> results;
    for (const Buffer& buffer : session.forward({input_.to_device(cpu_device())})) {
      results.push_back(buffer.to_host());
    }
    return results;
  }

  Random& random_;
  Graph graph_;
  Graph::Recording recording_;
  std::vector<Tensor> values_;
  std::map<std::string, Buffer> weights_;
  HostBuffer input_;
};

TEST_CASE("images: random networks on the CPU backend") {
  Random random;
  for (int round = 0; round < 60; ++round) {
    const std::int64_t batch = random.integer(0, 3) > 0 ? random.integer(1, 3) : 9;
    Network network(random, batch, random.integer(1, 36), random.integer(1, 20));
    const std::int64_t size = random.integer(1, 14);
    for (std::int64_t i = 0; i < size; ++i) network.grow();
    INFO("round " << round);
    network.check();
  }
}

// One of two threads has channel 32 alone. Columns of one pixel are one element apart.
TEST_CASE("images: an activation of a single channel among the channels of a pixel") {
  const Program program = program_of(R"(def forward(x: f32[2, 1, 1, 1]):
    w: f32[33, 1, 1, 1] = const("w")
    sums = conv2d(x, w, stride=[1, 1], padding=[0, 0])
    y = silu(sums)
    return y
)");
  register_reference_backend();
  Random random;
  const auto weights = std::make_shared<const WeightSet>(std::map<std::string, Buffer>{
      {"w", random.uniform(Shape({33, 1, 1, 1}, f32)).to_device(cpu_device())}});
  const HostBuffer x = random.uniform(Shape({2, 1, 1, 1}, f32));
  const auto run = [&](const std::vector<BackendPtr>& backends) {
    Session session(program, {.backends = backends});
    session.bind(weights);
    return session.forward({x.to_device(cpu_device())})[0].to_host();
  };
  const HostBuffer want = run({make_backend("reference")});
  for (const int threads : {1, 2, 7}) expect_close(run(cpu(threads)), want, 1e-6, 1e-5);
}

TEST_CASE("images: batches large enough to be done image by image") {
  Random random;
  for (int round = 0; round < rounds(4); ++round) {
    Network network(random, 3, 24, 60);
    for (int i = 0; i < 6; ++i) network.grow();
    INFO("round " << round);
    network.check();
  }
}

}  // namespace
}  // namespace tenon::testing
