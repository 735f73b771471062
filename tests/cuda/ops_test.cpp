// Ops on the device alone, at sizes and values that the conformance suite has not: none, odd ones,
// NaNs and infinities, ties, operands that are strided or run backwards.
#include "on_device.hpp"
#include "plan/heads.hpp"
#include "plan/launch.hpp"

#include <tenon/graph.hpp>
#include <tenon/lowered.hpp>
#include <tenon/ops.hpp>
#include <tenon/session.hpp>

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

constexpr float infinite = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

HostBuffer with_odd_values(HostBuffer values) {
  const float odd[] = {not_a_number, infinite, -infinite, 0.0f, -0.0f, 1.0f, -1.0f};
  const std::span<float> elements = values.mutable_values<float>();
  for (std::size_t i = 3; i < elements.size(); i += 5) elements[i] = odd[i / 5 % std::size(odd)];
  return values;
}

/// Many equal elements, and NaNs.
HostBuffer few_values(Random& random, const Shape& shape) {
  HostBuffer values = random.uniform(shape.with_dtype(i32), 0, 40).to(shape.dtype());
  if (shape.dtype() == f32) {
    const std::span<float> elements = values.mutable_values<float>();
    for (std::size_t i = 0; i < elements.size(); i += 97) {
      elements[i] = i % 2 == 0 ? not_a_number : -0.0f;
    }
  }
  return values;
}

TEST_CASE("cuda: sorts in runs that are merged", "[gpu][ops]") {
  Random random;
  for (const std::int64_t size : {0, 1, 511, 512, 513, 1537, 9001}) {
    for (const DType dtype : {f32, i64}) {
      const HostBuffer x = few_values(random, Shape({2, size}, dtype));
      for (const bool descends : {false, true}) {
        check_on_device(Argsort{.axis = 1, .descending = descends}, {x}, 0);
        check_on_device(Sort{.axis = 1, .descending = descends}, {x}, 0);
      }
      for (const std::int64_t k : {std::int64_t{0}, std::int64_t{1}, std::int64_t{40}, size}) {
        if (k <= size) check_on_device(Topk{.k = k, .axis = 1}, {x}, 0);
      }
    }
  }
  check_on_device(Sort{.axis = 0}, {few_values(random, Shape({700, 3}, f32))}, 0);
  check_on_device(Topk{.k = 3, .axis = 0}, {random.uniform(Shape({2000, 0}, f32))}, 0);
}

/// A step on dense inputs, whose output is input 0 `in_place`.
template <OpStruct Op>
Step step_of(const Op& op, const std::vector<Shape>& inputs, const Shape& output,
             bool in_place = false) {
  const auto operand = [](Place::Kind kind, std::size_t index, const Shape& shape) {
    return Operand{
        {.kind = kind, .index = static_cast<std::uint32_t>(index)}, shape, dense_strides(shape)};
  };
  Step step;
  step.op = OpInstance(op);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    step.inputs.push_back(operand(Place::Kind::input, i, inputs[i]));
  }
  step.output = operand(in_place ? Place::Kind::input : Place::Kind::output, 0, output);
  return step;
}

/// Whether kernels take a step, and none of them copies an operand.
bool runs_without_copies(const Step& step) {
  if (cuda::plan_step(step, nullptr)) return false;
  cuda::LaunchPlan plan;
  cuda::Emitter(plan).steps({&step, 1});
  return std::ranges::none_of(plan.instructions, [](const cuda::Instruction& instruction) {
    return std::get<cuda::Launch>(instruction).kernel == cuda::Kernel::copy;
  });
}

