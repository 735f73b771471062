// Operands in layouts or types that a kernel does not support: views of constants, broadcasts,
// computed weights, halves. The CPU backend runs all of them itself, with the reference's results,
// and reports how.
#include "support/expect_error.hpp"
#include "support/op_testing.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/error.hpp>
#include <tenon/graph.hpp>
#include <tenon/log.hpp>
#include <tenon/ops.hpp>
#include <tenon/repeat.hpp>
#include <tenon/session.hpp>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

/// A program with values, on the reference and on the CPU.
class Case {
 public:
  Graph graph;

  Tensor input(const Shape& shape) {
    inputs_.push_back(random_.uniform(shape.with_dtype(f32), -1, 1).to(shape.dtype()));
    return graph.input("", shape);
  }
  Tensor input(const HostBuffer& value) {
    inputs_.push_back(value);
    return graph.input("", value.shape());
  }
  Tensor constant(const std::string& name, const Shape& shape) {
    weights_[name] =
        random_.uniform(shape.with_dtype(f32), -0.3, 0.3).to(shape.dtype()).to_device(cpu_device());
    return graph.constant(name, shape);
  }

  /// Checks the CPU's results, and returns its report.
  PlanReport check(const std::vector<Tensor>& outputs, double tolerance = 1e-4) {
    const Program program = graph.program(outputs);
    const std::vector<HostBuffer> wanted = run(program, {make_reference_backend({})});
    PlanReport report;
    for (const bool exact : {true, false}) {
      for (const int threads : {1, 3}) {
        const std::vector<HostBuffer> got =
            run(program, {make_cpu_backend({.threads = threads, .exact = exact})}, &report);
        for (std::size_t i = 0; i < wanted.size(); ++i) {
          INFO((exact ? "exact, " : "fast, ") << threads << " threads, result " << i);
          const double allowed = exact ? tolerance : std::max(tolerance, 0.05);
          expect_close(got[i], wanted[i], allowed, allowed);
        }
      }
    }
    CHECK(report.fallbacks.empty());
    return report;
  }

 private:
  std::vector<HostBuffer> run(const Program& program, std::vector<BackendPtr> backends,
                              PlanReport* report = nullptr) {
    Session session(program, {.backends = std::move(backends), .forbid_fallback = true});
    session.bind(std::make_shared<const WeightSet>(weights_));
    std::vector<Buffer> given;
    std::vector<Shape> shapes;
    for (const HostBuffer& value : inputs_) {
      given.push_back(value.contiguous().to_device(cpu_device()));
      shapes.push_back(value.shape());
    }
    if (report != nullptr) *report = session.report(shapes);
    std::vector<HostBuffer> results;
    for (const Buffer& output : session.forward(std::move(given))) {
      results.push_back(output.to_host().contiguous());
    }
    return results;
  }

  Random random_{7};
  std::vector<HostBuffer> inputs_;
  std::map<std::string, Buffer> weights_;
};

std::string notes_of(const PlanReport& report) {
  std::string notes;
  for (const PlanReport::Part& part : report.parts) {
    for (const std::string& note : part.notes) notes += note + "\n";
  }
  return notes;
}

const std::vector<DType> weight_types{f32, bf16, f16, DType::q8_0, DType::q4_0};

TEST_CASE("adapted: a linear layer multiplies by any view of a constant") {
  for (const DType type : weight_types) {
    INFO(name(type));
    Case test;
    const Tensor x = test.input(Shape({5, 64}, f32));
    const Tensor w = test.constant("w", Shape({64, 64}, type));
    const Tensor w3 = test.constant("w3", Shape({3, 48, 64}, type));
    const Tensor w4 = test.constant("w4", Shape({2, 24, 64}, type));
    std::vector<Tensor> results{
        linear(x, slice(w, 0, 32, 64)),  linear(x, slice(w, 0, 1, 64, 3)),
        linear(x, chunk(w, 4, 0)[1]),    linear(x, squeeze(slice(w3, 0, 2, 3), 0)),
        linear(x, merge_axes(w4, 0, 1)), linear(x, w),
    };
    if (!is_block(type)) results.push_back(linear(x, broadcast_to(slice(w, 0, 7, 8), {4, 64})));
    CHECK(
        notes_of(test.check(results)).empty());  // packed when weights are bound, at no cost later
  }
}

