// The conformance suite on the emulated device.
#include "cases.hpp"
#include "emulated.hpp"
#include "run_case.hpp"
#include "support/op_testing.hpp"

#include <tenon/device.hpp>
#include <tenon/ops.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

/// The device's backend, then the reference.
std::vector<BackendPtr> backends_here() {
  std::vector<BackendPtr> backends = device_backends(test_device());
  backends.push_back(make_backend("reference"));
  return backends;
}

bool has_f64(const OpCase& op_case) {
  return op_case.output.shape().dtype() == f64 ||
         std::ranges::any_of(op_case.inputs,
                             [](const HostBuffer& input) { return input.shape().dtype() == f64; });
}

/// Ops of the suite for which there is no kernel: linear algebra.
const std::set<std::string, std::less<>> left_to_reference = {
    "cholesky", "det", "eigh", "lu", "qr", "slogdet", "solve", "svd", "triangular_solve"};

/// Weights of attention are rounded to keys of 16 bits, where the queries are of that type, too.
bool rounds_weights(const OpCase& op_case) {
  if (op_case.op.def()->name != "attention") return false;
  const DType q = op_case.inputs[0].shape().dtype();
  return q == op_case.inputs[1].shape().dtype() && (q == f16 || q == bf16);
}

/// Every `of`-th case from number `first` on: TENON_TEST_SHARD=2/8 is the third eighth, so that
/// processes share the suite and an error that stays ends one of them.
struct Shard {
  std::size_t first = 0, of = 1;
};
Shard shard_here() {
  Shard shard;
  const char* const text = std::getenv("TENON_TEST_SHARD");
  if (text != nullptr) REQUIRE(std::sscanf(text, "%zu/%zu", &shard.first, &shard.of) == 2);
  REQUIRE(shard.of > 0);
  return shard;
}

TEST_CASE("cuda: the conformance suite", "[gpu]") {
  const std::vector<BackendPtr> backends = backends_here();
  const Shard shard = shard_here();
  std::set<std::string, std::less<>> seen, taken;
  std::size_t number = 0;
  for (const OpCase& op_case : all_cases()) {
    if (number++ % shard.of != shard.first || has_f64(op_case)) continue;
    const std::string op(op_case.op.def()->name);
    for (const Order order : {Order::dense, Order::permuted, Order::reversed}) {
      constexpr const char* names[] = {"", ", strided operands", ", reversed operands"};
      INFO(op_case.name << names[static_cast<std::size_t>(order)]);
      std::vector<PlanReport::Part> parts;
      const HostBuffer result = run_case(op_case, backends, order, &parts);
      if (find_op(op)->view == nullptr) {
        seen.insert(op);
        const bool is_taken = std::ranges::any_of(
            parts, [](const PlanReport::Part& part) { return part.backend == "cuda"; });
        if (is_taken) taken.insert(op);
      }
      const double allowed = rounds_weights(op_case) ? 0.01 : 1e-4;
      expect_close(result, op_case.output,
                   std::max(op_case.absolute, allowed * std::max(1.0, largest(op_case.output))),
                   std::max(op_case.relative, allowed));
    }
  }
  if (shard.of > 1) return;  // an op may be taken in another's cases
  for (const std::string& op : seen) {
    INFO(op);
    CHECK(taken.contains(op) != left_to_reference.contains(op));
  }
}

}  // namespace
}  // namespace tenon::testing
