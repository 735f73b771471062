// A program's steps on backends: for one set of input shapes, without and with weights.
#pragma once

#include "session/residency.hpp"

#include <tenon/backend.hpp>
#include <tenon/lowered.hpp>
#include <tenon/session.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tenon::sessions {

/// A range of steps on one backend, or a loop whose body several backends share.
struct Stage {
  std::size_t backend = 0;
  std::size_t memory = 0;  ///< of the plan's memories
  std::span<const Step> steps;
  std::unique_ptr<Partition> partition;
  StepEdges edges;  ///< only where the plan has several memories, or each step is a stage
  const Step* loop = nullptr;
  std::vector<Stage> body;

  /// The one that the stage is, unless it is several or a loop.
  const Step* only_step() const noexcept {
    return steps.size() == 1 && steps.front().kind != Step::Kind::loop ? &steps.front() : nullptr;
  }
};

/// The name of what a step that is no loop does.
inline std::string_view op_of(const Step& step) noexcept {
  return step.kind == Step::Kind::copy ? "copy" : step.op.def()->name;
}

/// Where inputs and outputs lie in a device's memory of a run, behind the slab.
struct MirrorLayout {
  std::vector<std::int64_t> inputs, outputs;
  std::int64_t bytes = 0;
};

struct Plan {
  std::vector<Shape> signature;
  bool merged = true;
  /// Inputs that the caller gives up and whose memory is reused; empty: none.
  std::vector<bool> given_up;
  Lowered lowered;
  std::vector<Stage> stages;
  std::vector<MemRegion*> memories;  ///< 0: the CPU's; then those of the backends in use
  MemRegion* results = nullptr;      ///< where results lie; perhaps none of `memories`
  std::vector<std::size_t>
      input_readers;                 ///< by input: the memory of the first stage that reads it
  std::vector<bool> host_constants;  ///< by constant: whether a backend in CPU memory reads it
  MirrorLayout mirror;
  std::int64_t scratch_bytes = 0;
  std::vector<PlanReport::Fallback> fallbacks;  ///< none where views chose the backends
  /// Of restored partitions: the weights that they were saved with, which they may contain.
  std::optional<std::weak_ptr<const WeightSet>> only_for;

  bool suits(const WeightSet* weights) const {
    return !only_for || (weights != nullptr && only_for->lock().get() == weights);
  }

  bool has_devices() const noexcept { return memories.size() > 1; }
  /// The number of a memory; memories.size() for one that is not the plan's.
  std::size_t number_of(const MemRegion& memory) const noexcept;
};

/// Names of what a stage computes, loops inside it included.
std::vector<std::string> values_of(const Stage& stage);

/// Which backend runs a step; throws for a step that none may.
using Chooser = std::function<std::size_t(const Step& step)>;

/// Compiles `steps`, or finds them compiled; called in the order of the steps. They are all of
/// `together`, or without merging one of those that would be a stage with it.
using CompileStage = std::function<std::unique_ptr<Partition>(
    std::size_t backend, const Lowered& program, std::span<const Step> together,
    std::span<const Step> steps)>;

/// How a plan is made: with decisions of its own, or as one was saved.
struct PlanMaker {
  CompileStage compile;
  /// Null: each step goes to its view's backend, or to the first that takes it.
  std::function<Chooser(const Lowered& program)> chooser{};
  std::optional<std::weak_ptr<const WeightSet>> only_for{};  ///< Plan::only_for
  /// Completes what fallbacks_of() found. Null: nothing to complete.
  std::function<void(std::vector<PlanReport::Fallback>& fallbacks)> explain{};
};

/// What a backend makes of such steps.
std::unique_ptr<Partition> compile_stage(const Backend& backend, const Lowered& program,
                                         std::span<const Step> together,
                                         std::span<const Step> steps);

/// Makes the stages. A loop goes to a backend that is chosen for every step of its body; otherwise
/// the session runs it, so that one step which the fastest backend refuses does not take the whole
/// stack of layers away from it. Without `plan.merged`, every step is a stage.
void partition(Plan& plan, std::span<const BackendPtr> backends, const Chooser& choose,
               const CompileStage& compile);

/// The first backend that does not refuse a step; Errc::unsupported with everybody's reasons.
std::size_t first_that_takes(std::span<const BackendPtr> backends, const Step& step);

/// Brings what a stage reads into its memory, and notes what it wrote there. `depth`: loops that
/// the session itself is in, `iteration` where they are.
void bring_in(const Plan& plan, const Stage& stage, const LoopSteps& iteration, int depth,
              Residency& residency, const Residency::Copy& copy);
void note_writes(const Plan& plan, const Stage& stage, const LoopSteps& iteration, int depth,
                 Residency& residency);

/// All bytes of an input, an output or the slab.
ByteRange whole(const Plan& plan, const StorageKey& storage);

/// Calls `visit` for every stage with a partition, in the order of the steps.
template <class Visit>
void for_each_part(std::span<const Stage> stages, const Visit& visit) {
  for (const Stage& stage : stages) {
    if (stage.partition) visit(stage);
    for_each_part(stage.body, visit);
  }
}

struct BoundStage {
  const Stage* stage = nullptr;
  std::unique_ptr<BoundPartition> partition;
  std::vector<BoundStage> body;
};

/// Drops plans of the types of inputs that were used longest ago, where there are plans of more types than `limit`; for some types
/// there are several, such as those for calls that give other inputs up. `plans`: most recently used first; `plan_of(entry)` is the
/// plan of one. Returns whether any went.
template <class Entry, class PlanOf>
bool drop_oldest_plans(std::list<Entry>& plans, std::size_t limit, PlanOf plan_of) {
  const std::size_t most_alike = std::max<std::size_t>(limit, 3);
  std::vector<std::pair<const Plan*, std::size_t>> kinds;  // the first of each, and their number
  return std::erase_if(plans, [&](const Entry& entry) {
           const Plan& plan = plan_of(entry);
           const auto known = std::ranges::find_if(kinds, [&](const auto& kind) {
             return kind.first->merged == plan.merged && kind.first->signature == plan.signature;
           });
           if (known != kinds.end()) return ++known->second > most_alike;
           if (kinds.size() == limit) return true;
           kinds.emplace_back(&plan, 1);
           return false;
         }) > 0;
}

struct BoundPlan {
  std::shared_ptr<const Plan> plan;
  /// Copies of those in `plan->host_constants`. Those that were computed have data where they are
  /// read.
  std::vector<Buffer> constants;
  std::vector<const std::byte*> addresses;  ///< null for constants that the CPU does not read
  std::vector<BoundStage> stages;
  std::vector<std::shared_ptr<const Buffer>> computed;  ///< keeps them in the WeightSet
};

std::vector<BoundStage> bind_stages(std::span<const Stage> stages, const BoundConstants& constants);

/// A step that runs on `backend` for this reason, and its bytes in one run.
PlanReport::Fallback fallback_of(const Step& step, std::string why, const Backend& backend);
/// Says so in the log, where there is one; `first` is the backend that refused it.
void log_fallback(const PlanReport::Fallback& fallback, const Backend& first);

/// The steps that run on another backend than the first, with its reasons.
std::vector<PlanReport::Fallback> fallbacks_of(const Plan& plan,
                                               std::span<const BackendPtr> backends);

PlanReport describe(const Plan& plan, std::span<const BackendPtr> backends);

}  // namespace tenon::sessions
