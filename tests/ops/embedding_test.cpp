#include "support/literals.hpp"
#include "support/op_testing.hpp"

#include <tenon/ops/embedding.hpp>

#include <limits>

namespace tenon::testing {
namespace {

const Embedding op{};
const Shape table_type({4, 2}, f32);

HostBuffer table() { return floats({3, 2}, {1, 2, 3, 4, 5, 6}); }

TEST_CASE("embedding: rows of a table") {
  const HostBuffer y = apply(op, {ints({2, 2}, {2, 0, 1, 1}), table()});
  expect_type(y.shape(), "f32[2, 2, 2]");
  expect_equal(y, {5, 6, 1, 2, 3, 4, 3, 4});
  expect_equal(apply(op, {longs({}, {2}), table()}), {5, 6});
}

TEST_CASE("embedding: the result is f32 unless asked otherwise") {
  for (const DType dtype : {f16, bf16, f64}) {
    expect_type(apply(op, {ints({1}, {1}), table().to(dtype)}).shape(), "f32[1, 2]");
  }
  expect_type(apply(Embedding{.dtype = f16}, {ints({1}, {1}), table()}).shape(), "f16[1, 2]");
}

TEST_CASE("embedding: block types are decoded") {
  Random random;
  const HostBuffer blocks = random.uniform(Shape({5, 256}, f32)).to(DType::q4_k);
  const HostBuffer ids = ints({3}, {4, 0, 4});
  expect_close(apply(op, {ids, blocks}), apply(op, {ids, blocks.to(f32)}), 0, 0);
}

TEST_CASE("embedding: sizes of zero") {
  expect_type(apply(op, {ints({0}, {}), table()}).shape(), "f32[0, 2]");
  expect_type(apply(op, {ints({0}, {}), floats({0, 2}, {})}).shape(), "f32[0, 2]");
  expect_type(apply(op, {ints({2}, {0, 1}), floats({2, 0}, {})}).shape(), "f32[2, 0]");
}

TEST_CASE("embedding: tags and symbols pass through") {
  expect_type(
      infer(op, {Shape({{"b", 1}, {"s", symbol("S")}}, i32), Shape({{"v", 9}, {"d", 4}}, f32)}),
      "f32[b=1, s=S, d=4]");
}

TEST_CASE("embedding: C1 dtypes") {
  expect_error(Errc::unsupported_dtype, [] { infer(op, {Shape({2}, f32), table_type}); });
  expect_error(Errc::unsupported_dtype, [] { infer(op, {Shape({2}, i32), Shape({4, 2}, i32)}); });
}

TEST_CASE("embedding: C2 result not floating") {
  expect_error(Errc::bad_attribute,
               [] { infer(Embedding{.dtype = i32}, {Shape({2}, i32), table_type}); });
}

TEST_CASE("embedding: C3 table of another rank") {
  expect_error(Errc::shape_mismatch, [] { infer(op, {Shape({2}, i32), Shape({4}, f32)}); });
}

TEST_CASE("embedding: C4 rank of the result") {
  expect_error(Errc::bad_shape,
               [] { infer(op, {Shape({1, 1, 1, 1, 1, 1, 1, 1}, i32), table_type}); });
}

TEST_CASE("embedding: C5 one tag twice") {
  expect_error(Errc::shape_mismatch,
               [] { infer(op, {Shape({{"d", 2}}, i32), Shape({4, {"d", 2}}, f32)}); });
}

TEST_CASE("embedding: an id outside the table names itself and the limit") {
  for (const std::int32_t id : {-1, 3, std::numeric_limits<std::int32_t>::min()}) {
    const std::string text =
        expect_error(Errc::out_of_range, [id] { apply(op, {ints({2}, {0, id}), table()}); });
    CHECK(text.find(std::to_string(id)) != std::string::npos);
    CHECK(text.find("[0, 3)") != std::string::npos);
  }
}

}  // namespace
}  // namespace tenon::testing