TEST_CASE("cuda: arrays of 2^31 elements and more are read and updated by slices") {
  const Shape cache({32, 1, 8, 65536, 128}, f16), scalar({}, i64), one({}, i32);
  const std::vector<Shape> update{cache, scalar, Shape({1, 3, 8, 128}, f32), one};
  CHECK(runs_without_copies(step_of(CacheUpdate{}, update, cache, true)));
  CHECK(cuda::plan_step(step_of(CacheUpdate{}, update, cache), nullptr));
  const Shape layer({1, 8, 65536, 128}, f16);
  CHECK(runs_without_copies(step_of(UpdateSlice{}, {cache, scalar, layer}, cache, true)));
  CHECK(cuda::plan_step(step_of(UpdateSlice{}, {cache, scalar, layer}, cache), nullptr));
  CHECK(runs_without_copies(step_of(Select{}, {cache, scalar}, layer)));
  CHECK(cuda::plan_step(step_of(Neg{}, {cache}, cache), nullptr));

  const Shape table({256000, 12288}, DType::q4_k), ids({2}, i32), rows({2, 12288}, f32);
  CHECK(runs_without_copies(
      step_of(Gather{.axis = 0}, {table.with_dtype(f16), ids}, rows.with_dtype(f16))));
  CHECK(runs_without_copies(step_of(Embedding{.dtype = f32}, {ids, table}, rows)));
  for (const std::int64_t count : {1, 8, 300}) {
    const Shape x({count, 12288}, f32), y({count, 256000}, f32);
    CHECK(runs_without_copies(step_of(Linear{}, {x, table}, y)));
  }
  const Shape experts({256, 2048, 7168}, DType::q8_0), choices({1, 8}, i32);
  const std::vector<Shape> grouped{Shape({1, 1, 7168}, f32), experts, choices};
  CHECK(runs_without_copies(step_of(GroupedLinear{}, grouped, Shape({1, 8, 2048}, f32))));
  // Weights whose rows are not dense are copied, which counts them.
  Step turned = step_of(Linear{}, {rows, table.with_dtype(f16)}, Shape({2, 256000}, f32));
  turned.inputs[1].strides = {2, 2 * 256000};
  CHECK(cuda::plan_step(turned, nullptr));
}

TEST_CASE("cuda: rows are rounded again behind heads that overwrite them in a cache") {
  const Shape x({1, 9, 2, 8}, f32), positions({9}, i32), cache({1, 1, 2, 16, 8}, f32);
  const std::vector<Shape> update{cache, Shape({}, i64), x, Shape({}, i32)};
  cuda::HeadSteps heads{step_of(Rope{}, {x, positions}, x), step_of(Rope{}, {x, positions}, x),
                        step_of(CacheUpdate{}, update, cache, true),
                        step_of(CacheUpdate{}, update, cache, true)};
  const auto move_to_slab = [](Operand& operand, std::int64_t offset) {
    operand.place = {.kind = Place::Kind::slab, .offset = offset};
  };
  for (Step* const step : {&heads.key_cache, &heads.value_cache}) {
    move_to_slab(step->inputs[0], 0);
    move_to_slab(step->output, 0);
  }
  Step merged = heads.queries;
  merged.op = OpInstance(HeadsIntoCache{.steps = &heads});
  Step linear =
      step_of(Linear{}, {Shape({9, 16}, f32), Shape({24, 16}, bf16)}, Shape({9, 24}, f32));
  move_to_slab(linear.inputs[0], 0);
  const std::vector<Step> steps{linear, linear, merged, linear};
  cuda::LaunchPlan plan;
  cuda::Emitter(plan).steps(steps);
  CHECK(std::ranges::count_if(plan.instructions, [](const cuda::Instruction& instruction) {
          return std::get<cuda::Launch>(instruction).kernel == cuda::Kernel::round_f32;
        }) == 2);
}

TEST_CASE("cuda: sorts of more elements than a merge counts are refused") {
  const auto refusal = [](const Shape& x) {
    return cuda::plan_step(step_of(Argsort{.axis = 1}, {x}, x.with_dtype(i32)), nullptr);
  };
  CHECK(refusal(Shape({4186111, 513}, f32)));
  CHECK_FALSE(refusal(Shape({4194304, 511}, f32)));
  CHECK_FALSE(refusal(Shape({1 << 20, 1 << 10}, f32)));
}

TEST_CASE("cuda: norms of rows of any length", "[gpu][ops]") {
  Random random;
  for (const std::int64_t length : {1, 7, 8, 9, 255, 576, 4096, 4104, 5001, 8192, 8193}) {
    for (const DType dtype : {f32, f16, bf16}) {
      CAPTURE(length, name(dtype));
      const double allowed = dtype == f32 ? 2e-6 : dtype == f16 ? 2e-3 : 1.6e-2;
      const HostBuffer x = random.uniform(Shape({3, length}, f32), -1, 3).to(dtype);
      const HostBuffer weight = random.uniform(Shape({length}, f32)).to(dtype);
      const HostBuffer bias = random.uniform(Shape({length}, f32)).to(dtype);
      check_on_device(RmsNorm{.eps = 1e-5}, {x, weight}, allowed);
      if (length > 1) check_on_device(LayerNorm{.eps = 1e-5}, {x, weight, bias}, allowed);
    }
  }
}

