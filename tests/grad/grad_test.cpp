#include "support/op_testing.hpp"
#include "support/program_text.hpp"

#include <tenon/tenon.hpp>

#include <cmath>
#include <tuple>
#include <vector>

namespace tenon::testing {
namespace {

HostBuffer run(const Program& program, std::vector<HostBuffer> inputs, std::size_t output = 0) {
  Session session(program, {.backends = default_backends()});
  std::vector<Buffer> buffers;
  for (const HostBuffer& input : inputs) buffers.push_back(input.to_device(cpu_device()));
  return session.forward(std::move(buffers)).at(output).to_host();
}

HostBuffer vector_of(std::vector<float> values) {
  HostBuffer array =
      HostBuffer::uninitialized(Shape({static_cast<std::int64_t>(values.size())}, f32));
  std::ranges::copy(values, array.mutable_values<float>().begin());
  return array;
}

template <class T = Tensor>
struct Line {
  T slope, offset;
  TENON_FIELDS(slope, offset)
  Tensor operator()(const Tensor& x) const { return x * slope + offset; }
};

struct Fit {
  TENON_FIELDS()
  std::tuple<Tensor, Line<Tensor>> step(Line<Tensor> line, Tensor x, Tensor y) const {
    const Tensor loss = mean(square(line(x) - y));
    return {loss, grad(loss, line)};
  }
};

TEST_CASE("grad: a model's struct gives a struct of gradients") {
  const Shape scalar(std::span<const Axis>(), f32), points({4}, f32);
  auto run_step =
      compile<&Fit::step>(Fit{}, {Line<Shape>{scalar, scalar}, points, points}, cpu_device())
          .bind(Fit{});
  const auto number = [](float value) {
    HostBuffer array = HostBuffer::uninitialized(Shape({}, f32));
    array.mutable_values<float>()[0] = value;
    return array.to_device(cpu_device());
  };
  // loss = mean((x - (2 x + 1))^2), so d/dslope = 2 mean((-x - 1) x), d/doffset = 2 mean(-x - 1).
  const auto [loss, gradients] =
      run_step(Line<Buffer>{number(1), number(0)}, vector_of({0, 1, 2, 3}).to_device(cpu_device()),
               vector_of({1, 3, 5, 7}).to_device(cpu_device()));
  CHECK(loss.to_host().values<float>()[0] == Approx(7.5));
  CHECK(gradients.slope.to_host().values<float>()[0] == Approx(-10));
  CHECK(gradients.offset.to_host().values<float>()[0] == Approx(-5));
}

TEST_CASE("grad: of a sink, and of rows with positions of their own") {
  Graph graph;
  const Graph::Recording recording(graph);
  const Tensor v = graph.input("v", Shape({2, 3, 1, 1}, f32));
  const Tensor position = graph.input("position", Shape({2}, i32));
  const Tensor sinks = graph.input("sinks", Shape({1}, f32));
  // All scores are 0: y = sum(v) / (n + e^sink) over the n keys of a row.
  const Tensor y = attention(full(0, Shape({2, 1, 1, 1}, f32)), full(0, Shape({2, 3, 1, 1}, f32)),
                             v, {.causal = true}, position, {}, sinks);
  const std::vector<Tensor> gradients{grad(sum(y), v), grad(sum(y), sinks)};
  const HostBuffer values = HostBuffer::of<float>(Shape({2, 3, 1, 1}, f32), {1, 2, 3, 4, 5, 6});
  const std::vector<HostBuffer> inputs{
      values, HostBuffer::of<std::int32_t>(Shape({2}, i32), {0, 2}), vector_of({std::log(2.0f)})};
  const double one = 1.0 / 3, three = 1.0 / 5;
  expect_near(run(graph.program(gradients), inputs, 0), {one, 0, 0, three, three, three}, 1e-6);
  expect_near(run(graph.program(gradients), inputs, 1), {-2.0 / 9 - 15 * 2.0 / 25}, 1e-6);
}

TEST_CASE("grad: of attention without keys") {
  Graph graph;
  const Graph::Recording recording(graph);
  const Tensor q = graph.input("q", Shape({1, 2, 1, 3}, f32));
  const Tensor sinks = graph.input("sinks", Shape({1}, f32));
  const Tensor none = full(0, Shape({1, 0, 1, 3}, f32));
  const Tensor loss = sum(square(attention(q, none, none, {}, {}, {}, sinks)));
  const std::vector<Tensor> gradients{grad(loss, q), grad(loss, sinks)};
  const std::vector<HostBuffer> inputs{
      HostBuffer::of<float>(Shape({1, 2, 1, 3}, f32), {1, 2, 3, 4, 5, 6}), vector_of({0.5f})};
  expect_near(run(graph.program(gradients), inputs, 0), {0, 0, 0, 0, 0, 0});
  expect_near(run(graph.program(gradients), inputs, 1), {0});
}

TEST_CASE("grad: of attention's values in pages that rows share") {
  Graph graph;
  const Graph::Recording recording(graph);
  const Tensor v = graph.input("v", Shape({3, 2, 1, 1}, f32));
  const Tensor table = graph.input("table", Shape({2, 2}, i32));
  const Tensor position = graph.input("position", Shape({2}, i32));
  const Tensor y = attention(full(0, Shape({2, 1, 1, 1}, f32)), full(0, Shape({3, 2, 1, 1}, f32)),
                             v, {.causal = true}, position, {}, {}, table);
  const Tensor gradient = grad(sum(y), v);
  const auto gradient_of = [&](const std::vector<std::int32_t>& pages) {
    const std::vector<HostBuffer> inputs{
        HostBuffer::of<float>(Shape({3, 2, 1, 1}, f32), {1, 2, 3, 4, 5, 6}),
        HostBuffer::of<std::int32_t>(Shape({2, 2}, i32), pages),
        HostBuffer::of<std::int32_t>(Shape({2}, i32), {3, 1})};
    return run(graph.program({&gradient, 1}), inputs);
  };
  expect_near(gradient_of({2, 0, 2, 1}), {0.25, 0.25, 0, 0, 0.75, 0.75}, 1e-6);
  expect_error(Errc::out_of_range, [&] { gradient_of({2, 0, 2, 3}); });
}

TEST_CASE("grad: of a gradient") {
  Graph graph;
  const Graph::Recording recording(graph);
  const Tensor x = graph.input("x", Shape({3}, f32));
  const Tensor first = grad(sum(x * x * x), x);
  const Tensor second = grad(sum(first), x);
  const HostBuffer y = run(graph.program(std::vector{first, second}), {vector_of({1, 2, -3})}, 1);
  expect_near(y, {6, 12, -18}, 1e-5);
}

TEST_CASE("grad: of values that are updated in place, which it reads afterwards") {
  Graph graph;
  const Graph::Recording recording(graph);
  const Tensor x = graph.input("x", Shape({3}, f32));
  const Tensor number = graph.input("number", Shape({}, f32));
  const Tensor cubes = sum(x * x * x);
  const Tensor index = full(1, Shape({}, i64));
  const Tensor updated = update_slice(x, index, number);
  // A loop takes what it carries over, too.
  const Tensor h = exp(x);
  const Tensor last = repeat(2, h, [&](const Tensor& i, const Tensor& carried) {
    return update_slice(carried, i, sum(carried));
  });
  const Tensor loss = cubes + sum(updated * updated) + sum(last);
  const HostBuffer values = vector_of({1, 2, -3});
  const HostBuffer y =
      run(graph.program(std::vector{loss, grad(loss, x)}), {values, vector_of({4}).reshape({})}, 1);
  // last = {s, s + e2 + e3, e3} with s = e1 + e2 + e3.
  const double e1 = std::exp(1.0), e2 = std::exp(2.0), e3 = std::exp(-3.0);
  expect_near(y, {3 + 2 + 2 * e1, 12 + 3 * e2, 27 - 6 + 4 * e3}, 1e-4);
}

TEST_CASE("grad: of products with one factor of zero, and with two") {
  const auto of_product = [](const std::vector<float>& values) {
    Graph graph;
    const Tensor x = graph.input("x", Shape({3}, f32));
    const Tensor g = grad(prod(x), x);
    return run(graph.program({&g, 1}), {vector_of(values)});
  };
  expect_near(of_product({2, 3, 4}), {12, 8, 6});
  expect_near(of_product({2, 0, 4}), {0, 8, 0});
  expect_near(of_product({0, 0, 4}), {0, 0, 0});
  // y = [1 * 4 * 5, 2, 3 * 0] of x = [1, 2, 3]: both as factors.
  const auto of_scatter = [](std::size_t output, const std::vector<float>& factors) {
    Graph graph;
    const Graph::Recording recording(graph);
    const Tensor x = graph.input("x", Shape({3}, f32)), source = graph.input("s", Shape({3}, f32));
    const Tensor index = graph.input("i", Shape({3}, i64));
    const Tensor y = sum(scatter(x, index, source, 0, "mul"));
    return run(graph.program(grad({&y, 1}, std::vector{scalar_like(y, 1)}, std::vector{x, source})),
               {vector_of({1, 2, 3}), vector_of(factors),
                HostBuffer::of<std::int64_t>(Shape({3}, i64), {0, 0, 2})},
               output);
  };
  expect_near(of_scatter(0, {4, 5, 0}), {20, 1, 0});
  expect_near(of_scatter(1, {4, 5, 0}), {5, 4, 3});
  expect_near(of_scatter(1, {4, 0, 2}), {0, 4, 3});
  expect_near(of_scatter(1, {0, 0, 2}), {0, 0, 3});
}

TEST_CASE("grad: stop_gradient ends a dependence") {
  Graph graph;
  const Graph::Recording recording(graph);
  const Tensor x = graph.input("x", Shape({2}, f32));
  const Tensor g = grad(sum(x * stop_gradient(x)), x);
  expect_near(run(graph.program({&g, 1}), {vector_of({3, -4})}), {3, -4});
}

TEST_CASE("grad: a parameter keeps its tags; ops count axes") {
  Graph graph;
  const Graph::Recording recording(graph);
  const Tensor x = graph.input("x", Shape({{"row", 2}, {"column", 3}}, f32));
  const Tensor w = graph.input("w", Shape({3}, f32));
  const std::vector<Tensor> g =
      grad(sum(softmax(x * w.with_tags({"column"}), "row")), std::vector{x, w});
  CHECK(g[0].shape() == x.shape());
  CHECK(g[0].shape().tag(1) == Name("column"));
  CHECK(!g[1].shape().has_tags());
}

struct Stack {
  std::vector<Tensor> layers;
  Tensor operator()(const Tensor& x) const {
    return tenon::repeat(layers, x, [](const Tensor& w, const Tensor&, const Tensor& carry) {
      return tanh(matmul(carry, w));
    });
  }
};

TEST_CASE("grad: through a repeat, with respect to weights of its layers and to its input") {
  Graph graph;
  const Graph::Recording recording(graph);
  const Tensor x = graph.input("x", Shape({2, 3}, f32));
  Stack stack;
  for (int i = 0; i < 3; ++i) {
    stack.layers.push_back(
        graph.constant("net.layers." + std::to_string(i) + ".w", Shape({3, 3}, f32)));
  }
  const Tensor y = stack(x);
  // The same by hand.
  Tensor by_hand = x;
  for (const Tensor& w : stack.layers) by_hand = tanh(matmul(by_hand, w));
  std::vector<Tensor> parameters = stack.layers;
  parameters.push_back(x);
  std::vector<Tensor> outputs = grad(sum(y * y), parameters);
  for (const Tensor& g : grad(sum(by_hand * by_hand), parameters)) outputs.push_back(g);
  outputs.push_back(y - by_hand);

  Session session(graph.program(outputs), {.backends = default_backends()});
  Random random;
  std::map<std::string, Buffer> weights;
  for (int i = 0; i < 3; ++i) {
    weights["net.layers." + std::to_string(i) + ".w"] =
        random.uniform(Shape({3, 3}, f32)).to_device(cpu_device());
  }
  session.bind(std::make_shared<const WeightSet>(std::move(weights)));
  const std::vector<Buffer> results =
      session.forward(std::vector{random.uniform(Shape({2, 3}, f32)).to_device(cpu_device())});
  for (std::size_t i = 0; i < 4; ++i) {
    expect_close(results[i].to_host(), results[i + 4].to_host(), 1e-5, 1e-5);
  }
  for (const double difference : elements(results[8].to_host())) {
    CHECK(std::fabs(difference) < 1e-6);
  }
}

TEST_CASE("grad: what has no gradient is refused at its line") {
  Graph graph;
  const Graph::Recording recording(graph);
  const Tensor x = graph.input("x", Shape({4}, f32)), unused = graph.input("unused", x.shape());
  const Tensor n = graph.input("n", Shape({4}, i32));
  expect_error(Errc::bad_argument, [&] { grad(x, x); });  // not a scalar
  expect_error(Errc::bad_argument, [&] { grad(sum(n), n); });
  expect_error(Errc::bad_argument, [&] { grad(std::vector{x, x}, std::vector{x}, {&x, 1}); });
  expect_error(Errc::bad_argument, [&] { grad({&n, 1}, {&n, 1}, {&x, 1}); });
  const Tensor other = graph.input("other", Shape({3}, f32));
  expect_error(Errc::bad_argument, [&] { grad({&x, 1}, {&other, 1}, {&x, 1}); });
  const Tensor loss = sum(x);
  try {
    grad(loss, unused);
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.code() == Errc::bad_argument);
    CHECK(error.message().find("'unused' f32[4]") != std::string::npos);
  }
  const Tensor coded =
      dequantize_linear(quantize_linear(x, scalar_like(x, 0.1)), scalar_like(x, 0.1));
  const auto line = std::source_location::current().line() - 1;
  try {
    grad(sum(coded), x);
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.code() == Errc::unsupported);
    CHECK(error.where().find(":" + std::to_string(line)) != std::string::npos);
  }
}

