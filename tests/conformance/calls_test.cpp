// Calls on random values that take their own paths through the CPU's kernels, against the reference: one a line.
#include "run_case.hpp"
#include "support/call_text.hpp"
#include "support/op_testing.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/backends/reference.hpp>

#include <string_view>
#include <vector>

namespace tenon::testing {
namespace {

/// The call on values in [low, high), those of indices and counts in [0, 3).
OpCase case_of(std::string_view call, Random& random, double low, double high) {
  const Function main = program_of_call(call).main();
  OpCase made;
  made.op = main.body.back().op;
  for (std::size_t i = 0; i < main.parameter_count; ++i) {
    const Shape& shape = *main.values[i].shape;
    const bool counts = shape.dtype() == i32 || shape.dtype() == i64;
    made.inputs.push_back(random.uniform(shape, counts ? 0 : low, counts ? 3 : high));
  }
  made.output = run_reference(made.op, made.inputs);
  return made;
}

void check(std::initializer_list<std::string_view> calls, double low = -2, double high = 2) {
  register_cpu_backend();
  register_reference_backend();
  const std::vector<BackendPtr> backends{make_backend("cpu", {.threads = 2}),
                                         make_backend("reference")};
  Random random;
  for (const std::string_view call : calls) {
    INFO(call);
    const OpCase made = case_of(call, random, low, high);
    std::vector<PlanReport::Part> parts;
    expect_close(run_case(made, backends, Order::dense, &parts), made.output, 2e-5, 2e-5);
    for (const PlanReport::Part& part : parts) CHECK(part.backend == "cpu");
    expect_close(run_case(made, backends, Order::permuted), made.output, 2e-5, 2e-5);
  }
}

TEST_CASE("calls: windows and what they came from") {
  check({
      "max_pool2d_backward(f32[2, 3, 9, 40], f32[2, 3, 4, 19], kernel=[3, 3], stride=[2, 2])",
      "max_pool2d_backward(f32[2, 3, 9, 40], f32[2, 3, 7, 38], kernel=[3, 3], stride=[1, 1])",
      "max_pool2d_backward(f32[2, 3, 9, 40], f32[2, 3, 3, 14], kernel=[3, 3], stride=[3, 3], "
      "padding=[1, 1])",
      "max_pool2d_backward(f32[2, 3, 9, 40], f32[2, 3, 5, 36], kernel=[3, 3], stride=[1, 1], "
      "dilation=[2, 2])",
      "max_pool2d_backward(f64[2, 3, 9, 11], f64[2, 3, 4, 5], kernel=[3, 3], stride=[2, 2])",
      "avg_pool2d_backward(f32[2, 3, 9, 40], f32[2, 3, 4, 19], kernel=[3, 3], stride=[2, 2])",
      "avg_pool2d_backward(f64[2, 3, 9, 11], f64[2, 3, 7, 9], kernel=[3, 3], stride=[1, 1])",
      "fold2d(f32[2, 18, 76], size=[9, 40], kernel=[3, 3], stride=[2, 2])",
      "fold2d(f32[2, 18, 133], size=[9, 40], kernel=[3, 3], stride=[1, 2])",
      "fold2d(f32[2, 12, 140], size=[9, 40], kernel=[3, 2], stride=[1, 2], padding=[0, 0])",
      "fold2d(f32[2, 18, 52], size=[9, 40], kernel=[3, 3], stride=[2, 3])",
      "fold2d(f64[1, 18, 20], size=[9, 11], kernel=[3, 3], stride=[2, 2])",
      "conv_transpose2d(f32[2, 4, 5, 20], f32[4, 6, 3, 3], stride=[2, 2])",
      "conv_transpose2d(f32[2, 4, 5, 20], f32[4, 6, 3, 3], f32[6], stride=[1, 2], has_bias=True)",
      "conv_transpose2d(f32[1, 4, 3, 5], f32[4, 2, 1, 1], f32[2], stride=[3, 3], has_bias=True, "
      "output_padding=[2, 1])",
  });
}

TEST_CASE("calls: images") {
  check({
      "resize(f32[2, 3, 9, 40], sizes=[9, 80], mode=\"linear\")",
      "resize(f32[2, 3, 9, 40], sizes=[18, 40], mode=\"linear\")",
      "resize(f32[2, 3, 9, 40], sizes=[5, 21], mode=\"cubic\")",
      "resize(f32[2, 3, 9, 40], sizes=[20, 21], mode=\"nearest\")",
      "resize(f32[2, 3, 1, 1], sizes=[4, 21], mode=\"linear\")",
      "resize(f64[2, 3, 5, 7], sizes=[4, 21], mode=\"cubic\")",
      "resize_backward(f32[2, 3, 18, 80], sizes=[9, 40], mode=\"linear\")",
      "resize_backward(f64[2, 3, 8, 9], sizes=[4, 5], mode=\"cubic\")",
      "grid_sample(f32[2, 3, 5, 7], f32[2, 4, 9, 2], padding=\"reflection\")",
      "grid_sample(f32[2, 3, 5, 7], f32[2, 4, 9, 2], padding=\"reflection\", align_corners=True)",
      "grid_sample(f32[2, 3, 1, 1], f32[2, 4, 9, 2], padding=\"reflection\", align_corners=True)",
      "grid_sample(f64[2, 3, 5, 7], f64[2, 4, 9, 2], padding=\"reflection\", mode=\"bilinear\")",
      "grid_sample(f32[2, 3, 5, 7], f32[2, 4, 9, 2], padding=\"border\", mode=\"nearest\")",
      "grid_sample_backward(f32[2, 3, 5, 7], f32[2, 4, 9, 2], f32[2, 3, 4, 9], "
      "padding=\"reflection\")",
      "grid_sample_grid_backward(f32[2, 3, 5, 7], f32[2, 4, 9, 2], f32[2, 3, 4, 9], "
      "padding=\"reflection\")",
      "grid_sample_grid_backward(f64[2, 3, 5, 7], f64[2, 4, 9, 2], f64[2, 3, 4, 9], "
      "padding=\"border\", mode=\"bilinear\")",
      "non_max_suppression(f32[2, 30, 4], f32[2, 3, 30], capacity=20, iou_threshold=0.1)",
      "non_max_suppression(f64[1, 30, 4], f64[1, 2, 30], capacity=9, center_point_box=True)",
  });
}

TEST_CASE("calls: random bits in the sizes of another value") {
  check({
      "random_bits(u32[2], f32[7, 13], stream=3, like_last=True)",
      "random_bits(u32[2], i64, f32[70, 3], like_last=True)",
  });
}

TEST_CASE("calls: integers of every size") {
  check(
      {
          "matmul(i8[5, 9], i8[9, 17])",
          "matmul(i16[5, 9], i16[9, 17])",
          "matmul(u8[5, 9], u8[9, 17])",
          "matmul(u16[2, 5, 9], u16[9, 17])",
          "matmul(u32[5, 9], u32[9, 17])",
          "matmul(i64[5, 9], i64[9, 17])",
          "scatter(i8[6, 7], i64[3, 5], i8[3, 5], mode=\"add\")",
          "scatter(u8[6, 7], i64[3, 5], u8[3, 5], mode=\"mul\")",
          "scatter(i16[6, 7], i32[6, 3], i16[6, 3], axis=1, mode=\"min\")",
          "scatter(u16[6, 7], i64[3, 5], u16[3, 5], mode=\"max\")",
          "scatter(u32[6, 7], i64[3, 5], u32[3, 5], mode=\"add\")",
          "scatter(f64[6, 7], i64[3, 5], f64[3, 5], mode=\"mul\")",
          "cumsum(i8[5, 9], axis=0)",
          "cumsum(u16[5, 9], axis=1)",
          "sort(u8[5, 300], axis=1)",
          "argsort(i16[5, 30], axis=1, descending=True)",
          "topk(u32[5, 30], k=7, axis=1)",
          "conv2d_integer(u8[1, 4, 9, 9], i8[6, 4, 3, 3], u8, i8[6])",
          "conv2d_integer(i8[2, 6, 9, 9], u8[6, 2, 3, 2], i8, groups=3, stride=[2, 1])",
          "matmul_integer(i8[3, 5, 70], u8[3, 70, 33], i8, u8[33])",
          "matmul_integer(u8[70], i8[70, 33])",
      },
      0, 100);
}

}  // namespace
}  // namespace tenon::testing
