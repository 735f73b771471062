#pragma once

#include "driver/driver.hpp"
#include "kernels/args.hpp"

#include <tenon/lowered.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace tenon::cuda {

/// Where an address in a kernel's arguments comes from, when it runs.
struct Source {
  enum class Kind : std::uint8_t {
    operand,  ///< `place`, of the program
    scratch,  ///< byte `offset` of the run's scratch memory
    data,     ///< byte `offset` of what the plan brings along
    status,   ///< the run's Status
    tickets,  ///< byte `offset` of the run's tickets: zeros between launches
  };
  Kind kind = Kind::operand;
  Place place{};
  std::int64_t offset = 0;
};

struct Patch {
  std::size_t at = 0;  ///< the address's byte in the arguments
  Source source;
};

struct Launch {
  Kernel kernel{};
  Grid grid;
  std::vector<std::byte> args;
  std::vector<Patch> patches;
  Routine routine = Routine::none;  ///< of a library, instead of the kernel
  /// LaunchPlan::generated, instead of the kernel.
  std::optional<std::size_t> generated{};
};

struct Loop;
using Instruction = std::variant<Launch, Loop>;

/// As Step::Kind::loop.
struct Loop {
  const Step* step = nullptr;
  std::vector<Instruction> body;
};

/// A kernel's text, and the size of its arguments.
struct GeneratedText {
  std::string text;
  std::size_t args_bytes = 0;
};

/// What a partition's steps became.
struct LaunchPlan {
  std::vector<Instruction> instructions;
  std::vector<GeneratedText> generated;  ///< all different
  /// By Reporter::step.
  std::vector<const Step*> reporters;
  std::vector<std::byte> data;  ///< tables that kernels read, uploaded when weights are bound
  std::int64_t scratch_bytes = 0, ticket_bytes = 0;
  std::int64_t launches = 0;                        ///< of one pass through all loops
  std::array<std::int64_t, routine_count> calls{};  ///< of them, those of each routine
  std::int64_t activations = 0;                     ///< convolutions that a library activates
  std::string library_refusal;  ///< why a library did not take a step; the first reason
};

/// How steps may be planned.
struct PlanOptions {
  Driver* libraries = nullptr;  ///< whose libraries may be used; null: kernels only
  bool is_exact = false;        ///< no value in f32 is rounded to 16 bits on the way
  bool allows_tf32 = false;
  bool multiplies_digits = false;  ///< of few rows, with weights that are codes
};

/// One kernel's arguments, to be filled in and given to Emitter::launch().
template <class Args>
struct Draft {
  Args args{};
  std::vector<Patch> patches;

  void address(Address& field, Source source) {
    const auto at = reinterpret_cast<std::byte*>(&field) - reinterpret_cast<std::byte*>(&args);
    patches.push_back({static_cast<std::size_t>(at), std::move(source)});
  }
  /// Nothing for an array without elements, which may have no memory.
  void address(Address& field, const Operand& operand) {
    if (operand.shape.elements() == 0) return;
    address(field, Source{Source::Kind::operand, operand.place, 0});
  }
  void reporter(Reporter& field, std::int32_t step) {
    address(field.status, Source{Source::Kind::status, {}, 0});
    field.step = step;
  }
};

/// What an operand's rows become for products that several steps may have in a row.
enum class CopyKind : std::uint8_t {
  rounded,  ///< bf16
  digits,   ///< DigitsOfStep
};

/// Collects a plan. Scratch memory is assigned here, and reused from step to step: a run allocates
/// nothing.
class Emitter {
 public:
  explicit Emitter(LaunchPlan& plan, const PlanOptions& options = {})
      : plan_(plan), options_(options), into_(&plan.instructions) {}

  template <class Args>
  void launch(Kernel kernel, const Grid& grid, const Draft<Args>& draft) {
    const auto* const begin = reinterpret_cast<const std::byte*>(&draft.args);
    add({kernel, grid, {begin, begin + sizeof(Args)}, draft.patches});
  }
  template <class Args>
  void call(Routine routine, const Draft<Args>& draft) {
    const auto* const begin = reinterpret_cast<const std::byte*>(&draft.args);
    ++plan_.calls[static_cast<std::size_t>(routine)];
    add({{}, {}, {begin, begin + sizeof(Args)}, draft.patches, routine});
  }
  /// A kernel of this text, whose arguments are `words`.
  void launch_generated(const std::string& text, const Grid& grid,
                        std::span<const std::uint64_t> words, std::vector<Patch> patches);
  /// Whether a library takes it.
  template <class Call>
  bool is_taken(const Call& call) {
    const std::optional<std::string> refusal = options_.libraries->refuses(call);
    if (refusal && plan_.library_refusal.empty()) plan_.library_refusal = *refusal;
    return !refusal;
  }
  void count_activation() { ++plan_.activations; }
  const PlanOptions& options() const noexcept { return options_; }
  /// The number of the current step among those that report errors.
  std::int32_t reporter();
  /// The same of one that the current step was made of.
  std::int32_t reporter(const Step& step);
  /// Memory that is the current step's alone.
  Source scratch(std::int64_t bytes);
  /// The copy of an operand's rows that an earlier step made, if nothing has overwritten the operand
  /// since.
  std::optional<Source> kept_copy(CopyKind kind, const Operand& operand) const;
  /// Memory for such a copy, which later steps find; of an input of the current step, or of its output.
  /// Before other scratch memory of the step.
  Source keep_copy(CopyKind kind, const Operand& operand, std::int64_t bytes);
  Source keep_copy_of_output(CopyKind kind, const Step& step, std::int64_t bytes);
  /// The steps behind the current one, of the same body.
  std::span<const Step> next_steps() const noexcept { return next_; }
  /// The first `count` of these are planned with the current one.
  void take_next(std::size_t count) noexcept { taken_ = count; }
  /// Counters of blocks that arrive, u32: 0 before a launch, which leaves them so.
  Source tickets(std::int64_t count);
  Source data(std::span<const std::byte> bytes);
  template <class T>
  Source data_of(const std::vector<T>& values) {
    return data(std::as_bytes(std::span(values)));
  }

  /// Plans steps that the backend does not refuse.
  void steps(std::span<const Step> steps);

 private:
  void add(Launch launch);
  void step(const Step& step);

  LaunchPlan& plan_;
  PlanOptions options_;
  std::vector<Instruction>* into_;
  const Step* step_ = nullptr;
  std::int64_t step_scratch_ = 0;
  std::span<const Step> next_;
  std::size_t taken_ = 0;
  /// At the begin of the scratch memory.
  struct KeptCopy {
    CopyKind kind;
    Operand of;
    std::int64_t bytes;
    const Step* writer = nullptr;  ///< the step whose output it is of
  };
  std::optional<KeptCopy> kept_copy_;
};

/// Why no kernel runs a step, or nothing; with an emitter its launches, too.
std::optional<std::string> plan_step(const Step& step, Emitter* out);

}  // namespace tenon::cuda
