// RecordedValues recorded from one run and compared with another's.
#include "support/expect_error.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/compare.hpp>
#include <tenon/graph.hpp>
#include <tenon/ops.hpp>

#include <cmath>
#include <limits>
#include <random>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

HostBuffer row(std::initializer_list<float> values) {
  return HostBuffer::of<float>(Shape({static_cast<std::int64_t>(values.size())}, f32), values);
}

/// Six layers, of which the last two are others: functions layer0 and layer1.
Program stack() {
  Graph graph;
  const Graph::Recording recording(graph);
  std::vector<Tensor> weights;
  for (int i = 0; i < 6; ++i) {
    weights.push_back(graph.constant("blk." + std::to_string(i) + ".w", Shape({4, 4}, f32)));
  }
  const Tensor x = graph.input("x", Shape({symbol("N"), 4}, f32));
  RepeatRecorder layers(std::vector{x * 2.0}, std::source_location::current());
  for (int i = 0; i < 6; ++i) {
    const auto frame =
        layers.begin(std::span<const Tensor>(&weights[static_cast<std::size_t>(i)], 1));
    const Tensor y = linear(frame.carry[0], weights[static_cast<std::size_t>(i)]);
    layers.end(std::vector{i < 4 ? tanh(y) : sigmoid(y)});
  }
  return graph.program(std::vector{softmax(layers.finish()[0])});
}

std::map<std::string, Buffer> weights_of(unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> draw;
  std::map<std::string, Buffer> weights;
  for (int i = 0; i < 6; ++i) {
    HostBuffer weight = HostBuffer::uninitialized(Shape({4, 4}, f32));
    for (float& value : weight.mutable_values<float>()) value = draw(random);
    weights.emplace("blk." + std::to_string(i) + ".w", weight.to_device(cpu_device()));
  }
  return weights;
}

Session session_of(const Program& program, std::map<std::string, Buffer> weights) {
  Session session(program, {.backends = {make_cpu_backend({.threads = 2})}});
  session.bind(std::make_shared<const WeightSet>(std::move(weights)));
  return session;
}

std::vector<Buffer> compared_input() {
  return {HostBuffer::of<float>(Shape({2, 4}, f32), {1, 2, 3, 4, -1, 0, 1, 0.5F})
              .to_device(cpu_device())};
}

TEST_CASE("compare: the distance of two arrays") {
  const Difference found = difference(row({1, 2, 3, 4}), row({1, 2.5F, 3, -8}));
  CHECK(found.elements == 4);
  CHECK(found.max == 12);
  CHECK(found.worst == 3);
  CHECK(found.got == 4);
  CHECK(found.want == -8);
  CHECK(found.scale == 8);
  CHECK(found.mean == Approx(12.5 / 4));
  CHECK(found.p50 == 0);
  CHECK(found.p90 == 12);
  CHECK(Tolerance{.absolute = 4, .relative = 1}.holds(found));
  CHECK_FALSE(Tolerance{.absolute = 3.9, .relative = 1}.holds(found));

  // Of 200 distances 1 .. 200, 90 % are at most 180 (numpy: inverted_cdf).
  HostBuffer ramp = HostBuffer::uninitialized(Shape({200}, f32));
  for (float next = 0; float& value : ramp.mutable_values<float>()) value = ++next;
  const Difference even = difference(ramp, HostBuffer::zeros(Shape({200}, f32)));
  CHECK(even.p50 == 100);
  CHECK(even.p90 == 180);
  CHECK(even.p99 == 198);
  CHECK(even.mean == Approx(100.5));
}

TEST_CASE("compare: what is no number") {
  CHECK(difference(row({nan, infinity, -infinity}), row({nan, infinity, -infinity})).max == 0);
  CHECK(difference(row({0, nan}), row({0, 1})).max == infinity);
  CHECK(difference(row({0, 1}), row({0, nan})).max == infinity);
  CHECK(difference(row({infinity}), row({-infinity})).max == infinity);
  CHECK_FALSE(Tolerance{.relative = 1e30}.holds(difference(row({nan}), row({1}))));
  const Difference none =
      difference(HostBuffer::zeros(Shape({0, 3}, f32)), HostBuffer::zeros(Shape({0, 3}, f64)));
  CHECK(none.elements == 0);
  CHECK(Tolerance{.relative = 0}.holds(none));
}

