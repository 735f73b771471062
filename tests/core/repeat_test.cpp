// Stacks of layers: one function for equal layers, the same results as written out.
#include "core/runs.hpp"
#include "support/cpu_timer.hpp"
#include "support/expect_error.hpp"
#include "support/op_testing.hpp"
#include "support/program_text.hpp"

#include <tenon/ops.hpp>
#include <tenon/optimize.hpp>
#include <tenon/repeat.hpp>
#include <tenon/weights_view.hpp>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>

namespace tenon {
namespace {

using namespace testing;

template <class T = Tensor>
struct Layer {
  T weight;
  T scale;
  TENON_FIELDS(weight, scale)
};

constexpr std::int64_t width = 5;

/// Layers "blk.<i>" with weights [width, width] and scales of the given dtype.
struct Model {
  explicit Model(int count, const std::vector<DType>& scale_types = {}) {
    Random random(7);
    for (int i = 0; i < count; ++i) {
      const DType type = scale_types.empty() ? f32 : scale_types[static_cast<std::size_t>(i)];
      add(i, "weight", Shape({width, width}, f32), random);
      add(i, "scale", Shape({width}, type), random);
    }
  }

  std::vector<Layer<>> layers(Graph& graph) const {
    std::vector<Layer<>> result;
    for (std::size_t i = 0; i < weights.size() / 2; ++i) {
      const std::string prefix = "blk." + std::to_string(i) + ".";
      result.push_back({graph.constant(prefix + "weight", weights.at(prefix + "weight").shape()),
                        graph.constant(prefix + "scale", weights.at(prefix + "scale").shape())});
    }
    return result;
  }

  std::map<std::string, Buffer> weights;

