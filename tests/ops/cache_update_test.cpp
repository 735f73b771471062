#include "support/literals.hpp"
#include "support/op_testing.hpp"

#include <tenon/ops/cache_update.hpp>
#include <tenon/quant.hpp>

#include <array>

namespace tenon::testing {
namespace {

const CacheUpdate op{};
const Shape cache_type({2, 1, 2, 4, 3}, f16);  // layers, batch, heads, positions, size
const Shape layer_type({}, i64);
const Shape x_type({1, 2, 2, 3}, f32);  // batch, steps, heads, size
const Shape position_type({}, i32);

TEST_CASE("cache_update: steps move behind the heads, other elements stay") {
  const HostBuffer cache = floats({2, 1, 2, 3, 1}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  const HostBuffer x = floats({1, 2, 2, 1}, {20, 30, 21, 31});
  const HostBuffer y = apply(op, {cache, longs({}, {1}), x, ints({}, {1})});
  expect_equal(y, {0, 1, 2, 3, 4, 5, 6, 20, 21, 9, 30, 31});
}

TEST_CASE("cache_update: each row has its own position") {
  const HostBuffer cache = floats({1, 2, 1, 3, 1}, {0, 1, 2, 3, 4, 5});
  const HostBuffer x = floats({2, 1, 1, 1}, {20, 30});
  expect_equal(apply(op, {cache, longs({}, {0}), x, ints({2}, {2, 0})}), {0, 1, 20, 30, 4, 5});
}

const CacheUpdate paged_update{.has_table = true};

TEST_CASE("cache_update: into the pages of a table") {
  // Three pages of two positions; rows have pages 2, 0 and page 1, from position 1 and 0 on.
  const HostBuffer pool = floats({1, 3, 1, 2, 1}, {0, 1, 2, 3, 4, 5});
  const HostBuffer x = floats({2, 2, 1, 1}, {20, 21, 30, 31});
  const HostBuffer table = ints({2, 2}, {2, 0, 1, -1});
  expect_equal(apply(paged_update, {pool, longs({}, {0}), x, ints({2}, {1, 0}), table}),
               {21, 1, 30, 31, 4, 20});
}

TEST_CASE("cache_update: pages and rows out of range, and then the pool is unchanged") {
  HostBuffer pool = floats({1, 2, 1, 2, 1}, {0, 1, 2, 3});
  const HostBuffer layer = longs({}, {0}), x = floats({2, 1, 1, 1}, {20, 30});
  const auto update = [&](const HostBuffer& position, const HostBuffer& table) {
    paged_update.reference(
        std::array{pool.view(), layer.view(), x.view(), position.view(), table.view()},
        pool.view());
  };
  const HostBuffer table = ints({2, 1}, {0, 1});
  expect_error(Errc::out_of_range, [&] { update(ints({2}, {0, 2}), table); });
  for (const std::int32_t page : {-1, 2}) {
    expect_error(Errc::out_of_range, [&] { update(ints({2}, {0, 0}), ints({2, 1}, {0, page})); });
  }
  expect_equal(pool, {0, 1, 2, 3});
}

TEST_CASE("cache_update: C5 number of inputs") {
  expect_error(Errc::bad_argument,
               [] { infer(paged_update, {cache_type, layer_type, x_type, position_type}); });
  expect_error(Errc::bad_argument, [] {
    infer(op, {cache_type, layer_type, x_type, position_type, Shape({1, 4}, i32)});
  });
}

TEST_CASE("cache_update: C1 to C4 of tables and positions") {
  const auto refused = [](Errc code, const Shape& position, const Shape& table) {
    expect_error(code,
                 [&] { infer(paged_update, {cache_type, layer_type, x_type, position, table}); });
  };
  refused(Errc::shape_mismatch, position_type, Shape({4}, i32));
  refused(Errc::shape_mismatch, Shape({1, 1}, i32), Shape({1, 4}, i32));
  refused(Errc::unsupported_dtype, position_type, Shape({1, 4}, i64));
  refused(Errc::shape_mismatch, position_type, Shape({2, 4}, i32));
  refused(Errc::shape_mismatch, Shape({2}, i32), Shape({1, 4}, i32));
  refused(Errc::shape_mismatch, position_type, Shape({1, 0}, i32));
}

TEST_CASE("cache_update: writes into the cache itself when the output is its storage") {
  HostBuffer cache = floats({1, 1, 1, 3, 1}, {1, 2, 3});
  const HostBuffer layer = longs({}, {0}), x = floats({1, 1, 1, 1}, {9}), position = ints({}, {2});
  op.reference(std::array{cache.view(), layer.view(), x.view(), position.view()}, cache.view());
  expect_equal(cache, {1, 2, 9});
}

TEST_CASE("cache_update: converts to the cache's dtype") {
  const HostBuffer cache = floats({1, 1, 1, 1, 2}, {0, 0}).to(f16);
  const HostBuffer y =
      apply(op, {cache, longs({}, {0}), floats({1, 1, 1, 2}, {0.1f, 65520}), ints({}, {0})});
  expect_equal(y, {0.0999755859375, std::numeric_limits<double>::infinity()});
}

TEST_CASE("cache_update: rounds each head's row to the cache's blocks") {
  HostBuffer cache = HostBuffer::zeros(Shape({1, 1, 2, 3, 32}, DType::q8_0));
  std::vector<float> values(64);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i < 32 ? i : 1000 + 7 * i);
  }
  const HostBuffer x = HostBuffer::of<float>(Shape({1, 1, 2, 32}, f32), values);
  const HostBuffer y = apply(op, {cache, longs({}, {0}), x, ints({}, {1})});
  std::vector<float> rounded(64);
  std::vector<std::byte> blocks(68);
  quantize(DType::q8_0, values.data(), blocks.data(), 64);
  dequantize(DType::q8_0, blocks.data(), rounded.data(), 64);
  std::vector<float> found(6 * 32);
  dequantize(DType::q8_0, y.bytes(), found.data(), 6 * 32);
  for (std::size_t i = 0; i < found.size(); ++i) {
    const std::size_t row = i / 32;  // head * 3 + position
    CHECK(found[i] == (row == 1 ? rounded[i % 32] : row == 4 ? rounded[32 + i % 32] : 0.0f));
  }
}

TEST_CASE("cache_update: no steps, no heads") {
  const HostBuffer cache = floats({1, 1, 1, 2, 1}, {1, 2});
  expect_equal(apply(op, {cache, longs({}, {0}), floats({1, 0, 1, 1}, {}), ints({}, {2})}), {1, 2});
  const HostBuffer none = floats({1, 1, 0, 2, 1}, {});
  expect_type(apply(op, {none, longs({}, {0}), floats({1, 1, 0, 1}, {}), ints({}, {0})}).shape(),
              "f32[1, 1, 0, 2, 1]");
}

TEST_CASE("cache_update: keeps the cache's tags; sizes may be symbolic") {
  const Shape tagged = cache_type.with_tag(3, "t");
  expect_type(infer(op, {tagged, layer_type, x_type.with_dim(1, symbol("S")), position_type}),
              "f16[2, 1, 2, t=4, 3]");
}

TEST_CASE("cache_update: C1 ranks") {
  expect_error(Errc::shape_mismatch,
               [] { infer(op, {Shape({1, 2, 4, 3}, f16), layer_type, x_type, position_type}); });
  expect_error(Errc::shape_mismatch,
               [] { infer(op, {cache_type, layer_type, Shape({2, 2, 3}, f32), position_type}); });
  expect_error(Errc::shape_mismatch,
               [] { infer(op, {cache_type, Shape({1}, i64), x_type, position_type}); });
  expect_error(Errc::shape_mismatch,
               [] { infer(op, {cache_type, layer_type, x_type, Shape({2}, i32)}); });
}

TEST_CASE("cache_update: C2 dtypes") {
  expect_error(Errc::unsupported_dtype,
               [] { infer(op, {Shape({2, 1, 2, 4, 3}, i8), layer_type, x_type, position_type}); });
  expect_error(Errc::unsupported_dtype, [] {
    infer(op, {cache_type, layer_type, Shape({1, 2, 2, 3}, i32), position_type});
  });
  expect_error(Errc::unsupported_dtype,
               [] { infer(op, {cache_type, Shape({}, i32), x_type, position_type}); });
  expect_error(Errc::unsupported_dtype,
               [] { infer(op, {cache_type, layer_type, x_type, Shape({}, i64)}); });
}

TEST_CASE("cache_update: C3 batch, heads or size differ") {
  for (const int axis : {0, 2, 3}) {
    expect_error(Errc::shape_mismatch, [axis] {
      infer(op, {cache_type, layer_type, x_type.with_dim(axis, 5), position_type});
    });
  }
}

TEST_CASE("cache_update: C4 more steps than positions") {
  expect_error(Errc::shape_mismatch,
               [] { infer(op, {cache_type, layer_type, x_type.with_dim(1, 5), position_type}); });
}

TEST_CASE("cache_update: out of range, and then the cache is unchanged") {
  HostBuffer cache = floats({2, 1, 1, 2, 1}, {1, 2, 3, 4});
  const HostBuffer x = floats({1, 1, 1, 1}, {9});
  const auto update = [&](std::int64_t layer, std::int32_t position) {
    const HostBuffer at = longs({}, {layer}), from = ints({}, {position});
    op.reference(std::array{cache.view(), at.view(), x.view(), from.view()}, cache.view());
  };
  expect_error(Errc::out_of_range, [&] { update(-1, 0); });
  expect_error(Errc::out_of_range, [&] { update(2, 0); });
  expect_error(Errc::out_of_range, [&] { update(0, -1); });
  expect_error(Errc::out_of_range, [&] { update(0, 2); });
  expect_equal(cache, {1, 2, 3, 4});
}

}  // namespace
}  // namespace tenon::testing