TEST_CASE("compare: other types and sizes") {
  const HostBuffer ones = HostBuffer::of<float>(Shape({2, 2}, f32), {1, 2, 3, 4});
  CHECK(difference(ones.to(f16), ones).max == 0);
  CHECK(difference(ones.permute(std::vector{1, 0}), ones).max == 1);
  HostBuffer blocks = HostBuffer::uninitialized(Shape({1, 32}, f32));
  for (float& value : blocks.mutable_values<float>()) value = 0.5F;
  CHECK(difference(blocks.to(DType::q8_0), blocks).max < 1e-3);
  expect_error(Errc::shape_mismatch, [&] { difference(ones, row({1, 2, 3, 4})); });
  expect_error(Errc::call_order, [] { difference(HostBuffer(), HostBuffer()); });
}

TEST_CASE("compare: the first layer that differs") {
  const Program program = stack();
  REQUIRE(program.functions.size() == 3);
  CHECK(constant_names(program) ==
        std::vector<std::string>{"blk.0.w", "blk.1.w", "blk.2.w", "blk.3.w", "blk.4.w", "blk.5.w"});
  const auto weights = weights_of(1);
  const RecordedValues recorded =
      record_activations(session_of(program, weights), compared_input());
  CHECK(recorded.size() == 2 + 6 * 2 + 1);  // the factor, its product, layers, softmax
  const Comparison same = compare_activations(session_of(program, weights), compared_input(),
                                              recorded, {.relative = 0});
  CHECK(same.values.size() == recorded.size());
  CHECK(same.unknown.empty());
  CHECK(same.first() == nullptr);

  auto other = weights;
  other.at("blk.3.w") = weights_of(2).at("blk.3.w");
  const std::vector<std::string> layers = {"layer[0]", "layer[3]", "layer[4]", "layer[5]"};
  const RecordedValues outputs =
      record_activations(session_of(program, weights), compared_input(), layers);
  REQUIRE(outputs.size() == 4);
  const Comparison comparison =
      compare_activations(session_of(program, other), compared_input(), outputs);
  REQUIRE(comparison.values.size() == 4);
  REQUIRE(comparison.first() != nullptr);
  CHECK(comparison.first()->name == "layer[3]");
  CHECK(comparison.first()->op == "tanh");
  CHECK(comparison.values[0].is_within);
  CHECK(comparison.values[0].difference.max == 0);
  const std::string table = comparison.table();
  CHECK(table.find("layer[3]") != std::string::npos);
  CHECK(table.find("differs") != std::string::npos);
  CHECK(comparison.table(1).find("layer[3]") != std::string::npos);  // it is in view however small
}

TEST_CASE("compare: names that a program has not") {
  const Program program = stack();
  const auto weights = weights_of(1);
  const auto session = [&] { return session_of(program, weights); };
  const std::vector<std::string> wrong = {"layer[6]", "layer[0].1", "layer[x]", "nothing", "[0]"};
  for (const std::string& name : wrong) {
    const auto message = expect_error(Errc::bad_reference, [&] {
      record_activations(session(), compared_input(), std::span<const std::string>(&name, 1));
    });
    CHECK(message.find(name) != std::string::npos);
  }
  RecordedValues recorded{{"nothing", row({1})}};
  expect_error(Errc::bad_reference,
               [&] { compare_activations(session(), compared_input(), recorded); });
  recorded.emplace("layer[0]", HostBuffer::zeros(Shape({2, 4}, f32)));
  const Comparison comparison = compare_activations(session(), compared_input(), recorded);
  CHECK(comparison.unknown == std::vector<std::string>{"nothing"});
  recorded.at("layer[0]") = row({1});
  const auto message = expect_error(
      Errc::shape_mismatch, [&] { compare_activations(session(), compared_input(), recorded); });
  CHECK(message.find("layer[0]") != std::string::npos);
}

TEST_CASE("compare: a session that is used before and after, with a callback of its own") {
  Session session = session_of(stack(), weights_of(3));
  int seen = 0;
  session.set_post_callback([&](const StepEvent&) { ++seen; });
  session.forward(compared_input());
  const int each = seen;
  REQUIRE(each > 0);
  const RecordedValues recorded = record_activations(session, compared_input());
  CHECK(recorded.size() == 15);  // with the 2.0
  CHECK(compare_activations(session, compared_input(), recorded).first() == nullptr);
  CHECK(seen == each);
  session.forward(compared_input());
  CHECK(seen == 2 * each);
}

}  // namespace
}  // namespace tenon::testing
