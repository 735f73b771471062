#include "support/literals.hpp"
#include "support/op_testing.hpp"
#include "support/valued_graph.hpp"

#include <tenon/ops/slice.hpp>

#include <limits>

namespace tenon::testing {
namespace {

TEST_CASE("slice: every step-th element") {
  const HostBuffer x = ints({2, 5}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  expect_equal(apply(Slice{.axis = 1, .begin = 1, .end = 3}, {x}), {1, 2, 6, 7});
  expect_equal(apply(Slice{.axis = 1, .begin = 0, .step = 2}, {x}), {0, 2, 4, 5, 7, 9});
  expect_equal(apply(Slice{.axis = 1, .begin = 1, .step = 3}, {x}), {1, 4, 6, 9});
  expect_equal(apply(Slice{.axis = 0, .begin = 1}, {x}), {5, 6, 7, 8, 9});
  expect_equal(apply(Slice{.axis = 1, .begin = -2}, {x}), {3, 4, 8, 9});
  expect_equal(apply(Slice{.axis = 1, .begin = 1, .end = -3}, {x}), {1, 6});
  expect_type(apply(Slice{.axis = 1, .begin = 5}, {x}).shape(), "i32[2, 0]");
  expect_type(apply(Slice{.axis = 1, .begin = 2, .end = 2, .step = 9}, {x}).shape(), "i32[2, 0]");
}

TEST_CASE("slice: backwards") {
  const HostBuffer x = ints({2, 5}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  expect_equal(apply(Slice{.axis = 1, .begin = -1, .step = -1}, {x}),
               {4, 3, 2, 1, 0, 9, 8, 7, 6, 5});
  expect_equal(apply(Slice{.axis = 1, .begin = 3, .end = 0, .step = -2}, {x}), {3, 1, 8, 6});
  expect_equal(apply(Slice{.axis = 1, .begin = 3, .end = -4, .step = -1}, {x}), {3, 2, 8, 7});
  expect_equal(apply(Slice{.axis = 1, .begin = 1, .step = -9}, {x}), {1, 6});
  expect_equal(apply(Slice{.axis = 0, .begin = 1, .step = -1}, {x}),
               {5, 6, 7, 8, 9, 0, 1, 2, 3, 4});
  expect_type(apply(Slice{.axis = 1, .begin = 2, .end = 2, .step = -1}, {x}).shape(), "i32[2, 0]");
  const HostBuffer none = ints({0}, {});
  expect_type(apply(Slice{.begin = -1, .step = -1}, {none}).shape(), "i32[0]");
  const Shape open({symbol("S"), 4}, f32);
  expect_type(infer(Slice{.begin = -1, .step = -1}, {open}), "f32[S, 4]");
  expect_type(infer(Slice{.begin = 3, .step = -2}, {open}), "f32[2, 4]");
  expect_type(infer(Slice{.begin = -1, .end = -4, .step = -1}, {open}), "f32[3, 4]");
  expect_type(infer(Slice{.begin = -1, .end = 2, .step = -1}, {open}), "f32[_, 4]");
  expect_type(infer(Slice{.begin = -1, .step = -2}, {open}), "f32[_, 4]");
  expect_error(Errc::out_of_range, [&] { infer(Slice{.begin = 1, .end = 3, .step = -1}, {open}); });
}

TEST_CASE("slice: sizes that are not known yet") {
  const Shape x({{"s", symbol("S")}, {"d", 4}}, f32);
  expect_type(infer(Slice{.axis = 0}, {x}), "f32[s=S, d=4]");
  expect_type(infer(Slice{.axis = 0, .begin = -1}, {x}), "f32[s=1, d=4]");
  expect_type(infer(Slice{.axis = 0, .begin = -5, .end = -1, .step = 3}, {x}), "f32[s=2, d=4]");
  expect_type(infer(Slice{.axis = 0, .begin = 2, .end = 5}, {x}), "f32[s=3, d=4]");
  expect_type(infer(Slice{.axis = 0, .begin = 1}, {x}), "f32[s=_, d=4]");
  expect_type(infer(Slice{.axis = 0, .step = 2}, {x}), "f32[s=_, d=4]");
  expect_error(Errc::out_of_range, [&] { infer(Slice{.axis = 0, .begin = 5, .end = 2}, {x}); });
  constexpr std::int64_t lowest = std::numeric_limits<std::int64_t>::min();
  expect_error(Errc::out_of_range, [&] { infer(Slice{.axis = 0, .begin = lowest}, {x}); });
}

TEST_CASE("slice: rows of a block type, and whole blocks") {
  const Shape w({6, 128}, DType::q8_0);
  expect_type(infer(Slice{.axis = 0, .begin = 2, .end = 4}, {w}), "q8_0[2, 128]");
  expect_type(infer(Slice{.axis = 1, .begin = 32, .end = 96}, {w}), "q8_0[6, 64]");
  Random random(1);
  const HostBuffer blocks = random.uniform(Shape({3, 64}, f32)).to(DType::q8_0);
  const HostBuffer right = apply(Slice{.axis = 1, .begin = 32}, {blocks});
  expect_close(right.to(f32), blocks.to(f32).slice(1, 32, 64).contiguous(), 0, 0);
}

TEST_CASE("slice: C1 axis out of range") {
  expect_error(Errc::axis_out_of_range, [] { infer(Slice{.axis = 1}, {Shape({4}, f32)}); });
}
TEST_CASE("slice: C2 nothing is clipped") {
  const Shape x({4}, f32);
  constexpr std::int64_t lowest = std::numeric_limits<std::int64_t>::min();
  for (const Slice op :
       {Slice{.begin = 5}, Slice{.end = 5}, Slice{.begin = -5}, Slice{.begin = 3, .end = 2},
        Slice{.begin = lowest}, Slice{.end = lowest}, Slice{.begin = 4, .step = -1},
        Slice{.begin = 1, .end = 2, .step = -1}, Slice{.begin = 0, .end = -6, .step = -1},
        Slice{.begin = -6, .step = -1}}) {
    const std::string text = expect_error(Errc::out_of_range, [&] { infer(op, {x}); });
    CHECK(text.find("f32[4]") != std::string::npos);
  }
}
TEST_CASE("slice: C3 step") {
  expect_error(Errc::bad_attribute, [] { infer(Slice{.step = 0}, {Shape({4}, f32)}); });
  expect_error(Errc::bad_attribute, [] {
    infer(Slice{.step = std::numeric_limits<std::int64_t>::min()}, {Shape({4}, f32)});
  });
}
TEST_CASE("slice: C4 parts of blocks") {
  const Shape w({2, 64}, DType::q8_0);
  expect_error(Errc::unsupported_dtype, [&] { infer(Slice{.axis = 1, .begin = 16}, {w}); });
  expect_error(Errc::unsupported_dtype, [&] { infer(Slice{.axis = 1, .end = 40}, {w}); });
  expect_error(Errc::unsupported_dtype, [&] { infer(Slice{.axis = 1, .step = 2}, {w}); });
}

TEST_CASE("flip and roll") {
  ValuedGraph graph;
  const Tensor x = graph.input(floats({{"b", 2}, {"d", 3}}, {1, 2, 3, 4, 5, 6}));
  expect_equal(graph.value(flip(x)), {6, 5, 4, 3, 2, 1});
  expect_equal(graph.value(flip(x, "d")), {3, 2, 1, 6, 5, 4});
  expect_equal(graph.value(roll(x, 1, "d")), {3, 1, 2, 6, 4, 5});
  expect_equal(graph.value(roll(x, -7, 1)), {2, 3, 1, 5, 6, 4});
  expect_equal(graph.value(roll(x, 4, 0)), {1, 2, 3, 4, 5, 6});
  expect_error(Errc::bad_argument, [&] { flip(x, {0, -2}); });
  expect_error(Errc::axis_out_of_range, [&] { flip(x, 2); });
  Graph open;
  expect_error(Errc::bad_argument, [&] { roll(open.input("x", Shape({symbol("S")}, f32)), 1, 0); });
}

TEST_CASE("split and chunk: consecutive slices") {
  ValuedGraph graph;
  const Tensor x = graph.input(floats({{"b", 1}, {"d", 5}}, {1, 2, 3, 4, 5}));
  const std::vector<Tensor> parts = split(x, {2, 0, 3}, "d");
  REQUIRE(parts.size() == 3);
  expect_equal(graph.value(parts[0]), {1, 2});
  expect_type(parts[1].shape(), "f32[b=1, d=0]");
  expect_equal(graph.value(parts[2]), {3, 4, 5});
  const std::vector<Tensor> chunks = chunk(x, 2, -1);
  REQUIRE(chunks.size() == 2);
  expect_equal(graph.value(chunks[0]), {1, 2, 3});
  expect_equal(graph.value(chunks[1]), {4, 5});
  CHECK(chunk(x, 4, "d").size() == 3);
  CHECK(chunk(x, 9, "d").size() == 5);
  expect_error(Errc::bad_argument, [&] { split(x, {2, 2}, "d"); });
  expect_error(Errc::bad_argument, [&] { split(x, {6, -1}, "d"); });
  expect_error(Errc::bad_argument, [&] { split(x, std::span<const std::int64_t>(), "d"); });
  expect_error(Errc::bad_argument, [&] { chunk(x, 0, "d"); });
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  expect_error(Errc::shape_overflow, [&] { split(x, {most, most}, "d"); });
}

TEST_CASE("slice: C2 from or to a size that is not known") {
  const std::int64_t s = symbol("S");
  for (const Shape& x : {Shape({8}, f32), Shape({s}, f32)}) {
    expect_error(Errc::out_of_range, [&] { infer(Slice{.end = s}, {x}); });
    expect_error(Errc::out_of_range, [&] { infer(Slice{.begin = -s}, {x}); });
  }
}

}  // namespace
}  // namespace tenon::testing