/// Cubes, with a gradient of another shape where `wrong` is 1, with two where it is 2.
template <int wrong>
struct OwnCube {
  static constexpr std::string_view name = wrong != 0 ? "wrong_cube" : "own_cube";
  static constexpr int min_inputs = 1, max_inputs = 1;
  static constexpr FieldList<> fields{};
  Shape infer(std::span<const Shape> in) const { return in[0]; }
  void reference(std::span<const HostView> in, const HostView& out) const {
    for_each_index(out.shape, [&](std::span<const std::int64_t> index) {
      const double x = load_as_double(in[0].shape.dtype(), in[0].at(index));
      store_double(out.shape.dtype(), out.at(index), x * x * x);
    });
  }
  std::vector<Tensor> gradient(const Backward& at) const {
    if (wrong == 1) return {sum(at.upstream)};
    if (wrong == 2) return {at.upstream, at.upstream};
    return {at.upstream * 3 * square(at.inputs[0])};
  }
};

TEST_CASE("grad: of an op of the user's own") {
  Graph graph;
  const Tensor x = graph.input("x", Shape({3}, f32));
  const auto cube = [&](const auto& op) {
    return record(op, {x}, std::source_location::current());
  };
  const Tensor g = grad(sum(cube(OwnCube<0>{})), x);
  expect_near(run(graph.program({&g, 1}), {vector_of({1, -2, 3})}), {3, 12, 27});
  expect_error(Errc::shape_mismatch, [&] { grad(sum(cube(OwnCube<1>{})), x); });
  expect_error(Errc::shape_mismatch, [&] { grad(sum(cube(OwnCube<2>{})), x); });
}

