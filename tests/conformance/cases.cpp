#include "cases.hpp"

#include "support/op_testing.hpp"

#include <tenon/error.hpp>
#include <tenon/ops.hpp>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace tenon::testing {
namespace {

/// A case of other floating types again in `dtype`: in f32, the type that fast kernels are written
/// for, or in f64. What must come out is then the reference's answer, which the case itself has
/// checked.
std::optional<OpCase> in_type(DType dtype, const OpCase& op_case) {
  OpCase result = op_case;
  bool changed = false;
  for (HostBuffer& input : result.inputs) {
    if (!is_floating(input.shape().dtype()) || input.shape().dtype() == dtype) continue;
    input = input.to(dtype);
    changed = true;
  }
  if (!changed || op_case.op.def()->name == "cast") return std::nullopt;
  result.name += fmt::format(", in {}", tenon::name(dtype));
  try {
    result.output = run_reference(result.op, result.inputs);
  } catch (const Error&) {
    return std::nullopt;  // an operand that must be f32
  }
  return result;
}

template <class Op>
Op last_axis() {
  Op op;
  op.axes = {1};
  return op;
}

}  // namespace

double largest(const HostBuffer& array) {
  double most = 0;
  for (const double value : elements(array)) {
    if (std::isfinite(value)) most = std::max(most, std::fabs(value));
  }
  return most;
}

std::vector<OpCase> all_cases() {
  std::vector<OpCase> cases;
  for (const auto& file : committed_op_cases()) {
    for (OpCase& op_case : read_op_cases(file)) {
      for (const DType dtype : {f32, f64}) {
        if (auto widened = in_type(dtype, op_case)) cases.push_back(std::move(*widened));
      }
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

}  // namespace tenon::testing