TEST_CASE("adapted: weights that are turned, and picked by a loop's number") {
  Case test;
  const Graph::Recording recording(test.graph);
  const Tensor x = test.input(Shape({5, 32}, f32));
  const Tensor turned = test.constant("turned", Shape({32, 48}, f32));
  const Tensor stack = test.constant("stack", Shape({3, 32, 32}, DType::q8_0));
  struct Layer {
    Tensor weight;
    TENON_FIELDS(weight)
  };
  std::vector<Layer> layers;
  for (int i = 0; i < 3; ++i) {
    layers.push_back({test.constant("layer." + std::to_string(i) + ".w", Shape({64, 32}, bf16))});
  }
  const Tensor y =
      repeat(layers, x, [&](const Layer& layer, const Tensor& index, const Tensor& in) {
        const Tensor half = linear(in, select(stack, index));
        return tanh(linear(half, slice(layer.weight, 0, 16, 48)));
      });
  CHECK(notes_of(test.check({linear(x, transpose(turned)), y}, 1e-3)).empty());
}

TEST_CASE("adapted: element-wise ops read constants in any order") {
  for (const DType type : {f32, f16, f64}) {
    INFO(name(type));
    Case test;
    const Tensor x = test.input(Shape({7, 3, 600}, type));
    const Tensor taps = test.constant("taps", Shape({600, 4}, type));
    const Tensor table = test.constant("table", Shape({2, 600, 3}, type));
    Tensor sum = x;
    for (std::int64_t i = 0; i < 4; ++i) {
      sum = sum * squeeze(slice(taps, 1, i, i + 1), 1);
    }
    test.check({sum, silu(x + permute(slice(table, 0, 1, 2), {0, 2, 1})),
                x * flip(squeeze(slice(taps, 1, 2, 3), 1), 0),
                slice(x, 2, 0, 500) - slice(squeeze(slice(taps, 1, 0, 1), 1), 0, 100, 600)},
               type == f16 ? 2e-3 : 1e-4);
  }
}

TEST_CASE("adapted: an embedding of a part of a table that a linear layer shares") {
  for (const DType type : weight_types) {
    INFO(name(type));
    Case test;
    const Tensor ids = test.input(HostBuffer::of<std::int32_t>(Shape({4}, i32), {0, 3, 6, 2}));
    const Tensor table = test.constant("table", Shape({33, 64}, type));
    const Tensor x = test.input(Shape({2, 64}, f32));
    test.check({linear(x, table), embedding(ids, slice(table, 0, 9, 16)),
                embedding(ids, slice(table, 0, 1, 33, 4)), embedding(ids, table)});
  }
  Case narrow;  // of fewer columns
  const Tensor ids = narrow.input(HostBuffer::of<std::int64_t>(Shape({3}, i64), {2, 0, 1}));
  const Tensor table = narrow.constant("table", Shape({16, 64}, f32));
  const Tensor x = narrow.input(Shape({2, 64}, f32));
  narrow.check({linear(x, table), embedding(ids, slice(table, 1, 8, 40)),
                embedding(ids, transpose(table)), embedding(ids, slice(table, 1, 0, 64, 2))});
}

TEST_CASE("adapted: rows that are one row again and again") {
  Case test;
  const Tensor x = test.input(Shape({1, 5, 64}, f32));
  const Tensor row = test.input(Shape({1, 1, 64}, f32));
  const Tensor w = test.constant("w", Shape({32, 64}, DType::q8_0));
  const Tensor wide = broadcast_to(row, {2, 5, 64});
  test.check({linear(wide, w), glu(wide, broadcast_to(x, {2, 5, 64})),
              linear(broadcast_to(x, {3, 5, 64}), w),
              linear(slice(broadcast_to(x, {3, 5, 64}), 1, 0, 5, 2), w)});
}

TEST_CASE("adapted: a residual and a bias that lie anyhow") {
  Case test;
  const Tensor x = test.input(Shape({6, 32}, f32));
  const Tensor w = test.constant("w", Shape({16, 32}, f32));
  const Tensor wide = test.input(Shape({6, 40}, f32));
  const Tensor turned = test.input(Shape({16, 6}, f32));
  const Tensor bias = test.constant("bias", Shape({16, 2}, f32));
  const Tensor half = test.constant("half", Shape({16}, f16));
  const Tensor column = squeeze(slice(bias, 1, 1, 2), 1);
  const PlanReport report =
      test.check({linear(x, w, {}, slice(wide, 1, 8, 24)), linear(x, w, column, transpose(turned)),
                  linear(x, w, half)});
  CHECK(notes_of(report).find("copies f32[6, 16]") != std::string::npos);
  CHECK(notes_of(report).find("widens f16[16]") != std::string::npos);
}

