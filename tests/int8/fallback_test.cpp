// Values for which int8 is requested but not possible: they stay in f32, and the report says so.
#include "support/op_testing.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/graph.hpp>
#include <tenon/ops.hpp>
#include <tenon/session.hpp>

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tenon::testing {
namespace {

BackendPtr backend(const quant::CalibrationTable& table) {
  register_cpu_backend();
  BackendOptions options{.threads = 1};
  options.device = cpu::Options{std::make_shared<const quant::CalibrationTable>(table)};
  return make_backend("cpu", options);
}

/// y = conv2d(relu(conv2d(x))), of 8 channels.
struct Two {
  Two() {
    Random random;
    const Graph::Recording recording(graph);
    const Shape filter({8, 8, 3, 3}, f32);
    const auto conv = [&](const Tensor& image, const char* name) {
      weights[name] = random.uniform(filter, -1, 1).to_device(cpu_device());
      return conv2d(image, graph.constant(name, filter), {},
                    {.stride = {}, .padding = {1, 1}, .dilation = {}});
    };
    const Tensor h = relu(conv(graph.input("x", shape), "w1"));
    const Tensor y = conv(h, "w2");
    x = random.uniform(shape, -1, 1);
    program = graph.program({&y, 1});
    inner = std::string(h.name());
    for (const Instruction& at : program.main().body) {
      if (at.op.as<Relu>() != nullptr) inner = program.main().values[at.result].name;
      if (at.op.as<Conv2d>() != nullptr) last = program.main().values[at.result].name;
    }
  }
  Session session(const BackendPtr& on) const {
    Session result(program, {.backends = {on}});
    result.bind(std::make_shared<const WeightSet>(weights));
    return result;
  }
  std::vector<double> run(const BackendPtr& on) const {
    return elements(session(on).forward({x.to_device(cpu_device())})[0].to_host());
  }
  std::vector<std::string> notes(const BackendPtr& on) const {
    return session(on).report({&shape, 1}).parts.at(0).notes;
  }

  Shape shape = Shape({1, 8, 6, 6}, f32);
  Graph graph;
  Program program;
  std::map<std::string, Buffer> weights;
  HostBuffer x;
  std::string inner, last;
};

TEST_CASE("int8: a table of other values changes nothing") {
  const Two two;
  quant::CalibrationTable table;
  table.values["another"].tensor = {-1, 1, 1};
  register_cpu_backend();
  CHECK(two.run(backend(table)) == two.run(make_backend("cpu", {.threads = 1})));
  const std::vector<std::string> notes = two.notes(backend(table));
  REQUIRE(notes.size() == 2);
  CHECK(notes[0] == two.inner + ": f32, 'x' has no range");
  CHECK(notes[1] == two.last + ": f32, '" + two.inner + "' has no range");
  CHECK(two.notes(make_backend("cpu", {.threads = 1})).empty());
}

TEST_CASE("int8: one value without a range leaves one convolution in f32") {
  const Two two;
  quant::CalibrationTable table;
  table.values["x"].tensor = {-1, 1, 1};
  const std::vector<std::string> notes = two.notes(backend(table));
  REQUIRE(notes.size() == 2);
  CHECK(notes[0] == two.inner + ": int8");
  CHECK(notes[1] == two.last + ": f32, '" + two.inner + "' has no range");
  CHECK(two.run(backend(table)) != two.run(make_backend("cpu", {.threads = 1})));
}

TEST_CASE("int8: a range without extent is none") {
  const Two two;
  quant::CalibrationTable table;
  table.values["x"].tensor = {0, 0, 0};
  CHECK(two.notes(backend(table)).at(0) == two.inner + ": f32, the range of 'x' is empty");
}

TEST_CASE("int8: explain says what a convolution computes in") {
  const Two two;
  quant::CalibrationTable table;
  table.values["x"].tensor = {-1, 1, 1};
  Session session = two.session(backend(table));
  const std::vector<std::string> lines = session.explain(two.inner, {&two.shape, 1});
  REQUIRE(lines.size() == 2);
  CHECK(lines[0] == "cpu: takes it");
  CHECK(lines[1] == two.inner + ": int8");
}

TEST_CASE("int8: step by step, values are f32 and matrix multiplications still int8") {
  const Two two;
  quant::CalibrationTable table;
  table.values["x"].tensor = {-1, 1, 1};
  table.values[two.inner].tensor = {0, 3, 3};
  Session session = two.session(backend(table));
  session.set_merge(false);
  for (const PlanReport::Part& part : session.report({&two.shape, 1}).parts) {
    for (const std::string& note : part.notes) CHECK(note.ends_with(": int8"));
  }
  const auto y = session.forward({two.x.to_device(cpu_device())})[0].to_host();
  CHECK(y.shape().dtype() == DType::f32);
}

TEST_CASE("int8: not together with exact results") {
  register_cpu_backend();
  BackendOptions options{.exact = true};
  options.device = cpu::Options{std::make_shared<const quant::CalibrationTable>()};
  expect_error(Errc::bad_argument, [&] { make_backend("cpu", options); });
}

TEST_CASE("int8: values that are not finite do no harm") {
  Two two;
  quant::CalibrationTable table;
  table.values["x"].tensor = {-1, 1, 1};
  table.values[two.inner].tensor = {0, 3, 3};
  const auto values = two.x.mutable_values<float>();
  values[0] = std::numeric_limits<float>::quiet_NaN();
  values[1] = std::numeric_limits<float>::infinity();
  values[2] = -std::numeric_limits<float>::infinity();
  for (const double value : two.run(backend(table))) CHECK(std::isfinite(value));
}

}  // namespace
}  // namespace tenon::testing
