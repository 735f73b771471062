#include "builder_cases.hpp"

#include "support/case_file.hpp"
#include "support/op_testing.hpp"
#include "support/small_graph.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/graph.hpp>
#include <tenon/optimize.hpp>
#include <tenon/session.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <utility>
#include <vector>

namespace tenon::testing {
namespace {

namespace fs = std::filesystem;

/// What a case gives to a session.
struct Recorded {
  Program program;
  std::vector<Buffer> inputs;
  std::map<std::string, Buffer> weights;
};

Shape with_symbols(const Shape& shape) {
  Shape result = shape;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    result = result.with_dim(axis, symbol(Name("N" + std::to_string(shape[axis]))));
  }
  return result;
}

Recorded record_case(const Json& entry, const std::vector<HostBuffer>& values,
                     const BuilderTable& table, bool is_open = false) {
  const Json& attributes = entry.at("attributes");
  const auto constants = attributes.value("constants", std::vector<std::size_t>{});
  Recorded recorded;
  Graph graph(small_graph_bytes);
  const Graph::Recording recording(graph);
  std::vector<Tensor> operands;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::string name = "v" + std::to_string(i);
    Buffer buffer = values[i].contiguous().to_device(cpu_device());
    if (std::ranges::count(constants, i) > 0) {
      operands.push_back(graph.constant(name, values[i].shape()));
      recorded.weights.emplace(name, std::move(buffer));
    } else {
      const Shape& shape = values[i].shape();
      operands.push_back(graph.input(name, is_open && i == 0 ? with_symbols(shape) : shape));
      recorded.inputs.push_back(std::move(buffer));
    }
  }
  const Tensor result = table.at(entry.at("op").get<std::string>())(operands, attributes);
  recorded.program = graph.program({&result, 1});
  return recorded;
}

HostBuffer run(const Recorded& recorded, bool optimized, const std::vector<BackendPtr>& backends) {
  Program program = recorded.program;
  if (optimized) optimize(program);
  Session session(std::move(program), {.backends = backends});
  session.bind(std::make_shared<const WeightSet>(recorded.weights));
  return session.forward(recorded.inputs).at(0).to_host();
}

double largest_number(const HostBuffer& array) {
  double most = 0;
  for (const double value : elements(array)) {
    if (std::isfinite(value)) most = std::max(most, std::fabs(value));
  }
  return most;
}

/// Backends by name; kernels of the CPU differ from numpy by f32 rounding.
struct Way {
  std::string name;
  std::vector<BackendPtr> backends;
  double slack = 0;
};

void check_file(const fs::path& path, const BuilderTable& table) {
  register_cpu_backend();
  register_reference_backend();
  const BackendPtr reference = make_backend("reference");
  const Way ways[] = {
      {"reference", {reference}, 0},
      {"cpu, exact", {make_backend("cpu", {.threads = 2, .exact = true}), reference}, 1e-4},
      {"cpu, fast", {make_backend("cpu", {.threads = 2}), reference}, 1e-4}};
  const CaseFile file(path);
  std::set<std::string> seen;
  for (const Json& entry : file.cases()) {
    const auto name = entry.at("name").get<std::string>();
    const auto builder = entry.at("op").get<std::string>();
    INFO(path.filename().string() << ": " << name << " " << entry.at("attributes").dump());
    REQUIRE(table.contains(builder));
    seen.insert(builder);
    const HostBuffer want = file.array(entry.at("output"));
    const Recorded recorded = record_case(entry, file.arrays(entry.at("inputs")), table);
    for (const Way& way : ways) {
      const bool rounds = is_floating(want.shape().dtype());
      const double slack = rounds ? way.slack : 0;
      for (const bool optimized : {false, true}) {
        INFO(way.name << (optimized ? ", optimized" : ""));
        expect_close(run(recorded, optimized, way.backends), want,
                     std::max(entry.at("absolute").get<double>(),
                              slack * std::max(1.0, largest_number(want))),
                     std::max(entry.at("relative").get<double>(), slack));
      }
    }
  }
  for (const auto& [builder, function] : table) {
    INFO(builder << " has no case in " << path.filename().string());
    CHECK(seen.contains(builder));
  }
}

}  // namespace

void check_builders(std::string_view family, const BuilderTable& table) {
  check_file(fs::path("tests/builders/data") / ("cases_" + std::string(family) + ".safetensors"),
             table);
}

void check_open_builders(std::string_view family, const BuilderTable& table,
                         std::span<const std::string_view> builders) {
  register_cpu_backend();
  register_reference_backend();
  const CaseFile file(fs::path("tests/builders/data") /
                      ("cases_" + std::string(family) + ".safetensors"));
  std::set<std::string, std::less<>> seen;
  for (const Json& entry : file.cases()) {
    const auto builder = entry.at("op").get<std::string>();
    if (std::ranges::find(builders, builder) == builders.end()) continue;
    seen.insert(builder);
    INFO(entry.at("name").get<std::string>() << " " << entry.at("attributes").dump());
    const Recorded recorded = record_case(entry, file.arrays(entry.at("inputs")), table, true);
    for (const char* backend : {"reference", "cpu"}) {
      expect_close(run(recorded, true, {make_backend(backend), make_backend("reference")}),
                   file.array(entry.at("output")), entry.at("absolute").get<double>(),
                   entry.at("relative").get<double>());
    }
  }
  CHECK(seen.size() == builders.size());
}

void check_fresh_builders(std::string_view family, const BuilderTable& table) {
  const auto files = generated_cases("builder_cases_" + std::string(family));
  if (files.empty())
    WARN("SKIPPED: TENON_ORACLE_PYTHON names no Python with numpy and safetensors");
  for (const auto& file : files) {
    check_file(file, table);
    fs::remove(file);
  }
}

IntList int_list(const Json& value) {
  return IntList(std::span<const std::int64_t>(value.get<std::vector<std::int64_t>>()));
}

std::vector<AxisRef> axis_list(const Json& value) {
  std::vector<AxisRef> axes;
  for (const Json& axis : value) axes.emplace_back(axis.get<int>());
  return axes;
}

}  // namespace tenon::testing