constexpr std::string_view text = R"(
def forward(x: f32[4], y: f32[4]):
    w: f32[4] = const("w")
    a = mul(x, w)
    d = sub(a, y)
    s = square(d)
    loss = mean(s, axes=[0])
    return loss
)";

TEST_CASE("grad: of a program read from text") {
  const Program program = program_of(text);
  const Program both = gradient(program, std::vector<std::string>{"w", "x"});
  Session session(both, {.backends = default_backends()});
  std::map<std::string, Buffer> weights{{"w", vector_of({1, 2, 3, 4}).to_device(cpu_device())}};
  session.bind(std::make_shared<const WeightSet>(std::move(weights)));
  const auto results =
      session.forward(std::vector{vector_of({1, 1, 1, 2}).to_device(cpu_device()),
                                  vector_of({0, 0, 0, 0}).to_device(cpu_device())});
  expect_near(results.at(0).to_host(), {(1.0 + 4 + 9 + 64) / 4});
  expect_near(results.at(1).to_host(), {0.5, 1, 1.5, 8});   // 2 (x w - y) x / 4
  expect_near(results.at(2).to_host(), {0.5, 2, 4.5, 16});  // 2 (x w - y) w / 4

  expect_error(Errc::bad_reference,
               [&] { gradient(program, std::vector<std::string>{"nothing"}); });
  // An op without a gradient, at the program's line.
  std::string coded(text);
  coded.insert(coded.find("    s = "),
               "    one = full(value=1.0)\n    q = quantize_linear(d, one)\n");
  coded.replace(coded.find("square(d)"), 9, "dequantize_linear(q, one)");
  try {
    gradient(program_of(coded), std::vector<std::string>{"w"});
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.code() == Errc::unsupported);
    CHECK(error.where().find("test.tenon:1") != std::string::npos);
  }
  const auto refused = [&](Errc code, std::string_view from, std::string_view to) {
    std::string changed(text);
    changed.replace(changed.find(from), from.size(), to);
    INFO(changed);
    expect_error(code, [&] { gradient(program_of(changed), std::vector<std::string>{"w"}); });
  };
  refused(Errc::bad_type, "w: f32[4] = ", "w = ");
  std::string shifted(text);
  shifted.replace(shifted.find("mean(s, axes=[0])"), 17, "sub(s, d)");
  expect_error(Errc::bad_argument,
               [&] { gradient(program_of(shifted), std::vector<std::string>{"w"}); });
}

