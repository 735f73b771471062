// The CPU backend's kernels for all plain types against the reference: every type, sizes around and
// beyond a block, broadcasting, strided operands, and values at the ends of their ranges.
#include "run_case.hpp"
#include "support/op_testing.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/ops.hpp>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

namespace tenon::testing {
namespace {

constexpr DType floats[] = {f16, bf16, f32, f64};
constexpr DType numbers[] = {i8, i16, i32, i64, u8, u16, u32, f16, bf16, f32, f64};
constexpr DType plain[] = {boolean, i8, i16, i32, i64, u8, u16, u32, f16, bf16, f32, f64};

const std::vector<BackendPtr>& backends() {
  static const std::vector<BackendPtr> all = [] {
    register_cpu_backend();
    register_reference_backend();
    return std::vector<BackendPtr>{make_backend("cpu", {.threads = 3}), make_backend("reference")};
  }();
  return all;
}

/// Uniform values, among them zeros, the ends of whole types, infinities and NaNs.
HostBuffer values(Random& random, const Shape& shape, bool special) {
  const DType dtype = shape.dtype();
  HostBuffer array = dtype == boolean ? random.uniform(shape, 0, 2) : random.uniform(shape, -9, 9);
  if (!is_floating(dtype) && dtype != boolean && dtype != i8 && dtype != i16 && dtype != i32 &&
      dtype != i64) {
    array = random.uniform(shape, 0, 200);
  }
  if (!special) return array;
  const std::int64_t count = shape.elements();
  for (std::int64_t i = 0; i < count; i += 7) {
    std::byte* at = array.view().data + i * block_bytes(dtype);
    const std::int64_t kind = i / 7 % 4;
    if (is_floating(dtype)) {
      constexpr double infinity = std::numeric_limits<double>::infinity();
      const double choices[] = {infinity, -infinity, std::numeric_limits<double>::quiet_NaN(),
                                -0.0};
      store_double(dtype, at, choices[kind]);
    } else if (dtype != boolean) {
      constexpr std::int64_t choices[] = {std::numeric_limits<std::int64_t>::max(),
                                          std::numeric_limits<std::int64_t>::min(), 0, -1};
      store_int64(dtype, at, choices[kind]);
    }
  }
  return array;
}

/// Half an ulp of the result for what was rounded once, some ulps for functions.
double allowed(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return 0x1p-10;
    case DType::bf16:
      return 0x1p-7;
    case DType::f32:
      return 0x1p-20;
    case DType::f64:
      return 0x1p-48;
    default:
      return 0;
  }
}

void check(const OpInstance& op, std::vector<HostBuffer> inputs, double absolute = 0) {
  OpCase made;
  made.op = op;
  made.inputs = std::move(inputs);
  made.output = run_reference(made.op, made.inputs);
  const double relative = allowed(made.output.shape().dtype());
  // One ulp of f16's subnormal numbers, which functions reach.
  if (made.output.shape().dtype() == DType::f16) absolute = std::max(absolute, 0x1p-24);
  for (const bool stride : {false, true}) {
    std::string shapes;
    for (const HostBuffer& input : made.inputs) {
      shapes += ' ';
      shapes += to_string(input.shape());
    }
    INFO(op.def()->name << shapes << (stride ? ", strided" : ""));
    std::vector<PlanReport::Part> parts;
    const HostBuffer got =
        run_case(made, backends(), stride ? Order::permuted : Order::dense, &parts);
    for (const PlanReport::Part& part : parts) CHECK(part.backend == "cpu");
    if (is_block(got.shape().dtype())) {
      expect_close(got.to(f32), made.output.to(f32), absolute, relative);
    } else {
      expect_close(got, made.output, absolute, relative);
    }
  }
}

template <class Op>
void check_binary(Random& random, DType dtype, const Op& op, bool special) {
  const auto make = [&](std::initializer_list<Axis> sizes) {
    return values(random, Shape(sizes, dtype), special);
  };
  check(OpInstance(op), {make({3, 517}), make({3, 517})});
  check(OpInstance(op), {make({1041}), make({})});
  check(OpInstance(op), {make({}), make({7, 5})});
  check(OpInstance(op), {make({4, 1, 9}), make({3, 1})});
  check(OpInstance(op), {make({5, 0}), make({1})});
  check(OpInstance(op), {make({}), make({})});
}

template <class... Ops>
void check_arithmetic(bool special) {
  Random random;
  for (const DType dtype : numbers) (check_binary(random, dtype, Ops{}, special), ...);
}

TEST_CASE("every type: arithmetic of two operands", "[every_type]") {
  check_arithmetic<Add, Sub, Mul, Minimum, Maximum>(true);
  check_arithmetic<Div, Remainder, Fmod>(true);
  check_arithmetic<Pow>(false);
  Random random;
  for (const DType dtype : floats) {
    check_binary(random, dtype, Pow{}, true);
    check_binary(random, dtype, Atan2{}, true);
    check_binary(random, dtype, Hypot{}, true);
  }
}

TEST_CASE("every type: comparisons", "[every_type]") {
  Random random;
  for (const DType dtype : plain) {
    check_binary(random, dtype, Eq{}, true);
    check_binary(random, dtype, Ne{}, true);
    check_binary(random, dtype, Lt{}, true);
    check_binary(random, dtype, Le{}, true);
    check_binary(random, dtype, Gt{}, true);
    check_binary(random, dtype, Ge{}, true);
  }
  check_binary(random, boolean, LogicalAnd{}, false);
  check_binary(random, boolean, LogicalOr{}, false);
  check_binary(random, boolean, LogicalXor{}, false);
}

template <class Op>
void check_unary(Random& random, DType dtype, const Op& op = {}, double absolute = 0) {
  for (const Shape& shape : {Shape({3, 517}, dtype), Shape({5}, dtype), Shape({}, dtype),
                             Shape({2, 0, 3}, dtype), Shape({2, 3, 4, 5}, dtype)}) {
    check(OpInstance(op), {values(random, shape, true)}, absolute);
  }
}

template <class... Ops>
void check_all(Random& random, DType dtype) {
  (check_unary<Ops>(random, dtype), ...);
}

TEST_CASE("every type: functions of one operand", "[every_type]") {
  Random random;
  for (const DType dtype : numbers) {
    check_all<Neg, Abs, Sign, Square, Relu>(random, dtype);
    check_unary(random, dtype, Clamp{.min = -2.5, .max = 3.25});
  }
  for (const DType dtype : floats) {
    check_all<Sqrt, Rsqrt, Reciprocal, Exp, Exp2, Expm1, Log, Log2, Log1p, Atan, Tanh, Erf>(random,
                                                                                            dtype);
    check_all<Floor, Ceil, Trunc, Round, Sigmoid, Relu6, Silu, Softplus, Hardsigmoid, LeakyRelu,
              Elu>(random, dtype);
    check_all<Sin, Cos, Tan, Asin, Acos, Erfinv, Mish, Hardswish>(random, dtype);
    check_unary<Gelu>(random, dtype);
    check_unary<GeluDerivative>(random, dtype, {}, 0x1p-21);  // it passes 0
    // The reference's own formula cancels far below zero.
    check_unary<GeluTanh>(random, dtype, {}, 1e-6);
    check_all<IsNan, IsInf, IsFinite>(random, dtype);
  }
  check_unary<LogicalNot>(random, boolean);
}

TEST_CASE("every type: casts", "[every_type]") {
  Random random;
  for (const DType from : plain) {
    for (const DType to : plain) check_unary(random, from, Cast{.dtype = to});
  }
}

TEST_CASE("every type: choices", "[every_type]") {
  Random random;
  for (const DType dtype : plain) {
    const auto make = [&](std::initializer_list<Axis> sizes) {
      return values(random, Shape(sizes, dtype), true);
    };
    const auto truths = [&](std::initializer_list<Axis> sizes) {
      return random.uniform(Shape(sizes, boolean), 0, 2);
    };
    check(OpInstance(Where{}), {truths({3, 517}), make({3, 517}), make({3, 517})});
    check(OpInstance(Where{}), {truths({3, 1}), make({1, 9}), make({})});
    check(OpInstance(Where{}), {truths({}), make({2, 3, 4}), make({4})});
    check(OpInstance(Where{}), {truths({0}), make({0}), make({1})});
  }
}

TEST_CASE("every type: elements moved", "[every_type]") {
  Random random;
  for (const DType dtype : plain) {
    const auto make = [&](std::initializer_list<Axis> sizes) {
      return values(random, Shape(sizes, dtype), true);
    };
    for (const std::int64_t axis : {0, 1, 2}) {
      std::vector<HostBuffer> parts;
      for (const std::int64_t size : {3, 0, 5, 1}) {
        std::array<std::int64_t, 3> sizes{4, 6, 40};
        sizes[static_cast<std::size_t>(axis)] = size;
        parts.push_back(values(random, Shape(std::span<const std::int64_t>(sizes), dtype), true));
      }
      check(OpInstance(Concat{.axis = axis}), parts);
    }
    const Pad pad{.before = {1, 0, 2}, .after = {0, 3, 1}, .value = 1};
    check(OpInstance(pad), {make({5, 4, 31})});
    check(OpInstance(pad), {make({0, 4, 3})});
    for (const DType counted : {i32, i64}) {
      const auto index = [&](std::initializer_list<Axis> sizes) {
        return random.uniform(Shape(sizes, counted), 0, 5);
      };
      check(OpInstance(Select{}), {make({5, 7, 200}), index({})});
      for (const std::int64_t axis : {0, 1, 2}) {
        check(OpInstance(Gather{.axis = axis}), {make({5, 5, 6}), index({2, 3})});
        check(OpInstance(Gather{.axis = axis}), {make({5, 5, 6}), index({0})});
      }
      check(OpInstance(TakeAlong{.axis = 0}), {make({5, 9}), index({8, 9})});
      check(OpInstance(TakeAlong{.axis = 1}), {make({4, 5, 3}), index({4, 1, 3})});
    }
    check(OpInstance(Full{.value = 1, .dims = {3, 401}, .dtype = dtype}), {});
    if (dtype != boolean) {
      check(OpInstance(Iota{.size = 100, .start = 3, .step = 1, .dtype = dtype}), {});
    }
    // Of a transposed array, a reshape has to copy.
    check(OpInstance(Reshape{.dims = {-1}}), {make({40, 33})});
    check(OpInstance(MergeAxes{.axis = 0, .count = 2}), {make({6, 7, 65})});
  }
}

TEST_CASE("an index outside its axis is refused by the CPU backend as by the reference") {
  Random random;
  const HostBuffer x = random.uniform(Shape({5, 6}, f32));
  for (const double bad : {-1.0, 5.0}) {
    const auto fails = [&](const OpInstance& op, const HostBuffer& index) {
      OpCase made;
      made.op = op;
      made.inputs = {x, index};
      expect_error(Errc::out_of_range, [&] { run_case(made, backends(), Order::dense); });
    };
    fails(OpInstance(Select{}), random.uniform(Shape({}, i32), bad, bad + 0.5));
    fails(OpInstance(Gather{}), random.uniform(Shape({2}, i64), bad, bad + 0.5));
    fails(OpInstance(TakeAlong{}), random.uniform(Shape({3, 6}, i32), bad, bad + 0.5));
  }
}

template <class Op>
void check_reduce(Random& random, DType dtype, bool special) {
  const auto with = [](const IntList& axes, bool keep) {
    Op op;
    op.axes = axes;
    op.keep_dims = keep;
    return OpInstance(op);
  };
  // Sums of numbers of both signs may cancel: their error is relative to the terms.
  const double absolute = dtype == f64 ? 1e-11 : is_floating(dtype) ? 100 * allowed(dtype) : 0;
  const HostBuffer x = values(random, Shape({3, 17, 19}, dtype), special);
  check(with({2}, false), {x}, absolute);
  check(with({1}, true), {x}, absolute);
  check(with({0}, false), {x}, absolute);
  check(with({0, 2}, false), {x}, absolute);
  check(with({0, 1, 2}, false), {x}, absolute);
  check(with({}, false), {x}, absolute);
  check(with({1}, false), {values(random, Shape({2, 3, 700}, dtype), special)}, absolute);
  check(with({1}, false), {values(random, Shape({2, 1200}, dtype), special)}, absolute);
  check(with({1}, false), {values(random, Shape({0, 4}, dtype), special)}, absolute);
}

template <class Op>
void check_fold_of_nothing(DType dtype) {
  Op op;
  op.axes = {1};
  Random random;
  check(OpInstance(op), {random.uniform(Shape({3, 0}, dtype))});
}

TEST_CASE("every type: reductions", "[every_type]") {
  Random random;
  for (const DType dtype : plain) {
    check_reduce<Sum>(random, dtype, !is_floating(dtype));
    check_fold_of_nothing<Sum>(dtype);
    check_fold_of_nothing<Prod>(dtype);
    if (!is_floating(dtype)) check_reduce<Prod>(random, dtype, true);
  }
  for (const DType dtype : numbers) {
    check_reduce<Max>(random, dtype, true);
    check_reduce<Min>(random, dtype, true);
  }
  for (const DType dtype : floats) {
    check_reduce<Mean>(random, dtype, false);
    check_fold_of_nothing<Mean>(dtype);
  }
  Prod product;
  product.axes = {0};
  check(OpInstance(product), {random.uniform(Shape({9, 70}, f32))}, 1e-4);
  check_reduce<Any>(random, boolean, false);
  check_reduce<All>(random, boolean, false);
  check_fold_of_nothing<Any>(boolean);
  check_fold_of_nothing<All>(boolean);
}

TEST_CASE("every type: rankings and running sums", "[every_type]") {
  Random random;
  for (const DType dtype : numbers) {
    for (const std::int64_t axis : {0, 1, 2}) {
      const HostBuffer x = values(random, Shape({4, 13, 600}, dtype), true);
      const HostBuffer plain_x = values(random, Shape({4, 13, 600}, dtype), false);
      for (const DType counted : {i32, i64}) {
        Argmax greatest;
        greatest.axis = axis;
        greatest.dtype = counted;
        Argmin least;
        least.axis = axis;
        least.keep_dims = true;
        least.dtype = counted;
        check(OpInstance(greatest), {x});
        check(OpInstance(greatest), {plain_x});
        check(OpInstance(least), {x});
        check(OpInstance(least), {plain_x});
      }
      for (const std::int64_t k : {0, 1, 4}) check(OpInstance(Topk{.k = k, .axis = axis}), {x});
      check(OpInstance(Topk{.k = 4, .axis = axis}), {plain_x});
    }
  }
  for (const DType dtype : plain) {
    for (const std::int64_t axis : {0, 1}) {
      check(OpInstance(Cumsum{.axis = axis}),
            {values(random, Shape({5, 1025}, dtype), !is_floating(dtype))},
            dtype == f64         ? 1e-11
            : is_floating(dtype) ? 100 * allowed(dtype)
                                 : 0);
    }
  }
}

TEST_CASE("half types: rows") {
  Random random;
  for (const DType dtype : {f16, bf16, f32}) {
    const Shape shape({3, 33, 70}, dtype);
    const HostBuffer weight = random.uniform(Shape({70}, dtype));
    const double absolute = 2 * allowed(dtype);
    check(OpInstance(RmsNorm{}), {random.uniform(shape)}, absolute);
    check(OpInstance(RmsNorm{}), {random.uniform(shape), weight}, absolute);
    check(OpInstance(LayerNorm{}), {random.uniform(shape), weight, weight}, absolute);
    for (const std::int64_t axis : {0, 1, 2}) {
      check(OpInstance(Softmax{.axis = axis}), {random.uniform(shape)}, absolute);
      check(OpInstance(LogSoftmax{.axis = axis}), {random.uniform(shape, -30, 30)}, absolute);
    }
    check(OpInstance(Glu{.activation = "silu"}), {random.uniform(shape), random.uniform(shape)},
          absolute);
  }
}

TEST_CASE("block types: to and fro") {
  Random random;
  const HostBuffer x = random.uniform(Shape({3, 512}, f32));
  for (const DType dtype : {DType::q4_1, DType::q8_0, DType::q6_k}) {
    check(OpInstance(Quantize{.dtype = dtype}), {x});
    for (const DType to : floats) check(OpInstance(Dequantize{.dtype = to}), {x.to(dtype)});
  }
}

}  // namespace
}  // namespace tenon::testing