TEST_CASE("cuda: reductions of many elements, which blocks share", "[gpu][ops]") {
  Random random;
  for (const std::int64_t count : {32768, 32769, 70001}) {
    const HostBuffer x = random.uniform(Shape({2, count}, f32));
    check_on_device(Sum{{.axes = {1}}}, {x});
    check_on_device(Mean{{.axes = {1}}}, {x});
    check_on_device(Max{{.axes = {0, 1}}}, {few_values(random, x.shape())}, 0);
    check_on_device(Sum{{.axes = {0}}}, {random.uniform(Shape({count, 2}, i32), -9, 9)}, 0);
    check_on_device(Any{{.axes = {1}}},
                    {random.uniform(Shape({2, count}, i32), 0, 2).to(DType::boolean)}, 0);
  }
  const HostBuffer cube = random.uniform(Shape({200, 3, 201}, bf16));
  check_on_device(Mean{{.axes = {0, 2}, .keep_dims = true}}, {cube}, 1e-2);
}

TEST_CASE("cuda: running sums of long lanes", "[gpu][ops]") {
  Random random;
  for (const std::int64_t length : {512, 513, 1024, 1025, 3001}) {
    const HostBuffer x = random.uniform(Shape({2, length}, f32), 0, 2);
    check_on_device(Cumsum{.axis = 1}, {x});
    check_on_device(Cumsum{.axis = 1}, {x.to(f16)}, 2e-3);
    check_on_device(Cumsum{.axis = 1}, {random.uniform(x.shape().with_dtype(i64), -99, 99)}, 0);
    check_on_device(Cummax{{.axis = 1}}, {few_values(random, x.shape())}, 0);
    check_on_device(Cummin{{.axis = 0}}, {few_values(random, Shape({length, 3}, f32))}, 0);
  }
}

TEST_CASE("cuda: scattered sums and products of halves are rounded once", "[gpu][ops]") {
  Random random;
  for (const DType dtype : {f16, bf16}) {
    CAPTURE(name(dtype));
    const double rounding = dtype == f16 ? 0x1p-11 : 0x1p-8;
    const auto filled = [&](const Shape& shape, double value) {
      return random.uniform(shape, value, value).to(dtype);
    };
    const HostBuffer zeros = HostBuffer::zeros(Shape({2, 3}, dtype));
    const HostBuffer index = random.uniform(Shape({6000, 3}, i32), 0, 2);
    check_on_device(Scatter{.axis = 0, .mode = "add"},
                    {zeros, index, filled(Shape({6000, 3}, f32), 1)}, rounding);
    // 300 factors of 1 + 2^-7 or so are 10.3, of which single roundings lose much.
    const HostBuffer many = random.uniform(Shape({2, 300}, i64), 0, 1);
    check_on_device(
        Scatter{.axis = 1, .mode = "mul"},
        {filled(Shape({2, 3}, f32), 1.5), many, filled(Shape({2, 300}, f32), 1.0078125)}, rounding);
    check_on_device(Scatter{.axis = 0, .mode = "max"},
                    {zeros, index, random.uniform(Shape({6000, 3}, f32)).to(dtype)}, 0);
    const HostBuffer none = HostBuffer::zeros(Shape({0, 3}, dtype));
    check_on_device(Scatter{.axis = 0, .mode = "add"},
                    {filled(Shape({2, 3}, f32), 3), none.to(i32), none}, 0);
  }
}