 private:
  void add(int layer, const std::string& name, const Shape& shape, Random& random) {
    weights["blk." + std::to_string(layer) + "." + name] = device(random.uniform(shape, -0.7, 0.7));
  }
};

Tensor forward_layer(const Layer<>& layer, const Tensor& x) {
  return tanh(linear(x, layer.weight)) * cast(layer.scale, f32) + x;
}

struct Counts {
  int functions = 0;
  std::vector<std::pair<std::int64_t, std::int64_t>> repeats;  ///< first, count
};

Counts counts(const Program& program) {
  Counts result;
  for (const Function& function : program.functions) {
    if (function.name != program.entry) ++result.functions;
  }
  for (const Instruction& instruction : program.main().body) {
    if (instruction.kind == Instruction::Kind::repeat) {
      result.repeats.emplace_back(instruction.first, instruction.count);
    }
  }
  return result;
}

using Runs = std::vector<std::pair<std::int64_t, std::int64_t>>;

/// The stack as repeat() records it, and layer after layer.
std::pair<Program, Program> both_ways(const Model& model) {
  Graph repeated;
  const Tensor x = repeated.input("x", Shape({3, width}, f32));
  const Tensor y = repeat(model.layers(repeated), x,
                          [](const Layer<>& layer, const Tensor&, const Tensor& carry) {
                            return forward_layer(layer, carry);
                          });
  Graph unrolled;
  Tensor z = unrolled.input("x", Shape({3, width}, f32));
  for (const Layer<>& layer : model.layers(unrolled)) z = forward_layer(layer, z);
  return {repeated.program({&y, 1}), unrolled.program({&z, 1})};
}

void check_same_results(const Program& a, const Program& b, const Model& model) {
  for (const char* backend : {"reference", "cpu"}) {
    INFO(backend);
    const Buffer x = device(Random(3).uniform(Shape({3, width}, f32)));
    const HostBuffer one = session(a, model.weights, backend).forward({x})[0].to_host();
    const HostBuffer other = session(b, model.weights, backend).forward({x})[0].to_host();
    // A backend may be given other steps of a loop than of layers written out: equal up to
    // rounding.
    if (std::string_view(backend) == "reference") CHECK(same_bits(one, other));
    expect_close(one, other, 1e-5, 1e-5);
    CHECK_FALSE(same_bits(one, x.to_host()));
  }
}

}  // namespace

TEST_CASE("repeat: calls in another order, and layers that return something else, are refused") {
  const auto here = std::source_location::current();
  Graph graph;
  const Tensor x = graph.input("x", Shape({width}, f32));
  const Tensor numbered = graph.constant("blk.0.scale", Shape({width}, f32));
  expect_error(Errc::bad_argument, [&] { RepeatRecorder({}, here); });
  RepeatRecorder recorder({&x, 1}, here);
  expect_error(Errc::call_order, [&] { recorder.end({&x, 1}); });
  const RepeatRecorder::Frame frame = recorder.begin({&numbered, 1});
  const std::span<const Tensor> carry(frame.carry);
  expect_error(Errc::bad_argument, [&] { recorder.end(carry, -1); });
  expect_error(Errc::bad_argument, [&] { recorder.end(carry, 2); });  // of a layer with a number
  expect_error(Errc::bad_argument, [&] { recorder.end({}); });
  expect_error(Errc::bad_type, [&] { recorder.end(carry, 1, 1); });
  expect_error(Errc::bad_type, [&] { recorder.end(carry, 1, 0); });
}

TEST_CASE("repeat: equal layers are one function, with the results of layers written out") {
  const Model model(6);
  const auto [repeated, unrolled] = both_ways(model);
  CHECK(counts(repeated).functions == 1);
  CHECK(counts(repeated).repeats == Runs{{0, 6}});
  CHECK(counts(unrolled).functions == 0);
  check_same_results(repeated, unrolled, model);
}

TEST_CASE("repeat: layers of other types get functions of their own") {
  const Model model(5, {f32, f32, f16, f16, f32});
  const auto [repeated, unrolled] = both_ways(model);
  CHECK(counts(repeated).functions == 2);
  CHECK(counts(repeated).repeats == Runs{{0, 2}, {2, 2}, {4, 1}});
  check_same_results(repeated, unrolled, model);
}

TEST_CASE("repeat: layers of other attributes get functions of their own") {
  const Model model(4);
  Graph graph;
  const Tensor x = graph.input("x", Shape({3, width}, f32));
  int traced = 0;
  const Tensor y =
      repeat(model.layers(graph), x, [&](const Layer<>& layer, const Tensor&, const Tensor& carry) {
        return leaky_relu(linear(carry, layer.weight), traced++ % 2 == 0 ? 0.1 : 0.2);
      });
  CHECK(traced == 4);
  const Program program = graph.program({&y, 1});
  CHECK(counts(program).functions == 2);
  CHECK(counts(program).repeats == Runs{{0, 1}, {1, 1}, {2, 1}, {3, 1}});

  Graph unrolled;
  Tensor z = unrolled.input("x", Shape({3, width}, f32));
  traced = 0;
  for (const Layer<>& layer : model.layers(unrolled)) {
    z = leaky_relu(linear(z, layer.weight), traced++ % 2 == 0 ? 0.1 : 0.2);
  }
  check_same_results(program, unrolled.program({&z, 1}), model);
}

// Each name was looked for from the first number on: minutes.
TEST_CASE("unroll: names of a function that is called tens of thousands of times") {
  constexpr int calls = 35'000;
  std::string text =
      "\ndef half(x: f32[2]):\n    y = exp(x)\n    return y\n\ndef forward(v0: f32[2]):\n";
  for (int i = 1; i <= calls; ++i) text += fmt::format("    v{} = half(v{})\n", i, i - 1);
  const Program program = program_of(text + fmt::format("    return v{}\n", calls));
  const CpuTimer timer;
  const Program unrolled = unroll(program);
  CHECK(timer.seconds() < endless_seconds);
  REQUIRE(unrolled.main().body.size() == calls);
  CHECK(unrolled.main().values.back().name == fmt::format("half_y_{}", calls));
}

// What a layer that is dropped has captured and declared goes with it.
TEST_CASE("repeat: constants and values from outside of layers that are not kept") {
  Graph graph;
  const Tensor x = graph.input("x", Shape({2}, f32));
  const Tensor outside[] = {exp(x), sin(x), cos(x)};
  RepeatRecorder recorder({&x, 1}, std::source_location::current());
  for (int i = 0; i < 6; ++i) {
    const RepeatRecorder::Frame frame = recorder.begin({});
    Tensor y = frame.carry[0];
    for (int twice = 0; twice < 2; ++twice) {
      // Layers 0, 1, 3 and 4 have the same structure; each captures other values than the last.
      const Tensor weight = graph.constant(i % 3 == 2 ? "v" : "w", Shape({2}, f32));
      y = y * weight + outside[i % 2] * outside[i % 2 + 1];
    }
    recorder.end({&y, 1});
  }
  const Tensor y = recorder.finish()[0];
  Program program = graph.program({&y, 1});
  verify(program);
  REQUIRE(program.functions.size() == 3);
  for (const Function& function : {program.functions[0], program.functions[1]}) {
    CHECK(function.parameter_count == 5);  // the carry, the index, the scope and two captures
    CHECK(std::ranges::count_if(function.body, [](const Instruction& instruction) {
            return instruction.kind == Instruction::Kind::constant;
          }) == 1);
  }
}

TEST_CASE("repeat: values from outside and the layer's number") {
  const Model model(4);
  const auto forward = [&](bool repeats) {
    Graph graph;
    const Tensor x = graph.input("x", Shape({3, width}, f32));
    const Tensor outside = sin(x);
    const Tensor shared = graph.constant("shared", Shape({width}, f32));
    Tensor y = x;
    if (repeats) {
      y = repeat(model.layers(graph), x,
                 [&](const Layer<>& layer, const Tensor& index, const Tensor& carry) {
                   return forward_layer(layer, carry) * cast(index, f32) + outside * shared;
                 });
    } else {
      const Graph::Recording recording(graph);
      double number = 0;
      for (const Layer<>& layer : model.layers(graph)) {
        y = forward_layer(layer, y) * full(number++, Shape({}, f32)) + outside * shared;
      }
    }
    return graph.program({&y, 1});
  };
  Model with_shared = model;
  with_shared.weights["shared"] = device(Random(5).uniform(Shape({width}, f32)));
  const Program repeated = forward(true);
  CHECK(counts(repeated).repeats == Runs{{0, 4}});
  check_same_results(repeated, forward(false), with_shared);
}

TEST_CASE("repeat: several values carried, in the form they came in") {
  const Model model(3);
  using Pair = std::array<Tensor, 2>;
  Graph graph;
  const Tensor x = graph.input("x", Shape({3, width}, f32));
  const Pair y =
      repeat(model.layers(graph), Pair{x, exp(x)},
             [](const Layer<>& layer, const Tensor&, const Pair& carry) {
               return Pair{carry[1], forward_layer(layer, carry[0])};  // they change places
             });
  Graph unrolled;
  Tensor a = unrolled.input("x", Shape({3, width}, f32));
  Tensor b = exp(a);
  for (const Layer<>& layer : model.layers(unrolled)) {
    const Tensor old = a;
    a = b;
    b = forward_layer(layer, old);
  }
  const Tensor results[] = {a, b};
  const Program one = graph.program(y);
  const Program other = unrolled.program(results);
  for (const char* backend : {"reference", "cpu"}) {
    INFO(backend);
    const Buffer input = device(Random(11).uniform(Shape({3, width}, f32)));
    const auto got = session(one, model.weights, backend).forward({input});
    const auto want = session(other, model.weights, backend).forward({input});
    CHECK(same_bits(got[0].to_host(), want[0].to_host()));
    CHECK(same_bits(got[1].to_host(), want[1].to_host()));
  }
}

TEST_CASE("repeat: a slice by the loop's index and a number of an array that is folded") {
  const char* text = R"(def body(sum: f32[], i: i64, s: Scope, stack: f32[8]):
    all: i64[4] = iota(size=4, axis=0, start=0, step=1, dtype="i64")
    own: i64 = select(all, i)
    two = full(value=2, dtype="i64")
    third: i64 = select(all, two)
    a: i64 = add(i, own)
    b: i64 = add(i, third)
    v: f32[] = select(stack, a)
    w: f32[] = select(stack, b)
    both = add(v, w)
    r = add(sum, both)
    return r

def forward(x: f32[], stack: f32[8]):
    carry = pack(x)
    l = scope("l")
    t = repeat(body, 4, carry, l, stack)
    y: f32[] = item(t, 0)
    return y
)";
  const std::vector<Buffer> inputs{device(floats({}, {0})),
                                   device(floats({8}, {1, 2, 4, 8, 16, 32, 64, 128}))};
  constexpr float own = 1 + 4 + 16 + 64, third = 4 + 8 + 16 + 32;
  Program folded = program_of(text);
  optimize(folded);
  for (const Program& program : {program_of(text), folded}) {
    Session made = session(program);
    CHECK(values(made.forward(inputs)[0]) == std::vector<float>{own + third});
  }
}

