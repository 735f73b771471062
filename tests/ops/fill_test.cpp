#include "support/literals.hpp"
#include "support/op_testing.hpp"
#include "support/valued_graph.hpp"

#include <tenon/ops.hpp>

#include <limits>
#include <string>

namespace tenon::testing {
namespace {

HostBuffer made(const Full& op) { return run_reference(OpInstance(op), {}); }
HostBuffer made(const Iota& op, const std::vector<HostBuffer>& inputs = {}) {
  return run_reference(OpInstance(op), inputs);
}

TEST_CASE("full: one value") {
  const HostBuffer y = made(Full{.value = 1.5, .dims = {2, 2}, .dtype = f16});
  expect_type(y.shape(), "f16[2, 2]");
  expect_equal(y, {1.5, 1.5, 1.5, 1.5});
  expect_type(made(Full{.value = 1, .dims = {0, 3}, .dtype = i8}).shape(), "i8[0, 3]");
  expect_equal(made(Full{.value = 1, .dims = {}, .dtype = boolean}), {1});
}

TEST_CASE("full: C1 .. C3") {
  expect_error(Errc::bad_shape, [] { infer(Full{.dims = {2, -1}}, {}); });
  expect_error(Errc::shape_overflow,
               [] { infer(Full{.dims = {std::int64_t{1} << 40, std::int64_t{1} << 40}}, {}); });
  expect_error(Errc::unsupported_dtype,
               [] { infer(Full{.dims = {32}, .dtype = DType::q8_0}, {}); });
  expect_error(Errc::bad_attribute, [] { infer(Full{.value = 1.5, .dtype = i32}, {}); });
  expect_error(Errc::bad_attribute, [] { infer(Full{.value = 300, .dtype = i8}, {}); });
  expect_error(Errc::bad_attribute, [] {
    infer(Full{.value = std::numeric_limits<double>::quiet_NaN(), .dtype = i8}, {});
  });
  expect_error(Errc::bad_attribute, [] { infer(Full{.value = 2, .dtype = boolean}, {}); });
}

TEST_CASE("iota: evenly spaced integers") {
  expect_equal(made(Iota{.size = 4}), {0, 1, 2, 3});
  expect_equal(made(Iota{.size = 3, .start = 5, .step = -2, .dtype = i64}), {5, 3, 1});
  expect_equal(made(Iota{.size = 2, .start = 7, .dtype = f32}), {7, 8});
  expect_type(made(Iota{.size = 0}).shape(), "i32[0]");
}

TEST_CASE("iota: as long as an axis of another array") {
  const HostBuffer x = floats({2, 3}, {0, 0, 0, 0, 0, 0});
  expect_equal(made(Iota{.axis = 1, .start = 4}, {x}), {4, 5, 6});
  expect_equal(made(Iota{.axis = 0, .step = -1, .dtype = f32}, {x}), {0, -1});
  expect_type(infer(Iota{.axis = 1}, {Shape({{"b", 2}, {"s", 3}}, f16)}), "i32[s=3]");
  // A symbolic size stays symbolic; whether every element fits is checked later.
  const Shape unknown = infer(Iota{.axis = 1, .dtype = i8}, {Shape({2, unknown_dim}, f32)});
  CHECK(unknown[0] == unknown_dim);
  const std::string what = expect_error(
      Errc::bad_attribute, [] { infer(Iota{.axis = 1, .dtype = i8}, {Shape({2, 129}, f32)}); });
  CHECK(what.find("129 values") != std::string::npos);
  expect_type(infer(Iota{.axis = 0}, {Shape({3, 64}, DType::q8_0)}), "i32[3]");
}

TEST_CASE("iota: C4 and C5") {
  expect_error(Errc::axis_out_of_range, [] { infer(Iota{.axis = 2}, {Shape({2, 3}, f32)}); });
  expect_error(Errc::axis_out_of_range, [] { infer(Iota{}, {Shape({}, f32)}); });
  expect_error(Errc::bad_attribute, [] { infer(Iota{.size = 2}, {Shape({2, 3}, f32)}); });
  expect_error(Errc::bad_attribute, [] { infer(Iota{.size = 2, .axis = 1}, {}); });
}

TEST_CASE("iota: C1 .. C3") {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  expect_error(Errc::bad_shape, [] { infer(Iota{.size = -1}, {}); });
  expect_error(Errc::unsupported_dtype, [] { infer(Iota{.size = 1, .dtype = boolean}, {}); });
  expect_error(Errc::bad_attribute, [] { infer(Iota{.size = 129, .dtype = i8}, {}); });
  expect_type(infer(Iota{.size = 128, .dtype = i8}, {}), "i8[128]");
  expect_error(Errc::bad_attribute,
               [] { infer(Iota{.size = 2, .start = 0, .step = -1, .dtype = u8}, {}); });
  expect_error(Errc::bad_attribute,
               [] { infer(Iota{.size = 3, .start = 0, .step = most, .dtype = i64}, {}); });
  expect_error(Errc::bad_attribute,
               [] { infer(Iota{.size = 2, .start = most, .step = 1, .dtype = f32}, {}); });
}

TEST_CASE("full and iota: need a graph that records") {
  expect_error(Errc::call_order, [] { full(1, Shape({2}, f32)); });
  Graph graph;
  const Graph::Recording recording(graph);
  expect_type(full(1, Shape({{"d", 2}}, i8)).shape(), "i8[d=2]");
  expect_type(iota(3).shape(), "i32[3]");
}

TEST_CASE("scalar_like, full_like and one_hot: join the graph of their operand") {
  ValuedGraph graph;
  const Tensor x = graph.input(floats({{"d", 2}}, {1, 2}));
  expect_equal(graph.value(scalar_like(x, 3)), {3});
  expect_type(full_like(x, 3).shape(), "f32[d=2]");
  expect_equal(graph.value(full_like(x, 3)), {3, 3});
  Graph open;
  const Graph::Recording recording(open);
  expect_type(full_like(open.input("x", Shape({{"n", symbol("N")}, {"d", 2}}, i32)), 3).shape(),
              "i32[n=N, d=2]");
  expect_type(iota(x, "d").shape(), "i32[d=2]");
  expect_equal(graph.value(iota(x, -1, f32, 1, 2)), {1, 3});
  expect_error(Errc::axis_out_of_range, [&] { iota(x, 1); });
  const Tensor ids = graph.input(ints({{"b", 3}}, {2, 0, 9}));
  expect_type(one_hot(ids, 3).shape(), "f32[b=3, 3]");
  expect_equal(graph.value(one_hot(ids, 3)), {0, 0, 1, 1, 0, 0, 0, 0, 0});
}

TEST_CASE("messages about sizes that are not known: their names, and what to do") {
  Graph graph;
  const Graph::Recording recording(graph);
  const std::int64_t b = symbol("B");
  const Tensor x = graph.input("x", Shape({b, 4}, f32)), v = graph.input("v", Shape({b}, i32));
  const auto refused = [](Errc code, const std::string& part, const auto& build) {
    const std::string what = expect_error(code, build);
    CAPTURE(what);
    CHECK(what.find(part) != std::string::npos);
    CHECK(what.find("4611686018427387") == std::string::npos);
  };
  refused(Errc::bad_shape, "reshape: attribute 'dims' is [B, 2, 2], with a size",
          [&] { reshape(x, {b, 2, 2}); });
  refused(Errc::bad_shape, "broadcast_to: attribute 'dims' is [2, B, 4], with a size",
          [&] { broadcast_to(x, {2, b, 4}); });
  refused(Errc::bad_shape, "attribute 'sizes' is [B, 1], with a size",
          [&] { split_axis(x, 0, {b, 1}); });
  refused(Errc::bad_shape, "full: attribute 'dims' is [B, 4], with a size",
          [&] { full(1, x.shape()); });
  refused(Errc::bad_shape, "iota: attribute 'size' is B, with a size", [&] { iota(b); });
  refused(Errc::bad_shape, "topk: attribute 'k' is B, with a size", [&] { topk(x, b, 0); });
  expect_type(unique(v, 3).inverse.shape(), "i64[B]");
  expect_type(bincount(v, 3).shape(), "i64[3]");
  refused(Errc::bad_argument, "needs a known size", [&] { chunk(x, 2, 0); });
  refused(Errc::out_of_range, "is no range", [&] { slice(x, 0, to_end, 0, -1); });
}

}  // namespace
}  // namespace tenon::testing