TEST_CASE("cuda: integers are rounded to bf16 once", "[gpu][ops]") {
  const std::int64_t half = 16842752;  // between two numbers of bf16; f32 has only even ones there
  const HostBuffer x = HostBuffer::of<std::int64_t>(
      Shape({9}, i64),
      {half - 1, half, half + 1, -half - 1, 3, 0, (std::int64_t{1} << 62) + 1,
       std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()});
  check_on_device(Cast{.dtype = bf16}, {x}, 0);
  check_on_device(Cast{.dtype = bf16}, {x.slice(0, 0, 6).to(i32)}, 0);
  check_on_device(Cast{.dtype = f32}, {x}, 0);
  const OpCase iota{.name = "iota",
                    .op = OpInstance(Iota{.size = 5, .start = half - 2, .dtype = bf16}),
                    .inputs = {},
                    .output = {}};
  expect_close(run_case(iota, device_backends(test_device()), Order::dense),
               run_reference(iota.op, {}), 0, 0);
}

TEST_CASE("cuda: complex numbers that lie between multiples of 8 bytes", "[gpu][ops]") {
  Random random;
  Graph graph;
  const Graph::Recording recording(graph);
  const Tensor x = graph.input("x", Shape({3, 11}, f32));
  const Tensor index = graph.input("index", Shape({4}, i32));
  const Tensor numbers = bitcast(reshape(slice(x, 1, 1, 11), {3, 5, 2}), c64);
  const std::vector<Tensor> outputs{bitcast(concat({numbers, numbers}, 1), f32),
                                    bitcast(gather(numbers, index, 1), f32),
                                    bitcast(pad(numbers, {0, 1}, {0, 2}), f32)};
  const HostBuffer given[] = {random.uniform(Shape({3, 11}, f32)),
                              HostBuffer::of<std::int32_t>(Shape({4}, i32), {4, 0, 2, 2})};
  const auto run = [&](const std::vector<BackendPtr>& backends) {
    Session session(graph.program(outputs), {.backends = backends, .forbid_fallback = true});
    session.bind(std::make_shared<const WeightSet>(std::map<std::string, Buffer>()));
    std::vector<Buffer> inputs;
    for (const HostBuffer& input : given) inputs.push_back(input.to_device(cpu_device()));
    return session.forward(std::move(inputs));
  };
  const std::vector<Buffer> got = run(device_backends(test_device()));
  const std::vector<Buffer> wanted = run({make_backend("reference")});
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    expect_close(got[i].to_host(), wanted[i].to_host(), 0, 0);
  }
}

TEST_CASE("cuda: reshapes that no view is", "[gpu][ops]") {
  Random random;
  const HostBuffer x = random.uniform(Shape({3, 4, 5}, f32));
  check_on_device(MergeAxes{.axis = 0, .count = 2}, {x}, 0);
  check_on_device(SplitAxis{.axis = 1, .sizes = {2, 2}}, {x}, 0);
  check_on_device(Reshape{.dims = {10, 6}}, {x}, 0);
  check_on_device(Reshape{.dims = {0, 7}}, {random.uniform(Shape({2, 0}, i64))}, 0);
}

TEST_CASE("cuda: searches in rows", "[gpu][ops]") {
  Random random;
  const HostBuffer sorted = HostBuffer::of<float>(
      Shape({2, 6}, f32), {-infinite, -1, -1, 0, 2, not_a_number, 1, 1, 1, 1, infinite, infinite});
  const HostBuffer values = with_odd_values(random.uniform(Shape({2, 41}, f32)));
  for (const bool right : {false, true}) {
    check_on_device(Searchsorted{.right = right}, {sorted, values}, 0);
    check_on_device(Searchsorted{.right = right},
                    {random.uniform(Shape({0}, i32)), random.uniform(Shape({3}, i32))}, 0);
  }
}

TEST_CASE("cuda: special functions at their poles, zeros and far out", "[gpu][ops]") {
  const HostBuffer x = HostBuffer::of<float>(
      Shape({26}, f32), {0.0f,      -0.0f,        1,       -1,      2,     -2,       0.5f,
                         -0.5f,     1.4616f,      1e-30f,  -1e-30f, 1e30f, 0.99999f, -0.99999f,
                         1e-4f,     -7.25f,       -100.5f, 33.5f,   10,    9.9999f,  infinite,
                         -infinite, not_a_number, 0.999f,  -0.25f,  3e-39f});
  check_on_device(Erfinv{}, {x}, 1e-5);
  check_on_device(Lgamma{}, {x}, 1e-5);
  check_on_device(Digamma{}, {x}, 1e-5);
  for (const std::int64_t order : {1, 2, 3, 20}) {
    check_on_device(Polygamma{.order = order}, {x}, 1e-4);
  }
}