TEST_CASE("repeat: no layers change nothing, and a layer that changes the type is refused") {
  const Model model(2);
  Graph graph;
  const Tensor x = graph.input("x", Shape({3, width}, f32));
  const Tensor same =
      repeat(std::vector<Layer<>>(), x,
             [](const Layer<>&, const Tensor&, const Tensor& carry) { return exp(carry); });
  CHECK(same.op() == "input");
  const std::string what = expect_error(Errc::shape_mismatch, [&] {
    repeat(model.layers(graph), x,
           [](const Layer<>&, const Tensor&, const Tensor& carry) { return sum(carry, 0); });
  });
  for (const char* part : {"repeat_test.cpp:", "layer 0", "f32[3, 5]", "f32[5]"}) {
    INFO(what << " should hold " << part);
    CHECK(what.find(part) != std::string::npos);
  }
  // A body that throws leaves the graph recording outside the layer.
  CHECK_NOTHROW(x + x);
}

TEST_CASE("repeat: a layer's own value does not leave it") {
  const Model model(2);
  Graph graph;
  const Tensor x = graph.input("x", Shape({3, width}, f32));
  Tensor leaked;
  const Tensor y =
      repeat(model.layers(graph), x, [&](const Layer<>& layer, const Tensor&, const Tensor& carry) {
        if (leaked.is_empty()) leaked = linear(carry, layer.weight);
        return exp(carry);
      });
  expect_error(Errc::context_mismatch, [&] { y + leaked; });
}

