// Which element-wise steps become one, and that their results keep their bits.
#include "backends/cpu/fused_points.hpp"

#include "support/op_testing.hpp"
#include "support/rounds.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/graph.hpp>
#include <tenon/lowered.hpp>
#include <tenon/ops.hpp>
#include <tenon/session.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon::cpu {
namespace {

using testing::elements;

/// The steps of what `body` records on x, a and b of [64, 8].
struct FusedSteps {
  using Body =
      std::function<std::vector<Tensor>(const Tensor& x, const Tensor& a, const Tensor& b)>;

  explicit FusedSteps(const Body& body) {
    Graph graph;
    const Graph::Recording recording(graph);
    const std::vector<Shape> shapes(3, Shape({64, 8}, f32));
    const std::vector<Tensor> results =
        body(graph.input("x", shapes[0]), graph.input("a", shapes[1]), graph.input("b", shapes[2]));
    lowered = lower(graph.program(results), shapes);
    steps = lowered.steps;
    groups = fuse_points(lowered, lowered.steps, steps);
  }

  std::size_t members(std::size_t step) const {
    const auto* fused = steps[step].op.as<FusedPoints>();
    return fused == nullptr ? 1 : fused->group->members.size();
  }

  Lowered lowered;
  std::vector<Step> steps;
  std::vector<std::unique_ptr<const PointGroup>> groups;
};

TEST_CASE("fuse_points: a chain becomes one step that reads what the chain reads") {
  const FusedSteps fused([](auto& x, auto& a, auto& b) { return std::vector{relu(x * a + b)}; });
  REQUIRE(fused.steps.size() == 1);
  CHECK(fused.members(0) == 3);
  CHECK(fused.steps[0].inputs.size() == 3);
  CHECK(fused.steps[0].output.place.kind == Place::Kind::output);
}

TEST_CASE("fuse_points: a value that several members read") {
  const FusedSteps fused([](auto& x, auto& a, auto&) {
    const Tensor t = x + a;
    return std::vector{t * sigmoid(t) + x};
  });
  REQUIRE(fused.steps.size() == 1);
  CHECK(fused.members(0) == 4);
}

TEST_CASE("fuse_points: values that others read stay") {
  const FusedSteps result([](auto& x, auto& a, auto&) {
    const Tensor sum = x + a;
    return std::vector{relu(sum), sum};
  });
  CHECK(result.steps.size() == 2);

  const FusedSteps reduced([](auto& x, auto& a, auto&) {
    const Tensor sum = x + a;
    return std::vector{relu(sum) - max(sum, {1}, true)};
  });
  REQUIRE(reduced.steps.size() == 3);  // the sum; its maximum; relu and the difference
  CHECK(reduced.members(2) == 2);
}

TEST_CASE("fuse_points: large values that others read are stored on the way") {
  Graph graph;
  const Graph::Recording recording(graph);
  const std::vector<Shape> shapes(1, Shape({256, 512}, f32));
  const Tensor x = graph.input("x", shapes[0]), sum = x + x;
  const std::vector<Tensor> results{relu(sum) * x, sum};
  const Program program = graph.program(results);
  const Lowered lowered = lower(program, shapes);
  std::vector<Step> steps = lowered.steps;
  const auto groups = fuse_points(lowered, lowered.steps, steps);
  REQUIRE(groups.size() == 1);
  REQUIRE(steps.size() == 1);
  CHECK(groups[0]->members.size() == 3);
  CHECK(groups[0]->members[0].is_stored);
  CHECK_FALSE(groups[0]->members[1].is_stored);
}

TEST_CASE("fuse_points: values of other sizes stay") {
  const FusedSteps fused([](auto& x, auto& a, auto&) {
    const Tensor row = max(a, {0}, true);  // [1, 8]
    return std::vector{x + exp(-row)};
  });
  REQUIRE(fused.steps.size() == 3);
  CHECK(fused.members(1) == 2);
  CHECK(fused.members(2) == 1);
}

TEST_CASE("fuse_points: long chains in parts") {
  const FusedSteps fused([](Tensor x, auto& a, auto&) {
    for (std::size_t i = 0; i < 2 * PointGroup::max_members + 4; ++i) x = x + a;
    return std::vector{x};
  });
  REQUIRE(fused.steps.size() == 3);
  CHECK(fused.members(0) == 4);
  CHECK(fused.members(1) == PointGroup::max_members);
  CHECK(fused.members(2) == PointGroup::max_members);
}

TEST_CASE("fuse_points: nothing moves behind what overwrites its operands") {
  const FusedSteps chain([](auto& x, auto& a, auto& b) { return std::vector{relu(x * a + b)}; });
  std::vector<Step> steps = chain.lowered.steps;
  REQUIRE(steps.size() == 3);
  // Between the product and the sum, another step writes a's memory.
  Step writer = steps[0];
  std::swap(writer.inputs[1], writer.output);
  writer.inputs[1] = writer.inputs[0];
  steps.insert(steps.begin() + 1, writer);
  const auto groups = fuse_points(chain.lowered, chain.lowered.steps, steps);
  REQUIRE(steps.size() == 3);
  CHECK(steps[0].op.as<Mul>() != nullptr);
  REQUIRE(groups.size() == 1);
  CHECK(groups[0]->members.size() == 2);
}

/// Random element-wise ops on values of one shape and of shapes that broadcast to it, of many types.
class PointProgram {
 public:
  PointProgram(testing::Random& random, const Shape& shape) : random_(random), shape_(shape) {}

