// One suite for every backend: each op case that numpy computed becomes a program of one op, run by
// a session. A backend's factory, its tolerance and the ops it leaves to others are all that
// differs.
#include "cases.hpp"
#include "run_case.hpp"
#include "support/op_cases.hpp"
#include "support/op_testing.hpp"
#include "support/rounds.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/graph.hpp>
#include <tenon/ops.hpp>
#include <tenon/session.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace tenon::testing {
namespace {

struct Candidate {
  std::string name;
  BackendOptions options;
};

/// Whether all numbers that are computed with are f64.
bool is_f64(const OpCase& op_case) {
  if (op_case.output.shape().dtype() != f64) return false;
  return std::ranges::all_of(op_case.inputs, [](const HostBuffer& input) {
    return input.shape().dtype() == f64 || is_integer(input.shape().dtype());
  });
}

/// f32 kernels differ from numpy by rounding; integer dot products by the int8 rounding of their
/// activations: 1/127 of the largest of a group of 32, averaged over a row.
double slack(const OpCase& op_case, const Candidate& backend) {
  static const std::set<std::string_view> exact = {"quantize_linear", "dequantize_linear",
                                                   "matmul_integer", "conv2d_integer"};
  if (exact.contains(op_case.op.def()->name)) return 0;
  double tolerance = is_f64(op_case) ? 1e-12 : 1e-4;
  const bool block =
      op_case.op.def()->name == "linear" && is_block(op_case.inputs[1].shape().dtype());
  if (block && !backend.options.exact) tolerance = 0.03;
  // Many queries at once may be multiplied in bf16: 8 bits of each score and weight.
  if (op_case.op.def()->name == "attention" && !backend.options.exact) tolerance = 0.01;
  return tolerance;
}

void check_backend(const Candidate& candidate) {
  register_cpu_backend();
  register_reference_backend();
  std::vector<BackendPtr> backends{make_backend(candidate.name, candidate.options)};
  if (candidate.name != "reference") backends.push_back(make_backend("reference"));
  int number = 0;
  for (const OpCase& op_case : all_cases()) {
    if (seeks_races && number++ % round_stride != 0) continue;  // threads have a test of their own
    for (const Order order : {Order::dense, Order::permuted, Order::reversed}) {
      constexpr const char* names[] = {"", ", strided operands", ", reversed operands"};
      INFO(candidate.name << (candidate.options.exact ? " exact" : "") << ", " << op_case.name
                          << names[static_cast<std::size_t>(order)]);
      const double allowed = slack(op_case, candidate);
      expect_close(run_case(op_case, backends, order), op_case.output,
                   std::max(op_case.absolute, allowed * std::max(1.0, largest(op_case.output))),
                   std::max(op_case.relative, allowed));
    }
  }
}

TEST_CASE("conformance: reference", "[one_thread]") { check_backend({"reference", {}}); }
TEST_CASE("conformance: cpu, exact") { check_backend({"cpu", {.threads = 2, .exact = true}}); }
TEST_CASE("conformance: cpu, fast") { check_backend({"cpu", {.threads = 2}}); }

/// Ops of which the CPU backend has no kernel: the reference runs them. Every other op must be
/// taken in at least one case.
const std::set<std::string, std::less<>> left_to_reference = {};

TEST_CASE("conformance: the CPU backend takes what the list of exclusions does not name",
          "[choices]") {
  register_cpu_backend();
  register_reference_backend();
  const std::vector<BackendPtr> backends{make_backend("cpu", {.threads = 1}),
                                         make_backend("reference")};
  std::set<std::string, std::less<>> seen;
  std::set<std::string, std::less<>> taken;
  for (const OpCase& op_case : all_cases()) {
    const std::string op(op_case.op.def()->name);
    seen.insert(op);
    std::vector<PlanReport::Part> parts;
    run_case(op_case, backends, Order::dense, &parts);
    for (const auto& part : parts) {
      if (part.backend == "cpu") taken.insert(op);
    }
  }
  for (const std::string& op : seen) {
    INFO(op);
    const bool excluded = left_to_reference.contains(op);
    // A stale exclusion fails too: take it off the list. Views become copies only in odd cases.
    const bool is_view = find_op(op)->view != nullptr;
    if (!is_view) CHECK(taken.contains(op) != excluded);
  }
}

/// Only operands of f64 of an op whose result is narrower are not narrowed for a kernel.
TEST_CASE("conformance: no case is left to the reference, strided or not", "[choices]") {
  register_cpu_backend();
  register_reference_backend();
  const std::vector<BackendPtr> backends{make_backend("cpu", {.threads = 1}),
                                         make_backend("reference")};
  for (const OpCase& op_case : all_cases()) {
    const DType result = op_case.output.shape().dtype();
    const bool narrows = is_floating(result) && result != f64 &&
                         std::ranges::any_of(op_case.inputs, [](const HostBuffer& input) {
                           return input.shape().dtype() == f64;
                         });
    if (narrows) continue;
    for (const Order order : {Order::dense, Order::permuted, Order::reversed}) {
      std::vector<PlanReport::Part> parts;
      run_case(op_case, backends, order, &parts);
      INFO(op_case.name);
      CHECK(std::ranges::all_of(parts, [](const auto& part) { return part.backend == "cpu"; }));
    }
  }
}

TEST_CASE("conformance: f64 in several blocks") {
  register_cpu_backend();
  register_reference_backend();
  Random random(2);
  const auto array = [&](std::initializer_list<std::int64_t> sizes) {
    return random.uniform(Shape(std::span<const std::int64_t>(sizes.begin(), sizes.size()), f64));
  };
  std::vector<OpCase> cases(4);
  cases[0].op = OpInstance(Conv2d{.stride = {1, 1}, .padding = {1, 1}});
  cases[0].inputs = {array({1, 40, 9, 20}), array({200, 40, 3, 3})};
  cases[1].op = OpInstance(ConvTranspose2d{.stride = {2, 2}});
  cases[1].inputs = {array({1, 30, 40, 40}), array({30, 20, 3, 3})};
  cases[2].op = OpInstance(Attention{.causal = true, .window = 100});
  cases[2].inputs = {array({1, 70, 2, 20}), array({1, 300, 1, 20}), array({1, 300, 1, 30})};
  cases[3].op = OpInstance(Linear{});
  cases[3].inputs = {array({100, 300}), array({270, 300})};
  for (OpCase& op_case : cases) {
    op_case.name = op_case.op.def()->name;
    INFO(op_case.name);
    op_case.output = run_reference(op_case.op, op_case.inputs);
    std::vector<double> one;
    for (const int threads : {1, 3}) {
      const HostBuffer y =
          run_case(op_case, {make_backend("cpu", {.threads = threads})}, Order::dense);
      expect_close(y, op_case.output, 1e-11, 1e-11);
      if (threads == 1) one = elements(y);
      CHECK(one == elements(y));
    }
  }
}

TEST_CASE("conformance: the number of threads changes no bit") {
  register_cpu_backend();
  register_reference_backend();
  for (const bool exact : {false, true}) {
    std::vector<std::vector<BackendPtr>> backends;
    for (const int threads : {1, 2, 7}) {
      backends.push_back(
          {make_backend("cpu", {.threads = threads, .exact = exact}), make_backend("reference")});
    }
    int number = 0;
    for (const OpCase& op_case : all_cases()) {
      if (seeks_bad_accesses && number++ % round_stride != 0) continue;
      INFO(op_case.name << (exact ? ", exact" : ""));
      const std::vector<double> one = elements(run_case(op_case, backends[0], Order::dense));
      for (std::size_t i = 1; i < backends.size(); ++i) {
        const std::vector<double> many = elements(run_case(op_case, backends[i], Order::dense));
        CHECK(std::ranges::equal(one, many, [](double a, double b) {
          return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
        }));
      }
    }
  }
}

}  // namespace
}  // namespace tenon::testing