TEST_CASE("cuda: codes of 8 bits", "[gpu][ops]") {
  Random random;
  const HostBuffer x = with_odd_values(random.uniform(Shape({3, 5, 7}, f32), -400, 400));
  const HostBuffer scales = random.uniform(Shape({5}, f32), 0.1, 3);
  const HostBuffer zeros = random.uniform(Shape({5}, i8), -9, 9);
  check_on_device(QuantizeLinear{.axis = 1, .dtype = DType::i8}, {x, scales, zeros}, 0);
  check_on_device(QuantizeLinear{}, {x, HostBuffer::of<float>(Shape({}, f32), {0.25f})}, 0);
  const HostBuffer codes = random.uniform(Shape({3, 5, 7}, i8), -128, 128);
  check_on_device(DequantizeLinear{.axis = 1}, {codes, scales, zeros}, 0);
  const HostBuffer left = random.uniform(Shape({2, 3, 9}, DType::u8), 0, 256);
  const HostBuffer right = random.uniform(Shape({9, 5}, i8), -128, 128);
  const HostBuffer left_zero = HostBuffer::of<std::uint8_t>(Shape({1}, DType::u8), {131});
  check_on_device(MatmulInteger{}, {left, right}, 0);
  check_on_device(MatmulInteger{}, {left, right, left_zero, zeros}, 0);
  check_on_device(Conv2dInteger{.stride = {2, 1}, .padding = {1, 0, 0, 1}, .groups = 2},
                  {random.uniform(Shape({2, 4, 6, 5}, DType::u8), 0, 256),
                   random.uniform(Shape({6, 2, 3, 2}, i8), -128, 128), left_zero,
                   random.uniform(Shape({6}, i8), -9, 9)},
                  0);
}

TEST_CASE("cuda: products of codes, at sizes that no tile divides", "[gpu][ops]") {
  Random random;
  constexpr DType types[] = {DType::i8, DType::u8};
  const auto codes = [&](const Shape& shape, DType dtype) {
    const bool is_signed = dtype == DType::i8;
    return random.uniform(shape.with_dtype(dtype), is_signed ? -128 : 0, is_signed ? 128 : 256);
  };
  for (const DType left : types) {
    for (const DType right : types) {
      CAPTURE(name(left), name(right));
      const HostBuffer a = codes(Shape({66, 70}, f32), left);
      const HostBuffer b = codes(Shape({70, 67}, f32), right);
      const HostBuffer a_zero = codes(Shape({1}, f32), left);
      check_on_device(MatmulInteger{}, {a, b}, 0);
      check_on_device(MatmulInteger{}, {a, b, a_zero}, 0);
      check_on_device(MatmulInteger{}, {a, b, a_zero, codes(Shape({67}, f32), right)}, 0);
      check_on_device(MatmulInteger{}, {a, b, a_zero, codes(Shape({}, f32), right)}, 0);
      check_on_device(MatmulInteger{},
                      {codes(Shape({2, 1, 3, 5}, f32), left), codes(Shape({3, 5, 9}, f32), right)},
                      0);
    }
    check_on_device(Matmul{}, {codes(Shape({9, 40}, f32), left), codes(Shape({40, 3}, f32), left)},
                    0);
    check_on_device(MatmulInteger{},
                    {codes(Shape({33}, f32), left), codes(Shape({33, 2}, f32), left)}, 0);
    check_on_device(MatmulInteger{},
                    {codes(Shape({3, 0}, f32), left), codes(Shape({0, 4}, f32), left)}, 0);
    check_on_device(MatmulInteger{},
                    {codes(Shape({0, 7}, f32), left), codes(Shape({7, 4}, f32), left)}, 0);
  }
}