TEST_CASE("adapted: weights that are computed or given") {
  Case test;
  const Tensor x = test.input(Shape({2, 3, 32}, f32));
  const Tensor w = test.constant("w", Shape({16, 32}, f32));
  const Tensor given = test.input(Shape({16, 32}, DType::q4_0));
  const Tensor turned = test.input(Shape({32, 16}, bf16));
  const Tensor bias = test.constant("bias", Shape({16}, f32));
  const Tensor residual = test.input(Shape({2, 3, 16}, f32));
  const Tensor row = test.input(Shape({32}, f32));
  const PlanReport report = test.check({
      linear(x, w * 0.5, bias, residual),
      linear(x, given),
      linear(x, transpose(turned), bias),
      linear(row, w * 0.5, bias, slice(linear(row, w), 0, 0, 16)),
      linear(x * 2.0, given, {}, linear(x, w)),
  });
  CHECK(notes_of(report).find("is a matmul with q4_0[16, 32]") != std::string::npos);
}

TEST_CASE("adapted: 16-bit operands") {
  for (const DType type : {f16, bf16}) {
    INFO(name(type));
    Case test;
    const Tensor x = test.input(Shape({3, 32}, type));
    const Tensor w = test.constant("w", Shape({16, 32}, type));
    const Tensor q = test.input(Shape({1, 4, 2, 16}, type));
    const Tensor k = test.input(Shape({1, 6, 2, 16}, type));
    const Tensor image = test.input(Shape({1, 4, 6, 6}, type));
    const Tensor filter = test.constant("filter", Shape({4, 4, 3, 3}, type));
    const Tensor ids = test.input(HostBuffer::of<std::int32_t>(Shape({2}, i32), {1, 0}));
    const Tensor positions =
        test.input(HostBuffer::of<std::int32_t>(Shape({4}, i32), {0, 1, 2, 3}));
    test.check({linear(x, w), matmul(x, transpose(w)), attention(q, k, k), conv2d(image, filter),
                max_pool2d(image, {.kernel = {2, 2}}), avg_pool2d(image, {.kernel = {2, 2}}),
                rope(q, positions), embedding(ids, w, type), rms_norm(x), glu(x, x)},
               0.02);
  }
}

TEST_CASE("adapted: vectors in matrix multiplications") {
  Case test;
  const Tensor a = test.input(Shape({33}, f32));
  const Tensor b = test.input(Shape({33, 7}, f32));
  const Tensor c = test.input(Shape({2, 5, 33}, f32));
  const Tensor d = test.input(Shape({3, 33, 4}, f32));
  const PlanReport report = test.check(
      {matmul(a, b), matmul(c, a), matmul(a, a), matmul(a, d), matmul(slice(c, 1, 0, 5, 2), a)});
  CHECK(notes_of(report).find("copies") == std::string::npos);
}

TEST_CASE("adapted: masks of attention, operands of any strides, and zero sizes") {
  Case test;
  const Tensor q = test.input(Shape({2, 5, 2, 16}, f32));
  const Tensor k = test.input(Shape({2, 9, 2, 16}, f32));
  const Tensor column = test.input(Shape({5, 1}, f32));
  const Tensor one = test.input(Shape({}, f32));
  const Tensor turned = test.input(Shape({2, 16, 2, 9}, f32));
  std::vector<Tensor> results{
      attention(q, k, k, {}, {}, column),
      attention(q, k, k, {}, {}, one),
      attention(q, permute(turned, {0, 3, 2, 1}), k),
      attention(slice(q, 3, 0, 0), slice(k, 3, 0, 0), k),
      attention(q, k, slice(k, 3, 0, 0)),
      attention(slice(q, 1, 0, 0), k, k),
      attention(slice(q, 0, 0, 0), slice(k, 0, 0, 0), slice(k, 0, 0, 0)),
      attention(q, slice(k, 1, 0, 0), slice(k, 1, 0, 0), {.causal = false}),
  };
  for (const std::int64_t queries : {1, 40}) {  // by parts and by tiles
    const Tensor none = test.input(Shape({1, queries, 2, 0}, f32));
    const Tensor value = test.input(Shape({1, queries, 2, 8}, f32));
    results.push_back(attention(none, none, value));
    results.push_back(attention(value, value, none));
    results.push_back(attention(none, none, none));
  }
  test.check(results);
}

