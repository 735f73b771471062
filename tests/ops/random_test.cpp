#include "support/literals.hpp"
#include "support/op_testing.hpp"
#include "support/valued_graph.hpp"

#include <tenon/backends/reference.hpp>
#include <tenon/graph.hpp>
#include <tenon/ops.hpp>
#include <tenon/repeat.hpp>
#include <tenon/session.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <utility>
#include <vector>

namespace tenon::testing {
namespace {

HostBuffer key_of(std::uint32_t low, std::uint32_t high) {
  return HostBuffer::of<std::uint32_t>(Shape({2}, u32), {low, high});
}

double mean_of(const std::vector<double>& x) {
  double sum = 0;
  for (const double value : x) sum += value;
  return sum / static_cast<double>(x.size());
}
double deviation_of(const std::vector<double>& x) {
  const double mean = mean_of(x);
  double sum = 0;
  for (const double value : x) sum += (value - mean) * (value - mean);
  return std::sqrt(sum / static_cast<double>(x.size()));
}

// The answers of Random123's kat_vectors for philox4x32, 10 rounds.
TEST_CASE("random_bits: the published answers") {
  const HostBuffer zero = apply(RandomBits{.dims = {4}}, {key_of(0, 0)});
  expect_type(zero.shape(), "u32[4]");
  expect_equal(zero, {0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u});
  expect_equal(apply(RandomBits{.dims = {2, 2}, .stream = -1},
                     {key_of(0xffffffffu, 0xffffffffu), longs({}, {-1})}),
               {0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu});
  expect_equal(apply(RandomBits{.dims = {4}, .stream = 0x0370734413198a2e},
                     {key_of(0xa4093822u, 0x299f31d0u),
                      longs({1}, {static_cast<std::int64_t>(0x85a308d3243f6a88u)})}),
               {0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u});
}

TEST_CASE("random_bits: blocks are numbered from `first` on") {
  const std::vector<double> all = elements(apply(RandomBits{.dims = {11}}, {key_of(7, 8)}));
  const std::vector<double> later =
      elements(apply(RandomBits{.dims = {3}}, {key_of(7, 8), ints({}, {2})}));
  CHECK(std::equal(later.begin(), later.end(), all.begin() + 8));
  expect_type(apply(RandomBits{.dims = {0, 3}}, {key_of(1, 2)}).shape(), "u32[0, 3]");
}

TEST_CASE("random_bits: C1 .. C3") {
  expect_error(Errc::shape_mismatch, [] { infer(RandomBits{}, {Shape({2}, i32)}); });
  expect_error(Errc::shape_mismatch, [] { infer(RandomBits{}, {Shape({3}, u32)}); });
  expect_error(Errc::shape_mismatch,
               [] { infer(RandomBits{}, {Shape({2}, u32), Shape({2}, i32)}); });
  expect_error(Errc::shape_mismatch,
               [] { infer(RandomBits{}, {Shape({2}, u32), Shape({}, f32)}); });
  expect_error(Errc::bad_shape, [] { infer(RandomBits{.dims = {-1}}, {Shape({2}, u32)}); });
}

TEST_CASE("random_bits: in the sizes of another value") {
  const HostBuffer key = key_of(7, 8), like = HostBuffer::zeros(Shape({3, 5}, f16));
  const RandomBits of_dims{.dims = {3, 5}, .stream = 2}, of_like{.stream = 2, .like_last = true};
  const HostBuffer made = apply(of_like, {key, like});
  CHECK(made.shape() == Shape({3, 5}, u32));
  CHECK(elements(made) == elements(apply(of_dims, {key})));
  const HostBuffer first = ints({}, {1});
  CHECK(elements(apply(of_like, {key, first, like})) == elements(apply(of_dims, {key, first})));
  const Shape key_type({2}, u32);
  expect_error(Errc::bad_argument, [&] { infer(RandomBits{.like_last = true}, {key_type}); });
  expect_error(Errc::bad_argument,
               [&] { infer(RandomBits{}, {key_type, Shape({}, i32), Shape({3}, f32)}); });
}

TEST_CASE("keys: split and folded ones differ, the same way each time") {
  ValuedGraph graph;
  const Tensor key = graph.input(key_of(1, 2)), run = graph.input(longs({}, {5}));
  std::set<std::vector<double>> seen{elements(key_of(1, 2))};
  for (const Tensor& part : split_key(key, 3)) seen.insert(elements(graph.value(part)));
  for (const std::int64_t number : {0, 1, -1}) {
    seen.insert(elements(graph.value(fold_in(key, number))));
  }
  seen.insert(elements(graph.value(fold_in(key, std::int64_t{1} << 60))));
  seen.insert(elements(graph.value(fold_in(key, (std::int64_t{1} << 60) + 1))));
  CHECK(seen.size() == 9);
  CHECK(elements(graph.value(fold_in(key, run))) == elements(graph.value(fold_in(key, 5))));
  expect_error(Errc::bad_argument, [&] { (void)split_key(key, -1); });
  expect_error(Errc::bad_argument, [&] { (void)split_key(key, std::int64_t{1} << 62); });
  Graph other;
  const Graph::Recording recording(other);
  expect_type(random_key(0x123456789ABCDEF0).shape(), "u32[2]");
}

TEST_CASE("distributions: range, mean and deviation") {
  ValuedGraph graph;
  const Tensor key = graph.input(key_of(3, 4));
  constexpr std::int64_t count = 20001;
  const auto statistics = [&](const Tensor& x, double low, double high, double mean,
                              double deviation) {
    const std::vector<double> values = elements(graph.value(x));
    REQUIRE(values.size() == static_cast<std::size_t>(x.shape().elements()));
    CHECK(std::ranges::all_of(values, [&](double v) { return v >= low && v < high; }));
    CHECK(std::fabs(mean_of(values) - mean) < 0.03 * deviation);
    CHECK(std::fabs(deviation_of(values) / deviation - 1) < 0.03);
  };
  const double inf = std::numeric_limits<double>::infinity();
  for (const DType dtype : {f32, f64, f16, bf16}) {
    INFO(name(dtype));
    const Shape shape({3, count / 3}, dtype);
    const double grain = dtype == bf16 ? 0x1p-9 : dtype == f16 ? 0x1p-12 : 0;
    statistics(random_uniform(key, shape), 0, 1, 0.5 - grain, std::sqrt(1 / 12.0));
    statistics(random_uniform(key, shape, -2, 2), -2, 2, -4 * grain, 4 * std::sqrt(1 / 12.0));
    statistics(random_normal(key, shape), -7, 7, 0, 1);
    statistics(random_exponential(key, shape, 2), 0, inf, 0.5, 0.5);
    statistics(random_gumbel(key, shape), -4, inf, 0.5772156649, 1.2825498);
  }
  statistics(random_normal(key, Shape({count}, f32), 3, 2), -10, 15, 3, 2);
  statistics(random_integers(key, Shape({count}, i8), -5, 5), -5, 5, -0.5, std::sqrt(8.25));
  statistics(
      random_integers(key, Shape({count}, i64), std::int64_t{1} << 33, (std::int64_t{1} << 33) + 2),
      0x1p33, 0x1p33 + 2, 0x1p33 + 0.5, 0.5);
  statistics(random_bernoulli(key, Shape({count}, f32), 0.25), 0, 2, 0.25, std::sqrt(0.1875));
  expect_type(random_normal(key, Shape({{"b", 2}, {"d", 3}}, f16)).shape(), "f16[b=2, d=3]");
  expect_type(random_normal(key, Shape({0, 3}, f32)).shape(), "f32[0, 3]");
  expect_error(Errc::bad_argument, [&] { (void)random_uniform(key, Shape({2}, i32)); });
  expect_error(Errc::bad_argument, [&] { (void)random_integers(key, Shape({2}, i32), 3, 3); });
}

TEST_CASE("distributions: with symbolic sizes the numbers of the sizes themselves") {
  using Make = std::function<Tensor(const Tensor& key, const Tensor& x)>;
  const auto typed = [](const Tensor& x, DType dtype) { return x.shape().with_dtype(dtype); };
  const std::vector<Make> ways{
      [&](const Tensor& key, const Tensor& x) { return random_uniform(key, x.shape(), -1, 2); },
      [&](const Tensor& key, const Tensor& x) { return random_uniform(key, typed(x, f64)); },
      [&](const Tensor& key, const Tensor& x) { return random_normal(key, x.shape(), 1, 2); },
      [&](const Tensor& key, const Tensor& x) { return random_normal(key, typed(x, f64)); },
      [&](const Tensor& key, const Tensor& x) { return random_normal(key, typed(x, bf16)); },
      [&](const Tensor& key, const Tensor& x) { return random_exponential(key, x.shape(), 3); },
      [&](const Tensor& key, const Tensor& x) { return random_gumbel(key, x.shape()); },
      [&](const Tensor& key, const Tensor& x) { return random_integers(key, typed(x, i8), -5, 9); },
      [&](const Tensor& key, const Tensor& x) { return random_bernoulli(key, x.shape(), 0.3); },
      [&](const Tensor& key, const Tensor& x) { return random_bernoulli(key, x.shape(), x); },
      [&](const Tensor& key, const Tensor& x) { return random_categorical(key, x, -1); },
      [&](const Tensor& key, const Tensor& x) { return random_multinomial(key, x, 4, true); },
      [&](const Tensor& key, const Tensor& x) { return dropout(key, x, 0.4); },
      [&](const Tensor& key, const Tensor& x) {  // in a loop, whose body has no input of the size
        const Tensor start = random_uniform(key, Shape({2}, f32));
        return repeat(std::int64_t{2}, start, [&](const Tensor& index, const Tensor& now) {
          return now + sum(random_normal(fold_in(key, index), x.shape()));
        });
      }};
  register_reference_backend();
  for (std::size_t way = 0; way < ways.size(); ++way) {
    INFO("way " << way);
    const auto session_of = [&](const Shape& shape) {
      Graph graph;
      const Graph::Recording recording(graph);
      const Tensor key = graph.input("key", Shape({2}, u32));
      const Tensor y = ways[way](key, graph.input("x", shape));
      return Session(graph.program({&y, 1}), {.backends = {make_backend("reference")}});
    };
    Session open = session_of(Shape({Axis(symbol("A")), Axis(symbol("B"))}, f32));
    for (const auto& [a, b] :
         {std::pair(3, 5), std::pair(4, 4), std::pair(0, 3), std::pair(1, 1)}) {
      INFO(a << " x " << b);
      const Shape shape({a, b}, f32);
      HostBuffer x = HostBuffer::uninitialized(shape);
      float next = 0;
      for (float& value : x.mutable_values<float>()) value = (next += 0.04f);
      const auto values = [&](Session& session) {
        return session
            .forward(
                std::vector{key_of(5, 6).to_device(cpu_device()), x.to_device(cpu_device())})[0]
            .to_host();
      };
      Session closed = session_of(shape);
      const HostBuffer got = values(open), want = values(closed);
      CHECK(got.shape() == want.shape());
      CHECK(elements(got) == elements(want));
    }
  }
}

TEST_CASE("random choices: as often as their weights say") {
  ValuedGraph graph;
  const Tensor key = graph.input(key_of(9, 9));
  const Tensor weights = graph.input(floats({2, 3}, {1, 0, 3, 2, 2, 0}));
  const std::vector<double> drawn =
      elements(graph.value(random_multinomial(key, weights, 4000, true)));
  REQUIRE(drawn.size() == 8000);
  CHECK(std::count(drawn.begin(), drawn.begin() + 4000, 1.0) == 0);
  CHECK(std::fabs(static_cast<double>(std::count(drawn.begin(), drawn.begin() + 4000, 2.0)) -
                  3000) < 120);
  CHECK(std::fabs(static_cast<double>(std::count(drawn.begin() + 4000, drawn.end(), 1.0)) - 2000) <
        140);
  const std::vector<double> distinct = elements(graph.value(random_multinomial(key, weights, 2)));
  CHECK(distinct[0] != distinct[1]);
  expect_type(random_categorical(key, weights).shape(), "i32[2]");
  expect_error(Errc::bad_argument, [&] { (void)random_multinomial(key, weights, 4); });
}

TEST_CASE("permutation and dropout") {
  ValuedGraph graph;
  const Tensor key = graph.input(key_of(5, 6));
  std::vector<double> order = elements(graph.value(random_permutation(key, 100)));
  CHECK_FALSE(std::ranges::is_sorted(order));
  std::ranges::sort(order);
  for (std::size_t i = 0; i < 100; ++i) CHECK(order[i] == static_cast<double>(i));

  const Tensor x =
      graph.input(HostBuffer::of<float>(Shape({10000}, f32), std::vector<float>(10000, 3.0f)));
  const std::vector<double> y = elements(graph.value(dropout(key, x, 0.25)));
  CHECK(std::ranges::all_of(y, [](double v) { return v == 0 || v == 4; }));
  CHECK(std::fabs(mean_of(y) - 3) < 0.06);
  CHECK(dropout(key, x, 0).op() == "input");
  expect_error(Errc::bad_argument, [&] { (void)dropout(key, x, 1); });
}

}  // namespace
}  // namespace tenon::testing