TEST_CASE("cuda: convolutions of codes, at sizes that no tile divides", "[gpu][ops]") {
  Random random;
  constexpr DType u8 = DType::u8;
  const auto codes = [&](const Shape& shape) {
    const bool has_sign = shape.dtype() == i8;
    return random.uniform(shape, has_sign ? -128 : 0, has_sign ? 128 : 256);
  };
  const auto check = [&](const Conv2dInteger& op, const Shape& x, const Shape& w, bool has_zeros) {
    std::vector<HostBuffer> inputs{codes(x), codes(w)};
    if (has_zeros) {
      inputs.push_back(codes(Shape({}, x.dtype())));
      inputs.push_back(codes(Shape({w[0]}, w.dtype())));
    }
    check_on_device(op, inputs, 0);
  };
  check({.padding = {1, 1}}, Shape({2, 3, 6, 7}, u8), Shape({5, 3, 3, 3}, i8), true);
  check({.groups = 2}, Shape({1, 6, 5, 9}, i8), Shape({14, 3, 2, 1}, i8), true);
  check({.stride = {2, 1}, .padding = {0, 1, 1, 0}, .dilation = {1, 2}}, Shape({1, 2, 7, 8}, u8),
        Shape({4, 2, 2, 3}, u8), true);
  check({.groups = 3}, Shape({2, 3, 4, 4}, i8), Shape({3, 1, 4, 4}, u8), false);
  check({}, Shape({0, 2, 4, 4}, i8), Shape({3, 2, 1, 1}, i8), false);
  check({}, Shape({1, 0, 4, 5}, i8), Shape({3, 0, 1, 1}, i8), false);
}

TEST_CASE("cuda: random bits are the reference's", "[gpu][ops]") {
  const HostBuffer key = HostBuffer::of<std::uint32_t>(Shape({2}, u32), {0xDEADBEEF, 7});
  const HostBuffer start = HostBuffer::of<std::int64_t>(Shape({}, i64), {-3});
  for (const std::int64_t count : {0, 1, 3, 4, 5, 1030}) {
    check_on_device(RandomBits{.dims = {count}}, {key}, 0);
    check_on_device(RandomBits{.dims = {1, count}, .stream = -5}, {key, start}, 0);
    check_on_device(RandomBits{.stream = -5, .like_last = true},
                    {key, start, HostBuffer::zeros(Shape({count, 1}, f16))}, 0);
  }
}

TEST_CASE("cuda: transposed convolutions, and windows as columns", "[gpu][ops]") {
  Random random;
  for (const DType dtype : {f32, f16}) {
    const auto values = [&](const Shape& shape) { return random.uniform(shape).to(dtype); };
    const double allowed = dtype == f16 ? 4e-3 : 1e-4;
    check_on_device(ConvTranspose2d{.stride = {3, 2},
                                    .padding = {1, 0, 2, 1},
                                    .output_padding = {1, 1},
                                    .dilation = {1, 2},
                                    .groups = 2,
                                    .has_bias = true},
                    {values(Shape({2, 4, 3, 5}, f32)), values(Shape({4, 3, 2, 3}, f32)),
                     values(Shape({6}, f32))},
                    allowed);
    check_on_device(ConvTranspose2d{.has_bias = true},
                    {values(Shape({1, 0, 3, 3}, f32)), values(Shape({0, 2, 2, 2}, f32)),
                     values(Shape({2}, f32))},
                    allowed);
    const Unfold2d unfold{
        .kernel = {3, 2}, .stride = {2, 1}, .padding = {1, 2, 0, 1}, .dilation = {2, 3}};
    check_on_device(unfold, {values(Shape({2, 3, 7, 6}, f32))}, allowed);
    check_on_device(Fold2d{.size = {7, 6},
                           .kernel = unfold.kernel,
                           .stride = unfold.stride,
                           .padding = unfold.padding,
                           .dilation = unfold.dilation},
                    {values(Shape({2, 18, 12}, f32))}, allowed);
  }
  check_on_device(Unfold2d{.kernel = {1, 1}}, {random.uniform(Shape({0, 3, 2, 2}, f32))});
}