TEST_CASE("repeat: tensors of another graph do not enter") {
  const Model model(1);
  Graph graph;
  Graph other;
  const Tensor x = graph.input("x", Shape({3, width}, f32));
  const Tensor stranger = other.input("stranger", Shape({3, width}, f32));
  expect_error(Errc::context_mismatch, [&] {
    repeat(model.layers(graph), x,
           [&](const Layer<>&, const Tensor&, const Tensor&) { return stranger; });
  });
}

TEST_CASE("repeat: the first layer may take a weight of a file") {
  const std::vector<std::pair<std::string, Shape>> weights{{"start", Shape({3, width}, f32)},
                                                           {"blk.0.weight", Shape({3, width}, f32)},
                                                           {"blk.0.scale", Shape({width}, f32)}};
  const WeightsView view("model.safetensors", weights);
  const std::vector<Layer<>> layers{
      {view["blk"][0].tensor("weight"), view["blk"][0].tensor("scale")}};
  const auto run = [&] {
    return repeat(layers, view.tensor("start"),
                  [](const Layer<>& layer, const Tensor&, const Tensor& carry) {
                    return carry * layer.scale + layer.weight;
                  });
  };
  expect_error(Errc::call_order, run);  // nothing says which graph
  Graph graph;
  {
    const Graph::Recording recording(graph);
    const Tensor y = run();
    CHECK(graph.program({&y, 1}).main().parameter_count == 0);
  }
}

