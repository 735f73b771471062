#pragma once

#include <tenon/backend.hpp>
#include <tenon/buffer.hpp>
#include <tenon/program.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tenon {

/// Weights by name, with what backends made of them. Shared by sessions; thread-safe. Once a
/// backend has packed a weight, the original bytes are no longer read.
class WeightSet {
 public:
  explicit WeightSet(std::map<std::string, Buffer> weights) : weights_(std::move(weights)) {}

  /// Null when there is none.
  const Buffer* find(const std::string& name) const noexcept;
  PreparedCache& prepared() const noexcept { return prepared_; }

 private:
  std::map<std::string, Buffer> weights_;
  mutable PreparedCache prepared_;
};

struct SessionOptions {
  /// In order of priority; a step goes to the first that does not refuse it. Empty: every
  /// registered backend, the reference last.
  std::vector<BackendPtr> backends;
  /// Plans kept, the least recently used one goes first.
  std::size_t plan_limit = 32;
};

/// What a plan looks like, for people and tests.
struct PlanReport {
  std::int64_t slab_bytes = 0;        ///< planned activation memory
  std::int64_t activation_bytes = 0;  ///< the same without reuse
  struct Part {
    std::string backend;
    std::vector<std::string> values;  ///< what it computes, in order
  };
  std::vector<Part> parts;
  std::vector<std::string> copies;  ///< values that are copied without an op asking for it
};

/// A program bound to backends: specialises to the shapes of its inputs, keeps a plan for each, and
/// runs. Owns its activations, so one thread may run it at a time (Errc::busy otherwise); forks
/// share plans and weights and run concurrently.
class Session {
 public:
  explicit Session(Program program, SessionOptions options = {});

  const Program& program() const noexcept;

  /// Gives the constants their values; plans made before are rebound.
  void bind(std::shared_ptr<const WeightSet> weights);

  /// Runs the program. Inputs in the order of the entry function's parameters, on any CPU-reachable
  /// region; an input that the program updates is overwritten when this call holds its last handle
  /// (pass it by std::move) and copied otherwise. Errc::bad_input names an input that does not fit;
  /// outputs are fresh.
  std::vector<Buffer> forward(std::vector<Buffer> inputs);
  /// As above, into memory of the caller; shapes must match (Errc::bad_input).
  void forward(std::vector<Buffer> inputs, std::span<Buffer> outputs);

  /// Makes the plan for these inputs, or finds it, and describes it.
  PlanReport report(std::span<const Shape> inputs);

  /// Why each backend refuses the op that makes `value`, or which one takes it; one line per
  /// backend.
  std::vector<std::string> explain(std::string_view value, std::span<const Shape> inputs);

  /// A session of its own activations on the same plans and weights.
  Session fork() const;
  /// The same, but on the activation memory of `other`: the two run one at a time.
  Session fork(const Session& other) const;

 private:
  struct Shared;
  struct Bound;
  struct Activations;
  Session() = default;
  std::vector<Buffer> run(std::vector<Buffer>& inputs, std::span<Buffer> given);

  std::shared_ptr<Shared> shared_;
  std::shared_ptr<Bound> bound_;
  std::shared_ptr<Activations> activations_;
};

}  // namespace tenon