  void record(int count) {
    const Graph::Recording recording(graph);
    add_input(shape_);
    const std::int64_t last = shape_[shape_.rank() - 1];
    add_input(Shape({last}, f32));
    add_input(Shape({shape_[0], 1}, f32));
    add_input(Shape({}, f32));
    add_permuted();
    while (static_cast<int>(made_.size()) < count) add_op();
  }

  /// Its results: the last value, and some of the others.
  Program program() const {
    std::vector<Tensor> results;
    for (std::size_t i = 0; i + 1 < made_.size(); ++i) {
      if (is_result_[i]) results.push_back(made_[i]);
    }
    results.push_back(made_.back());
    return graph.program(results);
  }

  Graph graph;
  std::vector<HostBuffer> inputs;

 private:
  void add_input(const Shape& shape) {
    inputs.push_back(random_.uniform(shape));
    values_.push_back(graph.input("in" + std::to_string(inputs.size()), shape));
  }
  void add_permuted() {
    add_input(Shape({shape_[1], shape_[0]}, f32));
    values_.back() = permute(values_.back(), {1, 0});
  }
  /// Often the latest.
  const Tensor& value() {
    const auto last = static_cast<std::int64_t>(values_.size()) - 1;
    const std::int64_t pick = random_.integer(0, 1) == 0 ? last : random_.integer(0, last);
    return values_[static_cast<std::size_t>(pick)];
  }
  /// Of all sizes.
  Tensor full() { return values_[0] + value(); }

  Tensor random_op() {
    static constexpr DType types[] = {f16, bf16, i32, i8, DType::f64};
    switch (random_.integer(0, 9)) {
      case 0:
        return full() * value();
      case 1:
        return minimum(full(), value());
      case 2:
        return sigmoid(full());
      case 3:
        return clamp(full() - value(), -1, 1.5);
      case 4:
        return where(lt(full(), value()), full(), value());
      case 5:
        return cast(cast(full(), types[random_.integer(0, 4)]), f32);
      case 6:
        return cast(exp(cast(full(), f16)), f32);
      case 7: {
        const Tensor scale = graph.constant("scale", Shape({}, f32)),
                     zero = graph.constant("zero", Shape({}, DType::u8));
        return dequantize_linear(quantize_linear(full(), scale, zero), scale, zero);
      }
      case 8: {
        const Tensor scale = graph.constant("scales", Shape({shape_[1]}, f32));
        return dequantize_linear(
            quantize_linear(full(), scale, {}, {.axis = 1, .dtype = DType::i8}), scale);
      }
      default:
        return maximum(full(), value()) / (abs(value()) + 0.5);
    }
  }
  void add_op() {
    values_.push_back(random_op());
    made_.push_back(values_.back());
    is_result_.push_back(random_.integer(0, 3) == 0);
  }

  testing::Random& random_;
  Shape shape_;
  std::vector<Tensor> values_, made_;
  std::vector<bool> is_result_;  ///< of those made
};

TEST_CASE("fused element-wise steps have the bits of the single steps") {
  testing::Random random;  // prints its seed
  for (int round = 0; round < testing::rounds(60); ++round) {
    const bool is_large = round % 15 == 0;  // then results are stored on the way
    const Shape shape = is_large ? Shape({random.integer(257, 300), random.integer(512, 540)}, f32)
                                 : Shape({random.integer(1, 70), random.integer(1, 60)}, f32);
    PointProgram points(random, shape);
    points.record(static_cast<int>(random.integer(2, 20)));
    const auto weights = std::make_shared<const WeightSet>(std::map<std::string, Buffer>{
        {"scale", HostBuffer::of<float>(Shape({}, f32), {0.0371F}).to_device(cpu_device())},
        {"zero", random.uniform(Shape({}, DType::u8), 0, 255).to_device(cpu_device())},
        {"scales", random.uniform(Shape({shape[1]}, f32), 0.01, 0.1).to_device(cpu_device())}});
    std::vector<Buffer> inputs;
    for (const HostBuffer& input : points.inputs) inputs.push_back(input.to_device(cpu_device()));
    const auto run = [&](bool merge, int threads) {
      Session session(points.program(), {.backends = {make_cpu_backend({.threads = threads})}});
      session.set_merge(merge);
      session.bind(weights);
      std::vector<double> all;
      for (const Buffer& result : session.forward(inputs)) {
        const std::vector<double> values = elements(result.to_host());
        all.insert(all.end(), values.begin(), values.end());
      }
      return all;
    };
    const std::vector<double> want = run(false, 1);
    for (int threads = 1; threads <= 3; ++threads) {
      const std::vector<double> got = run(true, threads);
      INFO("round " << round << ", " << threads << " threads");
      REQUIRE(got.size() == want.size());
      const auto same = [](double a, double b) { return a == b || (a != a && b != b); };
      CHECK(std::ranges::equal(got, want, same));
    }
  }
}

}  // namespace
}  // namespace tenon::cpu
