// Convolutions and pools of the CPU backend against the reference: every pairing of sizes, strides,
// dilations, paddings and groups that takes another path through the kernels.
#include "run_case.hpp"
#include "support/op_testing.hpp"
#include "support/rounds.hpp"
#include "support/small_graph.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/graph.hpp>
#include <tenon/ops.hpp>
#include <tenon/session.hpp>

#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tenon::testing {
namespace {

std::vector<BackendPtr> backends(int threads) {
  register_cpu_backend();
  register_reference_backend();
  return {make_backend("cpu", {.threads = threads}), make_backend("reference")};
}

/// On 1, 2 and 7 threads: the same bits, close to the reference.
void check_windows(const OpInstance& op, std::vector<HostBuffer> inputs) {
  static const std::vector<std::vector<BackendPtr>> pools{backends(1), backends(2), backends(7)};
  OpCase made;
  made.op = op;
  made.inputs = std::move(inputs);
  made.output = run_reference(made.op, made.inputs);
  std::vector<PlanReport::Part> parts;
  const HostBuffer one = run_case(made, pools[0], Order::dense, &parts);
  for (const PlanReport::Part& part : parts) CHECK(part.backend == "cpu");
  expect_close(one, made.output, 2e-5, 2e-5);
  const std::vector<double> want = elements(one);
  for (std::size_t i = 1; i < pools.size(); ++i) {
    const std::vector<double> got = elements(run_case(made, pools[i], Order::dense));
    bool same = true;
    for (std::size_t j = 0; j < want.size(); ++j) {
      same = same && std::bit_cast<std::uint64_t>(got[j]) == std::bit_cast<std::uint64_t>(want[j]);
    }
    CHECK(same);
  }
  expect_close(run_case(made, pools[1], Order::permuted), made.output, 2e-5, 2e-5);
}

struct Sizes {
  std::int64_t channels, outputs, groups, rows, columns, kernel_rows, kernel_columns;
};

void check_conv(Random& random, const Sizes& sizes, const Conv2d& options) {
  INFO(sizes.channels << " channels to " << sizes.outputs << " in " << sizes.groups << " groups, "
                      << sizes.rows << " x " << sizes.columns << " under " << sizes.kernel_rows
                      << " x " << sizes.kernel_columns);
  Conv2d op = options;
  op.groups = sizes.groups;
  const HostBuffer x =
      random.uniform(Shape({2, sizes.channels, sizes.rows, sizes.columns}, f32), -1, 1);
  const HostBuffer w = random.uniform(
      Shape({sizes.outputs, sizes.channels / sizes.groups, sizes.kernel_rows, sizes.kernel_columns},
            f32),
      -0.2, 0.2);
  op.has_bias = false;
  check_windows(OpInstance(op), {x, w});
  op.has_bias = true;
  check_windows(OpInstance(op), {x, w, random.uniform(Shape({sizes.outputs}, f32))});
}

TEST_CASE("conv2d: paths of the CPU backend's kernel", "[every_path]") {
  Random random;
  const std::vector<Sizes> all{
      {3, 16, 1, 19, 23, 3, 3},
      {5, 7, 1, 9, 33, 1, 1},
      {64, 70, 1, 7, 7, 3, 3},
      {3, 20, 1, 31, 29, 7, 7},
      {12, 18, 3, 11, 10, 3, 2},
      {8, 8, 8, 20, 37, 3, 3},
      {6, 12, 6, 13, 50, 5, 5},
      {40, 300, 1, 5, 6, 1, 1},
      {1, 3, 1, 1, 100, 1, 9},
      {130, 4, 1, 4, 5, 3, 3},
      // Depthwise: whole and part vectors, images that end within a block or are all edges.
      {40, 40, 40, 15, 14, 3, 3},
      {33, 33, 33, 8, 7, 3, 3},
      {17, 17, 17, 3, 22, 3, 3},
  };
  EveryThird third;
  for (const Sizes& sizes : all) {
    for (const std::int64_t stride : {1, 2, 3}) {
      for (const bool padded : {false, true}) {
        if (third.skips()) continue;
        Conv2d op;
        op.stride = {stride, stride};
        if (padded) op.padding = {sizes.kernel_rows / 2, sizes.kernel_columns / 2};
        check_conv(random, sizes, op);
      }
    }
  }
  Conv2d uneven;
  uneven.stride = {2, 1};
  uneven.padding = {1, 0, 2, 1};
  uneven.dilation = {2, 3};
  check_conv(random, {4, 6, 2, 17, 21, 3, 3}, uneven);
  check_conv(random, {4, 4, 4, 17, 41, 3, 3}, uneven);
}

TEST_CASE("conv2d_filter_backward: paths of the CPU backend's kernel", "[every_path]") {
  Random random;
  const std::vector<Sizes> all{
      {3, 16, 1, 19, 23, 7, 7},   // taps of a row as one run
      {31, 13, 1, 21, 20, 3, 3},  // and several panels of it
      {40, 7, 1, 9, 33, 3, 3},    // a run for each tap, channels within a panel
      {130, 4, 1, 4, 5, 3, 3},    // fewer outputs than threads
      {64, 70, 1, 7, 7, 1, 1},
      {12, 18, 3, 30, 28, 3, 2},  // blocks of pixels that end within an image
      {6, 12, 6, 13, 50, 5, 5},
      {1, 3, 1, 1, 100, 1, 9},
  };
  for (const Sizes& sizes : all) {
    for (const std::int64_t stride : {1, 2, 3}) {
      for (const std::int64_t dilation : {1, 2}) {
        INFO(sizes.channels << " channels to " << sizes.outputs << ", stride " << stride);
        const std::int64_t rows = (sizes.rows - 1) / stride + 1;
        const std::int64_t columns = (sizes.columns - 1) / stride + 1;
        const Conv2dFilterBackward op{
            .kernel = {sizes.kernel_rows, sizes.kernel_columns},
            .stride = {stride, stride},
            .padding = {sizes.kernel_rows / 2 * dilation, sizes.kernel_columns / 2 * dilation},
            .dilation = {dilation, dilation},
            .groups = sizes.groups};
        check_windows(
            OpInstance(op),
            {random.uniform(Shape({2, sizes.channels, sizes.rows, sizes.columns}, f32), -1, 1),
             random.uniform(Shape({2, sizes.outputs, rows, columns}, f32), -0.1, 0.1)});
      }
    }
  }
}

TEST_CASE("conv2d: filters that are computed, in any order of their elements") {
  register_cpu_backend();
  register_reference_backend();
  Random random;
  const auto run_on = [&](const char* backend, const std::vector<HostBuffer>& inputs,
                          const std::function<Tensor(const Tensor&, const Tensor&)>& build) {
    Graph graph(small_graph_bytes);
    const Tensor x = graph.input("x", inputs[0].shape()), w = graph.input("w", inputs[1].shape());
    const Tensor y = build(x, w);
    Session session(graph.program({&y, 1}), {.backends = {make_backend(backend, {.threads = 2})}});
    session.bind(std::make_shared<const WeightSet>(std::map<std::string, Buffer>()));
    return session
        .forward({inputs[0].to_device(cpu_device()), inputs[1].to_device(cpu_device())})[0]
        .to_host();
  };
  for (const auto& [outputs, channels, taps] :
       std::vector<std::array<std::int64_t, 3>>{{33, 5, 3}, {16, 70, 3}, {20, 17, 1}, {5, 3, 2}}) {
    const std::vector<HostBuffer> inputs{
        random.uniform(Shape({2, channels, 6, 7}, f32), -1, 1),
        random.uniform(Shape({outputs, channels, taps, taps}, f32), -1, 1)};
    const std::vector<HostBuffer> turned{random.uniform(Shape({2, outputs, 6, 7}, f32), -1, 1),
                                         inputs[1]};
    const auto plain = [](const Tensor& x, const Tensor& w) { return conv2d(x, w); };
    const auto flipped = [](const Tensor& x, const Tensor& w) {
      return conv2d(x, flip(permute(w, {1, 0, 2, 3}), {2, 3}));
    };
    const auto mirrored = [](const Tensor& x, const Tensor& w) { return conv2d(x, flip(w, {3})); };
    expect_close(run_on("cpu", inputs, plain), run_on("reference", inputs, plain), 2e-5, 2e-5);
    expect_close(run_on("cpu", turned, flipped), run_on("reference", turned, flipped), 2e-5, 2e-5);
    expect_close(run_on("cpu", inputs, mirrored), run_on("reference", inputs, mirrored), 2e-5,
                 2e-5);
  }
}

TEST_CASE("conv2d: nothing outside the image takes part, not even a NaN beside a padded row") {
  Random random;
  const HostBuffer x = random.uniform(Shape({1, 2, 6, 8}, f32));
  // A value at the end of each row: the next row's left padding lies beside it in memory.
  for (int c = 0; c < 2; ++c) {
    for (int i = 0; i < 6; ++i) {
      x.view().as<float>()[(c * 6 + i) * 8 + 7] = std::numeric_limits<float>::quiet_NaN();
    }
  }
  Conv2d op;
  op.padding = {1, 1};
  check_windows(OpInstance(op), {x, random.uniform(Shape({3, 2, 3, 3}, f32))});
}

TEST_CASE("pools: paths of the CPU backend's kernel", "[every_path]") {
  Random random;
  for (const std::int64_t columns : {4, 17, 70}) {
    const HostBuffer x = random.uniform(Shape({2, 3, 15, columns}, f32));
    for (const std::int64_t kernel : {2, 3, 4}) {
      for (const std::int64_t stride : {1, 2, 3}) {
        for (const std::int64_t padding : {0, 1}) {
          MaxPool2d max;
          max.kernel = {kernel, kernel};
          max.stride = {stride, stride};
          max.padding = {padding, padding};
          check_windows(OpInstance(max), {x});
          AvgPool2d mean;
          mean.kernel = max.kernel;
          mean.stride = max.stride;
          mean.padding = max.padding;
          for (const bool all_taps : {false, true}) {
            mean.count_include_pad = all_taps;
            check_windows(OpInstance(mean), {x});
          }
        }
      }
    }
  }
  // Rows longer than what is folded at once, and windows wider than that.
  const HostBuffer wide = random.uniform(Shape({1, 1, 3, 4500}, f32));
  for (const std::int64_t kernel : {3, 2047, 2100}) {
    for (const std::int64_t stride : {2, 7}) {
      MaxPool2d max;
      max.kernel = {2, kernel};
      max.stride = {1, stride};
      max.padding = {1, 1};
      check_windows(OpInstance(max), {wide});
      AvgPool2d mean;
      mean.kernel = max.kernel;
      mean.stride = max.stride;
      mean.padding = max.padding;
      check_windows(OpInstance(mean), {wide});
    }
  }
  MaxPool2d dilated;
  dilated.kernel = {2, 2};
  dilated.dilation = {3, 2};
  dilated.padding = {0, 1, 2, 0};
  const HostBuffer x = random.uniform(Shape({1, 2, 9, 40}, f32));
  check_windows(OpInstance(dilated), {x});
  x.view().as<float>()[100] = std::numeric_limits<float>::quiet_NaN();
  check_windows(OpInstance(dilated), {x});
}

TEST_CASE("conv_transpose2d, fold2d: blocks of the CPU backend's kernels", "[every_path]") {
  Random random;
  const auto transposed = [&](const Sizes& sizes, const ConvTranspose2d& options) {
    INFO(sizes.channels << " channels to " << sizes.outputs << " in " << sizes.groups << " groups, "
                        << sizes.rows << " x " << sizes.columns << " under " << sizes.kernel_rows
                        << " x " << sizes.kernel_columns);
    ConvTranspose2d op = options;
    op.groups = sizes.groups;
    op.has_bias = true;
    check_windows(
        OpInstance(op),
        {random.uniform(Shape({2, sizes.channels, sizes.rows, sizes.columns}, f32), -1, 1),
         random.uniform(Shape({sizes.channels, sizes.outputs / sizes.groups, sizes.kernel_rows,
                               sizes.kernel_columns},
                              f32),
                        -0.2, 0.2),
         random.uniform(Shape({sizes.outputs}, f32))});
  };
  transposed({5, 40, 1, 60, 70, 3, 3}, {.padding = {1, 1}});
  transposed({7, 37, 1, 45, 53, 4, 4}, {.stride = {2, 2}, .padding = {1, 1}});
  transposed({7, 37, 1, 45, 53, 3, 3},
             {.stride = {2, 2}, .padding = {1, 2, 0, 1}, .output_padding = {1, 1}});
  transposed({6, 9, 3, 30, 41, 5, 2}, {.stride = {3, 2}, .dilation = {2, 3}});
  transposed({6, 6, 6, 33, 40, 3, 5}, {.stride = {2, 1}, .padding = {1, 2}});
  transposed({5, 4, 1, 9, 40, 6, 6}, {.stride = {3, 3}, .padding = {1, 2, 4, 2}});
  transposed({5, 4, 1, 7, 37, 3, 2}, {.stride = {2, 5}, .padding = {}, .output_padding = {1, 3}});
  transposed({6, 4, 2, 5, 19, 8, 17}, {.stride = {4, 8}, .padding = {3, 9}});
  transposed({5, 4, 1, 3, 21, 4, 7}, {.stride = {4, 3}, .dilation = {1, 2}});
  transposed({2, 3, 1, 30, 3, 19, 1}, {.padding = {4, 0}});
  check_windows(OpInstance(Fold2d{.size = {40, 21}, .kernel = {19, 3}, .padding = {3, 1}}),
                {random.uniform(Shape({1, 2 * 57, 28 * 21}, f32), -1, 1)});
  check_windows(OpInstance(Unfold2d{.kernel = {3, 2}, .stride = {2, 3}, .padding = {2, 1, 0, 3}}),
                {random.uniform(Shape({2, 5, 31, 40}, f32))});
}

TEST_CASE("resize, norms, gradients of pools: larger than a vector") {
  Random random;
  const HostBuffer image = random.uniform(Shape({2, 3, 37, 53}, f32));
  for (const char* mode : {"nearest", "linear", "cubic"}) {
    INFO(mode);
    check_windows(OpInstance(Resize{.sizes = {80, 31}, .mode = mode}), {image});
    check_windows(
        OpInstance(Resize{.sizes = {20, 107}, .mode = mode, .coordinates = "align_corners"}),
        {image});
    check_windows(OpInstance(Resize{.sizes = {5, 50, 53}, .mode = mode}), {image});
    check_windows(OpInstance(ResizeBackward{.sizes = {19, 90}, .mode = mode}), {image});
  }
  const HostBuffer wide = random.uniform(Shape({2, 12, 40, 41}, f32), 3, 4);
  const HostBuffer weight = random.uniform(Shape({12}, f32)),
                   bias = random.uniform(Shape({12}, f32));
  check_windows(OpInstance(GroupNorm{.groups = 3}), {wide, weight, bias});
  check_windows(OpInstance(BatchNorm{}), {wide, weight, random.uniform(Shape({12}, f32), 0.5, 2)});
  const MaxPool2dBackward pool{.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}};
  check_windows(OpInstance(pool), {image, random.uniform(Shape({2, 3, 19, 27}, f32))});
}

}  // namespace
}  // namespace tenon::testing