TEST_CASE("cuda: gradients of windows", "[gpu][ops]") {
  Random random;
  const HostBuffer x = few_values(random, Shape({2, 3, 7, 6}, f32));
  const HostBuffer upstream = random.uniform(Shape({2, 3, 4, 6}, f32));
  check_on_device(MaxPool2dBackward{.kernel = {3, 2}, .stride = {2, 1}, .padding = {1, 1, 1, 0}},
                  {x, upstream});
  for (const bool all : {false, true}) {
    check_on_device(
        AvgPool2dBackward{
            .kernel = {3, 2}, .stride = {2, 1}, .padding = {1, 1, 1, 0}, .count_include_pad = all},
        {x, upstream});
  }
  const Conv2dFilterBackward filter{
      .kernel = {2, 3}, .stride = {2, 1}, .padding = {3, 0, 1, 4}, .dilation = {1, 2}, .groups = 2};
  check_on_device(
      filter, {random.uniform(Shape({3, 4, 5, 6}, f32)), random.uniform(Shape({3, 6, 4, 9}, f32))});
  check_on_device(
      filter, {random.uniform(Shape({0, 4, 5, 6}, f32)), random.uniform(Shape({0, 6, 4, 9}, f32))});
  // An infinite gradient meets the zeros outside of the image.
  check_on_device(
      Conv2dFilterBackward{.kernel = {2, 2}, .padding = {1, 1, 1, 1}},
      {random.uniform(Shape({1, 1, 2, 2}, f32)),
       HostBuffer::of<float>(Shape({1, 1, 3, 3}, f32), {infinite, 1, 2, 3, 4, 5, 6, 7, 8})});
}

TEST_CASE("cuda: resize and its gradient", "[gpu][ops]") {
  Random random;
  for (const char* mode : {"nearest", "linear", "cubic"}) {
    for (const char* coordinates : {"half_pixel", "align_corners", "asymmetric"}) {
      const Resize up{.sizes = {9, 1, 4}, .mode = mode, .coordinates = coordinates};
      const ResizeBackward back{.sizes = {5, 3, 7}, .mode = mode, .coordinates = coordinates};
      check_on_device(up, {random.uniform(Shape({2, 5, 3, 7}, f32))});
      check_on_device(back, {random.uniform(Shape({2, 9, 1, 4}, f32))});
    }
  }
  check_on_device(Resize{.sizes = {6}}, {random.uniform(Shape({0, 3}, f32))});
  check_on_device(Resize{.sizes = {6}}, {random.uniform(Shape({2, 3}, f32)).to(bf16)}, 1e-2);
}

template <class Op>
Op grid_op(const char* mode, const char* padding, bool aligns) {
  Op op;
  op.mode = mode;
  op.padding = padding;
  op.align_corners = aligns;
  return op;
}

TEST_CASE("cuda: grid_sample and its gradients", "[gpu][ops]") {
  Random random;
  for (const DType dtype : {f32, f16}) {
    const double allowed = dtype == f16 ? 8e-3 : 2e-4;
    const HostBuffer x = random.uniform(Shape({2, 3, 5, 4}, f32)).to(dtype);
    const HostBuffer grid =
        with_odd_values(random.uniform(Shape({2, 3, 6, 2}, f32), -1.6, 1.6)).to(dtype);
    const HostBuffer upstream = random.uniform(Shape({2, 3, 3, 6}, f32)).to(dtype);
    for (const char* padding : {"zeros", "border", "reflection"}) {
      for (const bool aligns : {false, true}) {
        for (const char* mode : {"bilinear", "nearest"}) {
          check_on_device(grid_op<GridSample>(mode, padding, aligns), {x, grid}, allowed);
          check_on_device(grid_op<GridSampleBackward>(mode, padding, aligns), {x, grid, upstream},
                          allowed);
          check_on_device(grid_op<GridSampleGridBackward>(mode, padding, aligns),
                          {x, grid, upstream}, allowed);
        }
      }
    }
  }
  check_on_device(GridSampleBackward{}, {random.uniform(Shape({1, 2, 3, 3}, f32)),
                                         random.uniform(Shape({1, 0, 2, 2}, f32)),
                                         random.uniform(Shape({1, 2, 0, 2}, f32))});
}

TEST_CASE("cuda: roi_align and its gradient", "[gpu][ops]") {
  Random random;
  const HostBuffer boxes = HostBuffer::of<float>(
      Shape({5, 4}, f32),
      {0, 0, 9, 7, 2.5f, 1, 2.6f, 1.2f, -4, -3, 3, 2, 5, 5, 1, 1, 0, 0, not_a_number, 4});
  const HostBuffer images = HostBuffer::of<std::int32_t>(Shape({5}, i32), {1, 0, 1, 1, 0});
  const HostBuffer x = random.uniform(Shape({2, 3, 8, 10}, f32));
  for (const bool aligned : {false, true}) {
    for (const std::int64_t ratio : {0, 2}) {
      check_on_device(
          RoiAlign{.size = {2, 3}, .scale = 0.9, .sampling_ratio = ratio, .aligned = aligned},
          {x, boxes, images});
      check_on_device(
          RoiAlignBackward{
              .size = {2, 3}, .scale = 0.9, .sampling_ratio = ratio, .aligned = aligned},
          {x, boxes, images, random.uniform(Shape({5, 3, 2, 3}, f32))});
    }
  }
  check_on_device(RoiAlignBackward{.size = {1, 1}},
                  {x.to(f16), random.uniform(Shape({0, 4}, f16)), random.uniform(Shape({0}, i32)),
                   random.uniform(Shape({0, 3, 1, 1}, f16))});
}

