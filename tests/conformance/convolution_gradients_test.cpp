// Convolutions whose filter is a value of the run, and both of their gradients, on the CPU backend
// against the reference: by Winograd's filtering, directly, and across images that are narrow.
#include "support/op_testing.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/grad.hpp>
#include <tenon/graph.hpp>
#include <tenon/ops.hpp>
#include <tenon/session.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include <fmt/format.h>

namespace tenon::testing {
namespace {

/// y = f(conv2d(x, w, bias)) and the gradients of sum(y * u) by x and w; with relu those of the convolution itself, since
/// rounding decides on which side of 0 a sum lies.
struct ConvolutionSizes {
  std::int64_t batch, channels, outputs, rows, columns, kernel;
  Conv2d op;

  std::string text() const {
    return fmt::format("x [{}, {}, {}, {}], w [{}, {}, {}, {}], stride {}, padding {}, dilation {}",
                       batch, channels, rows, columns, outputs, channels / op.groups, kernel,
                       kernel, op.stride[0], op.padding[0], op.dilation[0]);
  }
};

double largest_of(const HostBuffer& array) {
  double most = 0;
  for (const double value : elements(array)) most = std::max(most, std::fabs(value));
  return most;
}

void check_gradients(Random& random, const ConvolutionSizes& one) {
  INFO(one.text());
  Graph graph;
  const Graph::Recording recording(graph);
  const Shape of_x({one.batch, one.channels, one.rows, one.columns}, f32);
  const Shape of_w({one.outputs, one.channels / one.op.groups, one.kernel, one.kernel}, f32);
  const Tensor x = graph.input("x", of_x), w = graph.input("w", of_w);
  const Tensor bias = graph.input("bias", Shape({one.outputs}, f32));
  const Tensor sum = conv2d(x, w, bias, one.op);
  const bool is_smooth = random.integer(0, 1) == 1;
  const Tensor y = is_smooth ? silu(sum) : relu(sum);
  const Tensor u = graph.input("u", y.shape());
  std::vector<Tensor> results =
      grad(tenon::sum((is_smooth ? y : sum) * u), std::vector<Tensor>{x, w});
  results.push_back(y);
  const Program program = graph.program(results);
  const double range = 1.5 / std::sqrt(static_cast<double>(of_w[1] * one.kernel * one.kernel));
  std::vector<Buffer> inputs;
  for (const HostBuffer& input :
       {random.uniform(of_x, -1, 1), random.uniform(of_w, -range, range),
        random.uniform(Shape({one.outputs}, f32), -1, 1), random.uniform(y.shape(), -1, 1)}) {
    inputs.push_back(input.to_device(cpu_device()));
  }
  const auto run = [&](const BackendPtr& backend) {
    Session session(program, {.backends = {backend}});
    return session.forward(inputs);
  };
  register_reference_backend();
  register_cpu_backend();
  const std::vector<Buffer> want = run(make_backend("reference"));
  std::vector<Buffer> first;
  for (const int threads : {1, 2, 7}) {
    const std::vector<Buffer> got = run(make_backend("cpu", {.threads = threads}));
    if (first.empty()) first = got;
    for (std::size_t i = 0; i < got.size(); ++i) {
      INFO("result " << i << ", threads " << threads);
      const HostBuffer expected = want[i].to_host(), values = got[i].to_host();
      expect_close(values, expected, 1e-5 * largest_of(expected) + 1e-6, 1e-5);
      const HostBuffer bits = first[i].to_host();
      CHECK(std::ranges::equal(values.values<float>(), bits.values<float>(), [](float a, float b) {
        return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
      }));
    }
  }
}

TEST_CASE("gradients of convolutions: Winograd's filtering") {
  Random random;
  const Conv2d same{.stride = {1, 1}, .padding = {1, 1}, .dilation = {1, 1}};
  const Conv2d valid{.stride = {1, 1}, .padding = {0, 0}, .dilation = {1, 1}};
  check_gradients(random, {4, 64, 64, 8, 8, 3, same});
  check_gradients(random, {3, 18, 21, 9, 11, 3, same});
  check_gradients(random, {16, 16, 33, 5, 5, 3, valid});
  check_gradients(random, {7, 30, 16, 7, 12, 3, same});
  check_gradients(random, {0, 16, 16, 8, 8, 3, same});
  check_gradients(random, {26, 16, 40, 8, 8, 3, same});  // more tiles than a block has
}

TEST_CASE("gradients of convolutions: narrow images") {
  Random random;
  const Conv2d same{.stride = {1, 1}, .padding = {1, 1}, .dilation = {1, 1}};
  const Conv2d halved{.stride = {2, 2}, .padding = {1, 1}, .dilation = {1, 1}};
  check_gradients(random, {9, 40, 33, 3, 2, 3, same});
  check_gradients(random, {8, 33, 16, 1, 1, 3, same});  // taps that meet no pixel
  check_gradients(random, {12, 48, 20, 5, 7, 3, halved});
  check_gradients(random, {100, 32, 6, 2, 3, 3, same});  // more pixels than a block has
}

TEST_CASE("gradients of convolutions: groups of few channels") {
  Random random;
  const auto with_groups = [](std::int64_t groups, std::int64_t stride, std::int64_t padding,
                              std::int64_t dilation) {
    return Conv2d{.stride = {stride, stride},
                  .padding = {padding, padding},
                  .dilation = {dilation, dilation},
                  .groups = groups};
  };
  check_gradients(random, {3, 7, 7, 9, 21, 3, with_groups(7, 1, 1, 1)});  // depthwise
  check_gradients(random, {2, 5, 15, 8, 19, 5, with_groups(5, 2, 2, 1)});
  check_gradients(random, {2, 6, 6, 13, 11, 4, with_groups(6, 3, 4, 2)});  // taps beyond the image
  check_gradients(random,
                  {1, 24, 33, 7, 17, 3, with_groups(3, 1, 0, 2)});        // 8 channels, 11 outputs
  check_gradients(random, {2, 18, 4, 6, 9, 1, with_groups(2, 2, 0, 1)});  // 9 channels: a GEMM
  check_gradients(random, {0, 4, 4, 5, 5, 3, with_groups(4, 1, 1, 1)});
}

TEST_CASE("gradients of convolutions: random sizes") {
  Random random;
  for (int round = 0; round < 30; ++round) {
    ConvolutionSizes one{};
    one.batch = random.integer(0, 2) > 0 ? random.integer(1, 17) : random.integer(1, 3);
    one.op.groups = random.integer(0, 4) == 0 ? 2 : 1;
    one.channels = one.op.groups * random.integer(1, 20);
    one.outputs = one.op.groups * random.integer(1, 20);
    one.rows = random.integer(1, 9);
    one.columns = random.integer(1, random.integer(0, 1) == 1 ? 4 : 9);
    const std::int64_t stride = random.integer(1, 3), dilation = random.integer(1, 2);
    one.kernel = random.integer(1, 5);
    const std::int64_t extent = (one.kernel - 1) * dilation + 1;
    const std::int64_t least =
        std::max<std::int64_t>(0, (extent - std::min(one.rows, one.columns) + 1) / 2);
    const std::int64_t padding = std::max(least, random.integer(0, extent - 1));
    one.op.stride = {stride, stride};
    one.op.padding = {padding, padding};
    one.op.dilation = {dilation, dilation};
    check_gradients(random, one);
  }
}

}  // namespace
}  // namespace tenon::testing