TEST_CASE("repeat: state that layers update stays where it is") {
  constexpr std::int64_t depth = 3;
  const Model model(depth);
  const Shape cache_type({depth, 1, 1, 4, width}, f32);
  Graph graph;
  const Tensor x = graph.input("x", Shape({1, 2, 1, width}, f32));
  const Tensor cache = graph.input("cache", cache_type);
  const Tensor position = graph.input("position", Shape({}, i32));
  using State = std::array<Tensor, 2>;
  const State after = repeat(model.layers(graph), State{x, cache},
                             [&](const Layer<>& layer, const Tensor& index, const State& carry) {
                               return State{forward_layer(layer, carry[0]),
                                            cache_update(carry[1], index, carry[0], position)};
                             });
  Program program = graph.program(after);

  const HostBuffer x_value = Random(2).uniform(Shape({1, 2, 1, width}, f32));
  const HostBuffer cache_value = Random(4).uniform(cache_type);
  const auto position_value = device(HostBuffer::of<std::int32_t>(Shape({}, i32), {1}));

  for (const char* backend : {"reference", "cpu"}) {
    INFO(backend);
    Session run = session(program, model.weights, backend);
    const std::vector<Shape> shapes{x_value.shape(), cache_type, position_value.shape()};
    CHECK(std::ranges::count(run.report(shapes).copies, "carry1") == 0);  // never the cache

    // Shared: the caller's cache keeps its values.
    const Buffer shared = device(cache_value.contiguous());
    auto first = run.forward({device(x_value), shared, position_value});
    CHECK(same_bits(shared.to_host(), cache_value));
    CHECK_FALSE(first[1].chunk() == shared.chunk());

    // Moved: the same memory comes back, with the same values as in the copy.
    std::vector<Buffer> inputs{device(x_value),
                               Buffer::allocate(cache_type, cpu_device()->default_mem_region()),
                               position_value};
    copy_elements(cache_value.view(), inputs[1].host_view());
    const std::byte* memory = inputs[1].data().cptr();
    auto second = run.forward(std::move(inputs));
    CHECK(second[1].data().cptr() == memory);
    CHECK(same_bits(second[1].to_host(), first[1].to_host()));
    CHECK(same_bits(second[0].to_host(), first[0].to_host()));

    // Rows 1 and 2 of every layer hold that layer's x, rows 0 and 3 what was there.
    const HostBuffer got = second[1].to_host();
    for (std::int64_t layer = 0; layer < depth; ++layer) {
      for (std::int64_t d = 0; d < width; ++d) {
        CHECK(got.at({layer, 0, 0, 0, d}) == cache_value.at({layer, 0, 0, 0, d}));
        CHECK(got.at({layer, 0, 0, 3, d}) == cache_value.at({layer, 0, 0, 3, d}));
        if (layer == 0) CHECK(got.at({0, 0, 0, 1, d}) == x_value.at({0, 0, 0, d}));
        if (layer == 0) CHECK(got.at({0, 0, 0, 2, d}) == x_value.at({0, 1, 0, d}));
        if (layer > 0) CHECK(got.at({layer, 0, 0, 1, d}) != cache_value.at({layer, 0, 0, 1, d}));
      }
    }
  }
}

namespace {

/// The CPU backend, but for casts.
class NoCasts final : public Backend {
 public:
  std::string_view name() const noexcept override { return "no_casts"; }
  MemRegion& region() const override { return inner_->region(); }
  std::optional<std::string> refuses(const Step& step) const override {
    if (step.op.as<Cast>() != nullptr) return "no casts";
    return inner_->refuses(step);
  }
  std::unique_ptr<Partition> compile(const Lowered& program,
                                     std::span<const Step> steps) const override {
    return inner_->compile(program, steps);
  }

 private:
  BackendPtr inner_ = backends("cpu")[0];
};

}  // namespace

TEST_CASE("repeat: an op that a backend refuses leaves it the rest of the layer") {
  const Model model(3);
  Graph graph;
  const Tensor x = graph.input("x", Shape({3, width}, f32));
  const Tensor y = repeat(
      model.layers(graph), x, [](const Layer<>& layer, const Tensor& index, const Tensor& carry) {
        return linear(carry, layer.weight) * cast(index, f32);  // an i64 that becomes f32
      });
  Session run(graph.program({&y, 1}),
              {.backends = {std::make_shared<NoCasts>(), backends("reference")[0]}});
  const Shape shapes[] = {x.shape()};
  CHECK(run.explain("cast0", shapes)[0] == "no_casts: no casts");
  std::map<std::string, std::string> taken;
  for (const PlanReport::Part& part : run.report(shapes).parts) {
    for (const std::string& value : part.values) taken[value] = part.backend;
  }
  CHECK(taken.at("linear0") == "no_casts");
  CHECK(taken.at("cast0") == "reference");
}

}  // namespace tenon