TEST_CASE("grad: of a program with loops, read from text") {
  // exp(d) while d stays below y, at most 3 times; w and x as in `text`.
  std::string looped(text);
  looped.insert(looped.find("    s = "),
                "    go = lt(d, y)\n    on = all(go, axes=[0])\n    c0 = pack(on, d)\n"
                "    s0 = scope(\"layers\")\n    c1 = repeat(step, 3, c0, s0, y, first=2, "
                "condition=0)\n    e = item(c1, 1)\n");
  looped.replace(looped.find("square(d)"), 9, "square(e)");
  const std::string step =
      "def half(a: f32[4]):\n    b = full(value=0.5)\n    c = mul(a, b)\n    return c\n"
      "def step(on: bool, d: f32[4], i: i64, s: Scope, y: f32[4]):\n"
      "    h = half(d)\n    e = exp(h)\n    go = lt(e, y)\n    m = all(go, axes=[0])\n"
      "    return m, e\n";
  const Program both = gradient(program_of(step + looped), std::vector<std::string>{"w", "x"});
  Session session(both, {.backends = default_backends()});
  const std::vector<float> w{0.1F, 0.2F, 0.3F, 0.4F}, x{1, 1, 1, 2};
  session.bind(std::make_shared<const WeightSet>(std::map<std::string, Buffer>{
      {"w", HostBuffer::of<float>(Shape({4}, f32), w).to_device(cpu_device())}}));
  for (const float limit : {1.5F, 0.5F, 0.1F}) {  // three steps, one, none
    const HostBuffer y = HostBuffer::of(Shape({4}, f32), {limit, limit, limit, limit});
    const auto results = session.forward(
        std::vector{HostBuffer::of<float>(Shape({4}, f32), x).to_device(cpu_device()),
                    y.to_device(cpu_device())});
    std::vector<double> now, slope(4, 1);
    for (std::size_t i = 0; i < 4; ++i) now.push_back(double{w[i]} * double{x[i]} - double{limit});
    for (int i = 0; i < 3; ++i) {
      if (!std::ranges::all_of(now, [&](double d) { return d < double{limit}; })) break;
      for (std::size_t k = 0; k < 4; ++k) {
        now[k] = std::exp(now[k] * 0.5);
        slope[k] *= 0.5 * now[k];
      }
    }
    double loss = 0;
    std::vector<double> by_w, by_x;
    for (std::size_t k = 0; k < 4; ++k) {
      loss += now[k] * now[k] / 4;
      by_w.push_back(now[k] * slope[k] * double{x[k]} / 2);
      by_x.push_back(now[k] * slope[k] * double{w[k]} / 2);
    }
    INFO("limit " << limit);
    expect_near(results.at(0).to_host(), {loss});
    for (std::size_t k = 0; k < 4; ++k) {
      CHECK(elements(results.at(1).to_host())[k] == Approx(by_w[k]).epsilon(1e-5).margin(1e-6));
      CHECK(elements(results.at(2).to_host())[k] == Approx(by_x[k]).epsilon(1e-5).margin(1e-6));
    }
  }

  // With weights of numbered layers there is no such loop.
  std::string layered(step);
  layered.replace(layered.find("    e = exp(h)"), 14,
                  "    u: f32[4] = const(s, \"u\")\n    hu = mul(h, u)\n    e = exp(hu)");
  expect_error(Errc::unsupported,
               [&] { gradient(program_of(layered + looped), std::vector<std::string>{"w"}); });
}

}  // namespace
}  // namespace tenon::testing
