#include "support/literals.hpp"
#include "support/op_testing.hpp"

#include <tenon/ops/attention.hpp>

#include <cmath>
#include <limits>

namespace tenon::testing {
namespace {

// One head of size 1. Scores are q * k, the values tell which keys were seen: with q = 0 every key
// that a query sees weighs the same.
HostBuffer queries(std::initializer_list<float> values) {
  return floats({1, static_cast<std::int64_t>(values.size()), 1, 1}, values);
}

TEST_CASE("attention: weights are the softmax of the scores") {
  const HostBuffer k = queries({0, 1});
  const HostBuffer v = queries({10, 20});
  const double e = std::exp(1.0);
  expect_near(apply(Attention{}, {queries({1, 0}), k, v}), {(10 + 20 * e) / (1 + e), 15});
}

TEST_CASE("attention: scores are divided by the root of the head's size, or scaled as asked") {
  const HostBuffer q = floats({1, 1, 1, 4}, {2, 0, 0, 0});
  const HostBuffer k = floats({1, 2, 1, 4}, {1, 0, 0, 0, 0, 0, 0, 0});
  const HostBuffer v = queries({1, 0});
  const auto weight = [](double score) { return 1 / (1 + std::exp(-score)); };
  expect_near(apply(Attention{}, {q, k, v}), {weight(1)});
  expect_near(apply(Attention{.scale = 3}, {q, k, v}), {weight(6)});
  expect_near(apply(Attention{.scale = 3, .softcap = 2}, {q, k, v}), {weight(2 * std::tanh(3.0))});
}

TEST_CASE("attention: causal queries see themselves and what came before") {
  const HostBuffer k = queries({0, 0, 0});
  const HostBuffer v = queries({3, 6, 12});
  expect_near(apply(Attention{.causal = true}, {queries({0, 0, 0}), k, v}), {3, 4.5, 7});
  // Fewer queries than keys: the last query stands at the last key.
  expect_near(apply(Attention{.causal = true}, {queries({0, 0}), k, v}), {4.5, 7});
  // More queries than keys: the first ones stand before every key.
  expect_near(apply(Attention{.causal = true}, {queries({0, 0, 0, 0}), k, v}), {0, 3, 4.5, 7});
}

TEST_CASE("attention: position places the queries in a longer cache, whose rest is never read") {
  const HostBuffer k = queries({0, 0, 0, nan});
  const HostBuffer v = queries({3, 6, 12, nan});
  const Attention causal{.causal = true, .has_position = true};
  expect_near(apply(causal, {queries({0, 0}), k, v, ints({}, {1})}), {4.5, 7});
  const Attention open{.has_position = true};
  expect_near(apply(open, {queries({0, 0}), k, v, ints({}, {1})}), {7, 7});
  expect_near(apply(open, {queries({0, 0}), k, v, ints({}, {0})}), {4.5, 4.5});
}

TEST_CASE("attention: each row stands at its own position, behind which nothing is read") {
  const HostBuffer q = floats({2, 1, 1, 1}, {0, 0});
  const HostBuffer k = floats({2, 3, 1, 1}, {0, nan, nan, 0, 0, 0});
  const HostBuffer v = floats({2, 3, 1, 1}, {5, nan, nan, 3, 6, 12});
  const Attention causal{.causal = true, .has_position = true};
  expect_near(apply(causal, {q, k, v, ints({2}, {0, 2})}), {5, 7});
}

const Attention paged{.causal = true, .has_position = true, .has_table = true};

TEST_CASE("attention: keys lie in the pages of a table, which rows may share") {
  // Pages of two keys. The rows have pages 3, 0 and 3, 2, the last of which ends after one key.
  const HostBuffer q = floats({2, 1, 1, 1}, {0, 0});
  const HostBuffer k = floats({4, 2, 1, 1}, {0, 0, nan, nan, 0, nan, 0, 0});
  const HostBuffer v = floats({4, 2, 1, 1}, {3, 6, nan, nan, 9, nan, 12, 15});
  const HostBuffer table = ints({2, 2}, {3, 0, 3, 2});
  expect_near(apply(paged, {q, k, v, ints({2}, {3, 2}), table}), {9, 12});
  // Without positions the last query stands at the table's last key.
  const Attention whole{.has_table = true};
  expect_near(apply(whole, {q.slice(0, 0, 1), k, v, ints({1, 2}, {3, 0})}), {9});
  expect_near(apply(whole, {q.slice(0, 0, 1), k, v, ints({1, 3}, {0, 0, 0})}), {4.5});
}

TEST_CASE("attention: pages that nothing sees need not be there; others must") {
  const HostBuffer q = floats({1, 2, 1, 1}, {0, 0}), v = floats({2, 2, 1, 1}, {1, 2, 3, 4});
  const auto attend = [&](const Attention& op, std::int32_t past, std::vector<int> pages) {
    const auto count = static_cast<std::int64_t>(pages.size());
    const std::vector<std::int32_t> entries(pages.begin(), pages.end());
    return apply(op, {q, HostBuffer::zeros(v.shape()), v, ints({1}, {past}),
                      HostBuffer::of<std::int32_t>(Shape({1, count}, i32), entries)});
  };
  expect_near(attend(paged, 1, {0, 1, -1}), {1.5, 2});
  const Attention near{.causal = true, .window = 2, .has_position = true, .has_table = true};
  expect_near(attend(near, 3, {-1, 0, 1}), {1.5, 2.5});
  expect_error(Errc::out_of_range, [&] { attend(near, 2, {-1, 0, 1}); });
  for (const int page : {-1, 2}) {
    expect_error(Errc::out_of_range, [&] { attend(paged, 1, {0, page, 0}); });
  }
  expect_error(Errc::out_of_range, [&] { attend(paged, 1, {0}); });
  expect_error(Errc::out_of_range, [&] { attend(paged, 0, {}); });
}

TEST_CASE("attention: tables of no pages, and pages of no keys") {
  const Attention open{.has_table = true};
  const HostBuffer none = floats({0, 2, 1, 1}, {}), q = floats({1, 1, 1, 1}, {0});
  expect_equal(apply(open, {q, none, none, ints({1, 0}, {})}), {0});
  const HostBuffer empty = floats({2, 0, 1, 1}, {});
  expect_equal(apply(open, {q, empty, empty, ints({1, 3}, {0, 1, 7})}), {0});
}

TEST_CASE("attention: a sink takes its share of the weights, and has no value") {
  const HostBuffer q = floats({1, 1, 2, 1}, {0, 0});
  const HostBuffer k = floats({1, 2, 1, 1}, {0, 0});
  const HostBuffer v = floats({1, 2, 1, 1}, {3, 6});
  const Attention sunk{.has_sinks = true};
  const float ln2 = std::log(2.0f);
  expect_near(apply(sunk, {q, k, v, floats({2}, {0, ln2})}), {3, 2.25});
  expect_near(apply(sunk, {q, k, v, floats({2}, {-inf, inf})}), {4.5, 0});
  expect_near(apply(sunk, {q, k, v, floats({2}, {1000, -1000})}), {0, 4.5});
  // No key to see: zeros, whatever the sink.
  const HostBuffer none = floats({1, 0, 1, 1}, {});
  expect_equal(apply(sunk, {q, none, none, floats({2}, {0, 1})}), {0, 0});
}

TEST_CASE("attention: a window hides keys further away than it is wide") {
  const HostBuffer zero = queries({0, 0, 0, 0});
  const HostBuffer v = queries({2, 4, 8, 16});
  expect_near(apply(Attention{.causal = true, .window = 2}, {zero, zero, v}), {2, 3, 6, 12});
  expect_near(apply(Attention{.window = 2}, {zero, zero, v}), {3, 14.0 / 3, 28.0 / 3, 12});
  expect_near(apply(Attention{.causal = true, .window = 1}, {zero, zero, v}), {2, 4, 8, 16});
  const std::int64_t wide = Attention::max_window;
  expect_near(apply(Attention{.window = wide}, {zero, zero, v}), {7.5, 7.5, 7.5, 7.5});
}

TEST_CASE("attention: groups of heads share keys") {
  const HostBuffer q = floats({1, 1, 4, 1}, {0, 0, 0, 0});
  const HostBuffer k = floats({1, 1, 2, 1}, {0, 0});
  const HostBuffer v = floats({1, 1, 2, 2}, {1, 2, 3, 4});
  const HostBuffer y = apply(Attention{}, {q, k, v});
  expect_type(y.shape(), "f32[1, 1, 4, 2]");
  expect_near(y, {1, 2, 1, 2, 3, 4, 3, 4});
}

TEST_CASE("attention: a mask is added, and -inf hides") {
  const Attention masked{.has_mask = true};
  const HostBuffer zero = queries({0, 0});
  const HostBuffer v = queries({1, 3});
  const float ln3 = std::log(3.0f);
  expect_near(apply(masked, {zero, zero, v, floats({2, 2}, {0, ln3, -inf, 0})}), {2.5, 3});
  expect_near(apply(masked, {zero, zero, v, floats({2}, {0, -inf})}), {1, 1});
  expect_near(apply(masked, {zero, zero, v, floats({1, 1, 2, 1}, {-inf, 0})}), {0, 2});
  expect_near(apply(masked, {zero, zero, v, floats({}, {5})}), {2, 2});
}

TEST_CASE("attention: each sequence and each head has its own mask") {
  const HostBuffer q = floats({2, 1, 2, 1}, {0, 0, 0, 0});
  const HostBuffer k = floats({2, 2, 1, 1}, {0, 0, 0, 0});
  const HostBuffer v = floats({2, 2, 1, 1}, {1, 2, 3, 4});
  const HostBuffer mask = floats({2, 2, 1, 2}, {0, -inf, -inf, 0, -inf, 0, 0, 0});
  expect_near(apply(Attention{.has_mask = true}, {q, k, v, mask}), {1, 2, 4, 3.5});
}

TEST_CASE("attention: a hidden key may hold anything; a seen NaN spreads") {
  const Attention masked{.has_mask = true};
  const HostBuffer mask = floats({2}, {0, -inf});
  expect_near(apply(masked, {queries({1}), queries({1, 1}), queries({7, nan}), mask}), {7});
  expect_near(apply(Attention{}, {queries({1}), queries({1, nan}), queries({7, 7})}), {nan});
}

TEST_CASE("attention: scores that would overflow exp") {
  expect_near(apply(Attention{}, {queries({1}), queries({1e4f, 1e4f}), queries({1, 3})}), {2});
}

TEST_CASE("attention: keys and values of other dtypes than the queries") {
  for (const DType q_type : {f16, bf16, f32, f64}) {
    for (const DType kv_type : {f16, bf16, f32, f64}) {
      const HostBuffer y = apply(Attention{}, {queries({0}).to(q_type), queries({0, 0}).to(kv_type),
                                               queries({1, 2}).to(kv_type)});
      CHECK(y.shape().dtype() == q_type);
      expect_equal(y, {1.5});
    }
  }
}

TEST_CASE("attention: sizes of zero") {
  const HostBuffer none = floats({1, 0, 1, 1}, {});
  expect_equal(apply(Attention{}, {queries({1, 2}), none, none}), {0, 0});
  expect_type(apply(Attention{}, {none, queries({1}), queries({1})}).shape(), "f32[1, 0, 1, 1]");
  const HostBuffer no_size = floats({1, 2, 1, 0}, {});
  expect_near(apply(Attention{}, {no_size, no_size, queries({1, 3})}), {2, 2});
  const HostBuffer no_heads = floats({1, 2, 0, 1}, {});
  expect_type(apply(Attention{}, {no_heads, no_heads, no_heads}).shape(), "f32[1, 2, 0, 1]");
}

const Shape q_type({{"b", 2}, {"s", 3}, {"h", 4}, {"d", 8}}, f32);
const Shape k_type({2, 5, 2, 8}, f16);
const Shape v_type({2, 5, 2, 6}, f16);

TEST_CASE("attention: tags and symbols pass through") {
  expect_type(infer(Attention{}, {q_type, k_type, v_type}), "f32[b=2, s=3, h=4, d=6]");
  const Shape tagged({2, {"t", symbol("T")}, {"g", 2}, {"dv", 6}}, f16);
  expect_type(infer(Attention{},
                    {q_type.with_dim(1, symbol("S")), k_type.with_dim(1, symbol("T")), tagged}),
              "f32[b=2, s=S, h=4, dv=6]");
}

TEST_CASE("attention: C1 number of inputs") {
  expect_error(Errc::bad_argument,
               [] { infer(Attention{.has_mask = true}, {q_type, k_type, v_type}); });
  expect_error(Errc::bad_argument,
               [] { infer(Attention{}, {q_type, k_type, v_type, Shape({}, i32)}); });
}

TEST_CASE("attention: C2 dtypes") {
  expect_error(Errc::unsupported_dtype,
               [] { infer(Attention{}, {q_type.with_dtype(i32), k_type, v_type}); });
  expect_error(Errc::unsupported_dtype, [] {
    infer(Attention{.has_position = true}, {q_type, k_type, v_type, Shape({}, i64)});
  });
  expect_error(Errc::unsupported_dtype, [] {
    infer(Attention{.has_mask = true}, {q_type, k_type, v_type, Shape({3, 5}, f16)});
  });
  expect_error(Errc::unsupported_dtype, [] {
    infer(Attention{.has_sinks = true}, {q_type, k_type, v_type, Shape({4}, f16)});
  });
}

TEST_CASE("attention: C3 ranks") {
  expect_error(Errc::shape_mismatch,
               [] { infer(Attention{}, {Shape({3, 4, 8}, f32), k_type, v_type}); });
  expect_error(Errc::shape_mismatch, [] {
    infer(Attention{.has_position = true}, {q_type, k_type, v_type, Shape({2, 1}, i32)});
  });
  expect_error(Errc::shape_mismatch, [] {
    infer(Attention{.has_sinks = true}, {q_type, k_type, v_type, Shape({1, 4}, f32)});
  });
  expect_error(Errc::shape_mismatch, [] {
    infer(Attention{.has_mask = true}, {q_type, k_type, v_type, Shape({1, 1, 1, 3, 5}, f32)});
  });
}

TEST_CASE("attention: C4 keys and values of two dtypes") {
  expect_error(Errc::shape_mismatch,
               [] { infer(Attention{}, {q_type, k_type, v_type.with_dtype(f32)}); });
}

TEST_CASE("attention: C5 sizes and tags that differ") {
  for (const int axis : {0, 1, 2}) {
    expect_error(Errc::shape_mismatch,
                 [axis] { infer(Attention{}, {q_type, k_type, v_type.with_dim(axis, 7)}); });
  }
  expect_error(Errc::shape_mismatch,
               [] { infer(Attention{}, {q_type, k_type.with_dim(3, 7), v_type}); });
  expect_error(Errc::shape_mismatch,
               [] { infer(Attention{}, {q_type, k_type.with_tag(3, "e"), v_type}); });
  expect_error(Errc::shape_mismatch, [] {
    infer(Attention{.has_position = true}, {q_type, k_type, v_type, Shape({1}, i32)});
  });
  expect_error(Errc::shape_mismatch, [] {
    infer(Attention{.has_sinks = true}, {q_type, k_type, v_type, Shape({3}, f32)});
  });
}

TEST_CASE("attention: C1 to C7 of a table") {
  const Attention op{.has_table = true};
  const Shape q({2, 3, 4, 8}, f32), k({9, 5, 2, 8}, f16), v({9, 5, 2, 6}, f16), table({2, 4}, i32);
  expect_type(infer(op, {q, k, v, table}), "f32[2, 3, 4, 6]");
  const auto refused = [&](Errc code, const Shape& keys, const Shape& values, const Shape& pages) {
    expect_error(code, [&] { infer(op, {q, keys, values, pages}); });
  };
  expect_error(Errc::bad_argument, [&] { infer(op, {q, k, v}); });
  expect_error(Errc::bad_argument, [&] { infer(Attention{}, {q, k, v, table}); });
  refused(Errc::unsupported_dtype, k, v, table.with_dtype(i64));
  refused(Errc::shape_mismatch, k, v, Shape({4}, i32));
  refused(Errc::shape_mismatch, k, v, Shape({3, 4}, i32));
  refused(Errc::shape_mismatch, k.with_dim(0, 8), v, table);
  refused(Errc::shape_mismatch, k, v.with_dim(1, 4), table);
  const Attention masked{.has_mask = true, .has_table = true};
  expect_type(infer(masked, {q, k, v, Shape({3, 20}, f32), table}), "f32[2, 3, 4, 6]");
  expect_error(Errc::shape_mismatch, [&] { infer(masked, {q, k, v, Shape({3, 5}, f32), table}); });
  const Shape unknown({2, symbol("P")}, i32);
  expect_type(infer(masked, {q, k, v, Shape({3, 5}, f32), unknown}), "f32[2, 3, 4, 6]");
}

TEST_CASE("attention: C6 heads that do not group") {
  expect_error(Errc::shape_mismatch,
               [] { infer(Attention{}, {q_type, k_type.with_dim(2, 3), v_type.with_dim(2, 3)}); });
  expect_error(Errc::shape_mismatch,
               [] { infer(Attention{}, {q_type, k_type.with_dim(2, 0), v_type.with_dim(2, 0)}); });
}

TEST_CASE("attention: a mask of bool, which says what to write") {
  Attention op;
  op.has_mask = true;
  const Shape x({1, 2, 1, 4}, f32);
  const std::string text =
      expect_error(Errc::unsupported_dtype, [&] { infer(op, {x, x, x, Shape({2, 2}, boolean)}); });
  CHECK(text.find("where(mask, 0, -inf)") != std::string::npos);
}
TEST_CASE("attention: C7 mask that does not broadcast") {
  for (const Shape& mask : {Shape({4, 5}, f32), Shape({3, 4}, f32), Shape({2, 1, 5}, f32)}) {
    expect_error(Errc::shape_mismatch,
                 [&mask] { infer(Attention{.has_mask = true}, {q_type, k_type, v_type, mask}); });
  }
}

TEST_CASE("attention: C8 attributes") {
  for (const Attention& op :
       {Attention{.window = -1}, Attention{.window = Attention::max_window + 1},
        Attention{.softcap = -1}, Attention{.scale = inf}, Attention{.softcap = nan}}) {
    expect_error(Errc::bad_attribute, [&op] { infer(op, {q_type, k_type, v_type}); });
  }
}

TEST_CASE("attention: C9 one tag twice") {
  expect_error(Errc::shape_mismatch,
               [] { infer(Attention{}, {q_type, k_type, v_type.with_tag(3, "h")}); });
}

TEST_CASE("attention: a position that does not fit") {
  const Attention op{.causal = true, .has_position = true};
  for (const std::int32_t position : {-1, 2, std::numeric_limits<std::int32_t>::max()}) {
    expect_error(Errc::out_of_range, [&] {
      apply(op, {queries({0, 0}), queries({0, 0, 0}), queries({0, 0, 0}), ints({}, {position})});
    });
  }
  const HostBuffer q = floats({2, 1, 1, 1}, {0, 0}), k = floats({2, 1, 1, 1}, {0, 0});
  try {
    apply(op, {q, k, k, ints({2}, {0, 1})});
    FAIL("taken");
  } catch (const Error& error) {
    CHECK(error.code() == Errc::out_of_range);
    CHECK(error.message().find("row 1: positions [1, 2) outside [0, 1)") != std::string::npos);
  }
}

}  // namespace
}  // namespace tenon::testing
