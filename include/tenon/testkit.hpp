#pragma once

#include <tenon/backend.hpp>
#include <tenon/op.hpp>
#include <tenon/shape.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

// What an op or a kernel of one's own must do, tried. Depends on no test framework: link
// tenon::testkit and check that the list of findings is empty.
namespace tenon::testkit {

struct OpCheckOptions {
  /// Tried besides the op's reference(). One that refuses the op is a finding: nothing was tried.
  std::vector<BackendPtr> backends{};
  /// A backend's result may differ from the reference's by this times max(1, |reference|).
  double tolerance = 1e-5;
  /// Random inputs are uniform in [low, high); integers are rounded down.
  double low = -2, high = 2;
  std::uint64_t seed = 1;
};

/// Tries an op on random inputs of these types (static shapes, plain types) and says what is wrong,
/// one sentence each; none when all of this holds:
/// - attributes read back what was stored, infer() says the same twice and keeps rank and type
///   where sizes are symbols;
/// - a registered op's program is printed, parsed and printed alike;
/// - reference() writes every element, gives the same bytes for strided inputs, and for an output
///   that overwrites an input which `in_place_inputs` names; a view places what it copies;
/// - every backend agrees with the reference: inputs dense, strided and as constants, the op in the
///   middle of a program that uses its input again, with an empty first axis, and twice the same
///   bytes.
/// Throws what infer() says of the inputs; nothing else of the op's, which becomes a finding.
std::vector<std::string> check_op(const OpInstance& op, std::span<const Shape> inputs,
                                  const OpCheckOptions& options = {});
template <OpStruct Op>
std::vector<std::string> check_op(const Op& op, std::initializer_list<Shape> inputs,
                                  const OpCheckOptions& options = {}) {
  return check_op(OpInstance(op), std::span<const Shape>(inputs.begin(), inputs.size()), options);
}

}  // namespace tenon::testkit
