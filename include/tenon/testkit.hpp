#pragma once

#include <tenon/backend.hpp>
#include <tenon/op.hpp>
#include <tenon/shape.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

// What an op, a kernel or a backend of one's own must do, tried. Depends on no test framework: link
// tenon::testkit and check that the list of findings is empty.
namespace tenon::testkit {

struct OpCheckOptions {
  /// Tried besides the op's reference(). One that refuses the op is a finding: nothing was tried.
  std::vector<BackendPtr> backends{};
  /// A backend that takes dense operands may refuse strided, constant and empty ones, which others then
  /// compute: that of a device.
  bool may_refuse = false;
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

struct BackendCheckOptions {
  /// What it refuses runs on these, in order of priority. Empty: on the reference backend.
  std::vector<BackendPtr> behind{};
  /// A result may differ from the reference's by this times max(1, |reference|), or by two units in the
  /// last place of its element type, and that of a whole model by ten times as much.
  double tolerance = 1e-4;
  /// How many calls of each op it is to take: sizes, element types, attributes. Up to five times as many are
  /// offered to a backend that refuses some.
  int trials_per_op = 60;
  /// Random inputs of single ops are uniform in [low, high); integers are in [0, 2).
  double low = -2, high = 2;
  /// Ops that are not tried with large numbers, NaN, infinities and -0, and why: what the backend says that
  /// it computes instead.
  std::map<std::string, std::string> other_special_values{};
  /// Called with the beginning of a finding's sentence before each trial: where one ends the process, the
  /// last one that was written out says which.
  std::function<void(const std::string& trial)> on_trial{};
  /// Whether to try what sessions do on several threads.
  bool threads = true;
  std::uint64_t seed = 1;
};

struct BackendCheck {
  std::vector<std::string> findings;        ///< what is wrong, a sentence each
  std::map<std::string, std::int64_t> ran;  ///< by op: trials that it took
  std::map<std::string, std::string> left;  ///< by op of which it took no trial: why it refused one
  /// By op of which it took fewer than trials_per_op: how many of how many, and why it refused one.
  std::map<std::string, std::string> few;

  bool passed() const noexcept { return findings.empty(); }
};

/// Tries a backend on whatever it does not refuse; what is wrong becomes a finding, also what its
/// members throw:
/// - memory, where the CPU cannot address it: bytes come back at odd offsets and sizes, adjacent ones stay,
///   copies may overlap, no room is Errc::out_of_device_memory, and what is freed can be allocated again;
/// - ops: every registered one, with other attributes, element types and sizes than models usually have
///   and broadcast operands, dense, strided, as parts of inputs and of constants, and used again later, with
///   numbers up to 200 (f32), NaN, infinities and -0; nothing is written beside the results;
/// - models: layers, images, attention, loops, state that is updated in place, branches, integers,
///   halves, views, results that are inputs, symbols that are 0, 1 and more. Each is run twice, with inputs
///   given up and in the backend's memory, with results there, step by step, with other weights, in forks
///   at once, submitted, interrupted, profiled, and from a snapshot;
/// - memory in use does not grow from one round to the next.
/// A device that reports other numbers on purpose (one that computes in int8) needs a larger tolerance.
BackendCheck check_backend(const BackendPtr& backend, const BackendCheckOptions& options = {});

}  // namespace tenon::testkit
