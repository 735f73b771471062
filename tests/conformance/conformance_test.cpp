// One suite for every backend: each op case that numpy computed becomes a program of one op, run by
// a session. A backend's factory, its tolerance and the ops it leaves to others are all that
// differs.
#include "run_case.hpp"
#include "support/op_cases.hpp"
#include "support/op_testing.hpp"

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

namespace tenon::testing {
namespace {

struct Candidate {
  std::string name;
  BackendOptions options;
};

/// f32 kernels differ from numpy by rounding; integer dot products by the int8 rounding of their
/// activations: 1/127 of the largest of a group of 32, averaged over a row.
double slack(const OpCase& op_case, const Candidate& backend) {
  static const std::set<std::string_view> exact = {"quantize_linear", "dequantize_linear",
                                                   "matmul_integer", "conv2d_integer"};
  if (exact.contains(op_case.op.def()->name)) return 0;
  double tolerance = 1e-4;
  const bool block =
      op_case.op.def()->name == "linear" && is_block(op_case.inputs[1].shape().dtype());
  if (block && !backend.options.exact) tolerance = 0.03;
  // Many queries at once may be multiplied in bf16: 8 bits of each score and weight.
  if (op_case.op.def()->name == "attention" && !backend.options.exact) tolerance = 0.01;
  return tolerance;
}

double largest(const HostBuffer& array) {
  double most = 0;
  for (const double value : elements(array)) {
    if (std::isfinite(value)) most = std::max(most, std::fabs(value));
  }
  return most;
}

/// A case of other floating types again in f32, the type that fast kernels are written for. What
/// must come out is then the reference's answer, which the case itself has checked.
std::optional<OpCase> in_f32(const OpCase& op_case) {
  OpCase result = op_case;
  bool changed = false;
  for (HostBuffer& input : result.inputs) {
    if (!is_floating(input.shape().dtype()) || input.shape().dtype() == f32) continue;
    input = input.to(f32);
    changed = true;
  }
  if (!changed || op_case.op.def()->name == "cast") return std::nullopt;
  result.name += ", in f32";
  result.output = run_reference(result.op, result.inputs);
  return result;
}

template <class Op>
Op last_axis() {
  Op op;
  op.axes = {1};
  return op;
}

std::vector<OpCase> all_cases() {
  std::vector<OpCase> cases;
  for (const auto& file : committed_op_cases()) {
    for (OpCase& op_case : read_op_cases(file)) {
      if (auto widened = in_f32(op_case)) cases.push_back(std::move(*widened));
      cases.push_back(std::move(op_case));
    }
  }
  // The committed cases reduce over other axes than the last alone.
  Random random(1);
  for (const OpInstance& op : {OpInstance(last_axis<Sum>()), OpInstance(last_axis<Mean>()),
                               OpInstance(last_axis<Max>()), OpInstance(last_axis<Min>())}) {
    OpCase made;
    made.name = std::string(op.def()->name) + " over the last axis";
    made.op = op;
    made.inputs = {random.uniform(Shape({5, 33}, f32))};
    made.output = run_reference(made.op, made.inputs);
    cases.push_back(std::move(made));
  }
  return cases;
}

void check_backend(const Candidate& candidate) {
  register_cpu_backend();
  register_reference_backend();
  std::vector<BackendPtr> backends{make_backend(candidate.name, candidate.options)};
  if (candidate.name != "reference") backends.push_back(make_backend("reference"));
  for (const OpCase& op_case : all_cases()) {
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

TEST_CASE("conformance: reference") { check_backend({"reference", {}}); }
TEST_CASE("conformance: cpu, exact") { check_backend({"cpu", {.threads = 2, .exact = true}}); }
TEST_CASE("conformance: cpu, fast") { check_backend({"cpu", {.threads = 2}}); }

/// Ops of which the CPU backend has no kernel: the reference runs them. Every other op must be
/// taken in at least one case.
const std::set<std::string, std::less<>> left_to_reference = {};

TEST_CASE("conformance: the CPU backend takes what the list of exclusions does not name") {
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

TEST_CASE("conformance: the number of threads changes no bit") {
  register_cpu_backend();
  register_reference_backend();
  for (const bool exact : {false, true}) {
    std::vector<std::vector<BackendPtr>> backends;
    for (const int threads : {1, 2, 7}) {
      backends.push_back(
          {make_backend("cpu", {.threads = threads, .exact = exact}), make_backend("reference")});
    }
    for (const OpCase& op_case : all_cases()) {
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
