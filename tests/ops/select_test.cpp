#include "support/literals.hpp"
#include "support/op_testing.hpp"

#include <tenon/backends/reference.hpp>
#include <tenon/graph.hpp>
#include <tenon/ops/select.hpp>
#include <tenon/ops/unary.hpp>
#include <tenon/session.hpp>

namespace tenon::testing {
namespace {

const Select op{};

TEST_CASE("select: one slice of the first axis") {
  const HostBuffer x = floats({3, 2}, {1, 2, 3, 4, 5, 6});
  expect_equal(apply(op, {x, longs({}, {1})}), {3, 4});
  expect_equal(apply(op, {x, ints({}, {2})}), {5, 6});
  expect_type(apply(op, {floats({2}, {7, 8}), longs({}, {0})}).shape(), "f32[]");
}

TEST_CASE("select: any dtype, block types included") {
  expect_equal(apply(op, {ints({2, 2}, {1, 2, 3, 4}), ints({}, {1})}), {3, 4});
  Random random;
  const HostBuffer rows = random.uniform(Shape({3, 64}, f32)).to(DType::q8_0);
  const HostBuffer row = apply(op, {rows, longs({}, {2})});
  CHECK(row.shape().dtype() == DType::q8_0);
  expect_close(row.to(f32), apply(op, {rows.to(f32), longs({}, {2})}), 0, 0);
}

TEST_CASE("update_slice: one slice of the first axis") {
  const HostBuffer x = floats({3, 2}, {1, 2, 3, 4, 5, 6});
  expect_equal(apply(UpdateSlice{}, {x, longs({}, {1}), floats({2}, {8, 9})}), {1, 2, 8, 9, 5, 6});
  expect_equal(apply(UpdateSlice{}, {ints({2}, {1, 2}), ints({}, {1}), ints({}, {7})}), {1, 7});
  expect_equal(apply(UpdateSlice{}, {floats({2, 0}, {}), ints({}, {1}), floats({0}, {})}), {});
  expect_type(
      infer(UpdateSlice{}, {Shape({{"t", 3}, {"b", 4}}, f16), Shape({}, i64), Shape({4}, f16)}),
      "f16[t=3, b=4]");
}

TEST_CASE("update_slice: of a value that is computed from constants alone, in every run") {
  register_reference_backend();
  Graph graph;
  const Graph::Recording recording(graph);
  const Tensor x = graph.input("x", Shape({2}, f32)), index = graph.input("i", Shape({}, i32));
  const Tensor start = exp(graph.constant("c", Shape({3, 2}, f32)));
  const Tensor changed = update_slice(start, index, x);
  Session session(graph.program({&changed, 1}), {.backends = {make_reference_backend({})}});
  session.bind(std::make_shared<const WeightSet>(std::map<std::string, Buffer>{
      {"c", HostBuffer::zeros(Shape({3, 2}, f32)).to_device(cpu_device())}}));
  for (const std::int32_t at : {0, 2, 1}) {
    const std::vector<Buffer> results = session.forward(std::vector{
        floats({2}, {7, 8}).to_device(cpu_device()), ints({}, {at}).to_device(cpu_device())});
    std::vector<double> want(6, 1);
    want[static_cast<std::size_t>(2 * at)] = 7;
    want[static_cast<std::size_t>(2 * at) + 1] = 8;
    CHECK(elements(results.at(0).to_host()) == want);
  }
}

TEST_CASE("update_slice: errors") {
  const UpdateSlice update{};
  const Shape x({3, 2}, f32), index({}, i64), y({2}, f32);
  expect_error(Errc::shape_mismatch, [&] { infer(update, {Shape({}, f32), index, y}); });   // C1
  expect_error(Errc::shape_mismatch, [&] { infer(update, {x, index, Shape({3}, f32)}); });  // C1
  expect_error(Errc::shape_mismatch, [&] { infer(update, {x, Shape({1}, i64), y}); });      // C2
  expect_error(Errc::unsupported_dtype, [&] { infer(update, {x, Shape({}, f32), y}); });    // C3
  expect_error(Errc::unsupported_dtype, [&] {                                               // C3
    infer(update, {Shape({3, 32}, DType::q8_0), index, Shape({32}, DType::q8_0)});
  });
  expect_error(Errc::shape_mismatch, [&] { infer(update, {x, index, Shape({2}, f64)}); });  // C4
  expect_error(Errc::out_of_range,
               [] { apply(UpdateSlice{}, {floats({1}, {1}), longs({}, {1}), floats({}, {2})}); });
}

TEST_CASE("select: sizes of zero") {
  expect_type(apply(op, {floats({2, 0}, {}), longs({}, {1})}).shape(), "f32[0]");
  expect_error(Errc::out_of_range, [] { apply(op, {floats({0, 2}, {}), longs({}, {0})}); });
}

TEST_CASE("select: tags pass through") {
  expect_type(infer(op, {Shape({{"l", 3}, {"b", symbol("B")}, 4}, f16), Shape({}, i64)}),
              "f16[b=B, 4]");
}

TEST_CASE("select: C1 nothing to select from") {
  expect_error(Errc::shape_mismatch, [] { infer(op, {Shape({}, f32), Shape({}, i64)}); });
  expect_error(Errc::shape_mismatch, [] { infer(op, {Shape({32}, DType::q8_0), Shape({}, i64)}); });
}

TEST_CASE("select: C2 index not a scalar") {
  expect_error(Errc::shape_mismatch, [] { infer(op, {Shape({2}, f32), Shape({1}, i64)}); });
}

TEST_CASE("select: C3 index of another type") {
  expect_error(Errc::unsupported_dtype, [] { infer(op, {Shape({2}, f32), Shape({}, f32)}); });
}

TEST_CASE("select: an index out of range") {
  const HostBuffer x = floats({3}, {1, 2, 3});
  for (const std::int64_t index : {std::int64_t{-1}, std::int64_t{3}, std::int64_t{1} << 62}) {
    expect_error(Errc::out_of_range, [&] { apply(op, {x, longs({}, {index})}); });
  }
}

}  // namespace
}  // namespace tenon::testing