TEST_CASE("cuda: boxes that overlap better ones", "[gpu][ops]") {
  Random random;
  HostBuffer boxes = random.uniform(Shape({2, 60, 4}, f32), 0, 10);
  HostBuffer scores = few_values(random, Shape({2, 3, 60}, f32));
  for (const double threshold : {0.0, 0.3, 1.0}) {
    for (const bool centred : {false, true}) {
      check_on_device(NonMaxSuppression{.capacity = 70,
                                        .max_per_class = 15,
                                        .iou_threshold = threshold,
                                        .center_point_box = centred},
                      {boxes, scores}, 0);
    }
    check_on_device(
        NonMaxSuppression{.capacity = 9, .iou_threshold = threshold, .score_threshold = 20},
        {boxes, scores}, 0);
  }
  check_on_device(NonMaxSuppression{.capacity = 3, .max_per_class = 0}, {boxes, scores}, 0);
  check_on_device(NonMaxSuppression{.capacity = 3},
                  {random.uniform(Shape({1, 0, 4}, f32)), random.uniform(Shape({1, 2, 0}, f32))},
                  0);
}

TEST_CASE("cuda: recurrences", "[gpu][ops]") {
  Random random;
  const auto values = [&](std::initializer_list<std::int64_t> dims) {
    return random.uniform(Shape(dims, f32), -0.5, 0.5);
  };
  const HostBuffer lengths = HostBuffer::of<std::int32_t>(Shape({3}, i32), {5, 0, 2});
  for (const std::int64_t columns : {1, 7}) {
    check_on_device(SelectiveScan{.has_lengths = true},
                    {values({3, 5, 4, 2}), values({3, 5, 4}), values({4, columns}),
                     values({3, 5, 2, 7}), values({3, 5, 2, 7}), values({3, 7, 4, 2}), lengths});
  }
  const HostBuffer k = values({3, 5, 2, 6});
  for (const bool every : {false, true}) {
    check_on_device(Wkv7{.has_lengths = true, .every_state = every},
                    {k, values({3, 5, 2, 6}), values({3, 5, 2, 6}), values({3, 5, 2, 9}),
                     values({3, 5, 2, 6}), values({3, 5, 2, 6}), values({3, 6, 2, 9}), lengths});
  }
  const HostBuffer none = values({3, 0, 2, 6});
  check_on_device(Wkv7{},
                  {none, none, none, values({3, 0, 2, 9}), none, none, values({3, 6, 2, 9})});
}

TEST_CASE("cuda: Fourier transforms of sizes with any factors", "[gpu][ops]") {
  Random random;
  for (const std::int64_t size : {1, 2, 3, 4, 7, 8, 30, 64, 97, 360}) {
    CAPTURE(size);
    const HostBuffer x = random.uniform(Shape({2, size, 3, 2}, f32));
    check_on_device(Fft{.axis = 1}, {x}, 1e-5);
    check_on_device(Fft{.axis = 1, .inverse = true}, {x}, 1e-5);
    check_on_device(Rfft{.axis = 1}, {random.uniform(Shape({3, size, 2}, f32))}, 1e-5);
    check_on_device(Irfft{.axis = 0, .size = size},
                    {random.uniform(Shape({size / 2 + 1, 3, 2}, f32))}, 1e-5);
  }
  check_on_device(Fft{.axis = 1}, {random.uniform(Shape({2, 0, 2}, f32))});
  check_on_device(Rfft{.axis = 0}, {random.uniform(Shape({5, 0}, f32))});
}

}  // namespace
}  // namespace tenon::testing