TEST_CASE("adapted: functions merged into a linear layer or a convolution are those of their ops") {
  const auto functions = std::vector<std::function<Tensor(const Tensor&)>>{
      [](const Tensor& t) { return leaky_relu(t, 0.3); },
      [](const Tensor& t) { return elu(t, 0.6); },
      [](const Tensor& t) { return clamp(t, -0.2, 0.3); },
      [](const Tensor& t) { return gelu(t); },
      [](const Tensor& t) { return mish(t); },
      [](const Tensor& t) { return hardswish(t); },
      [](const Tensor& t) { return neg(t); },
  };
  Case test;
  const Tensor x = test.input(Shape({5, 32}, f32));
  const Tensor w = test.constant("w", Shape({16, 32}, f32));
  const Tensor image = test.input(Shape({1, 3, 6, 6}, f32));
  const Tensor filter = test.constant("filter", Shape({16, 3, 3, 3}, f32));
  std::vector<Tensor> results;
  for (const auto& function : functions) {
    results.push_back(function(linear(x, w)));
    results.push_back(function(conv2d(image, filter)));
  }
  test.check(results);
}

TEST_CASE("values: one whose memory is in part given to another is still read through a view") {
  // The slice's convolution moves after the matmul that reuses the unread part of neg's memory.
  Case test;
  const Tensor x = test.input(Shape({9, 10, 11, 4}, f32));
  const Tensor w = test.input(Shape({2, 4, 3, 3}, f32));
  const Tensor added = test.constant("added", Shape({3, 2, 11, 10}, f32));
  const Tensor part = slice(permute(neg(x), {0, 3, 2, 1}), 0, 3, 6);
  test.check({relu(conv2d(part, w, {}, {.padding = {1, 1}}) + added * 0.5)});
}

TEST_CASE("fallback: what the first backend refuses is named, and can be forbidden") {
  Graph graph;
  const Tensor x = graph.input("x", Shape({4, 8}, f32));
  const Tensor w = graph.input("w", Shape({4, 8}, f64));
  const Tensor y = linear(x, w);
  const Program program = graph.program({&y, 1});
  const std::vector<BackendPtr> backends{make_cpu_backend({.threads = 1}),
                                         make_reference_backend({})};
  const std::vector<Shape> shapes{x.shape(), w.shape()};

  std::vector<std::string> warnings;
  const LogSink before = set_log_sink([&](LogLevel level, std::string_view message) {
    if (level == LogLevel::warning) warnings.emplace_back(message);
  });
  Session session(program, {.backends = backends});
  const PlanReport report = session.report(shapes);
  set_log_sink(before);

  REQUIRE(report.fallbacks.size() == 1);
  CHECK(report.fallbacks[0].op == "linear");
  CHECK(report.fallbacks[0].backend == "reference");
  CHECK(report.fallbacks[0].why.find("constant") != std::string::npos);
  CHECK(report.fallbacks[0].bytes == (32 + 16) * 4 + 32 * 8);
  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0].find("element by element") != std::string::npos);

  Session strict(program, {.backends = backends, .forbid_fallback = true});
  expect_error(Errc::unsupported, [&] { strict.report(shapes); });
}

TEST_CASE("binding: programs with folded constants of one name share weights and not those") {
  const auto program_of = [](double factor) {
    Graph graph;
    const Tensor x = graph.input("x", Shape({2, 32}, f32));
    const Tensor w = graph.constant("folded:w", Shape({16, 32}, f32));
    const Tensor y = linear(x, w);
    Program program = graph.program({&y, 1});
    std::vector<float> values(16 * 32, static_cast<float>(factor));
    program.folded["folded:w"] =
        HostBuffer::of<float>(Shape({16, 32}, f32), std::span<const float>(values));
    return program;
  };
  const auto weights = std::make_shared<const WeightSet>(std::map<std::string, Buffer>());
  std::vector<float> ones(64, 1.0F);
  const HostBuffer x = HostBuffer::of<float>(Shape({2, 32}, f32), std::span<const float>(ones));
  for (const double factor : {1.0, 3.0}) {
    Session session(program_of(factor), {.backends = {make_cpu_backend({.threads = 1})}});
    session.bind(weights);
    CHECK(session.forward({x.to_device(cpu_device())}).at(0).to_host().at({0, 0}) ==
          Approx(32 * factor));
  }
}

}  // namespace
}  // namespace tenon::testing
