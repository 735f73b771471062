// What stands behind a Session: what forks share, and what each has to itself.
#pragma once

#include "base/work_queue.hpp"
#include "memory/kept_memory.hpp"
#include "program/unrolled.hpp"
#include "session/plan.hpp"

#include <tenon/fork_aware_mutex.hpp>
#include <tenon/session.hpp>

#include <chrono>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tenon {

/// The program, its backends and its plans.
struct Session::Shared {
  Program program;
  std::vector<BackendPtr> backends;
  std::optional<std::map<std::string, std::size_t>> chosen;  ///< by value; when views were given
  std::size_t plan_limit = 0;
  bool forbid_fallback = false;
  bool results_on_device = false;

  /// `given_up`: as for lower().
  std::shared_ptr<const sessions::Plan> plan_for(std::span<const Shape> inputs, bool merged,
                                                 const WeightSet* weights,
                                                 const std::vector<bool>& given_up = {});
  /// Plans so far for calls that keep their inputs, the oldest first.
  std::vector<std::shared_ptr<const sessions::Plan>> plans();
  std::shared_ptr<const sessions::Plan> add_plan(std::span<const Shape> inputs, bool merged,
                                                 const WeightSet* weights,
                                                 const sessions::PlanMaker& maker);
  /// Those that compute constants from constants: the session's but for those that compile for one
  /// set of weights; where they refuse a step, then default_backends().
  std::vector<BackendPtr> constant_backends(std::span<const Step> steps) const;

 private:
  std::unique_ptr<sessions::Plan> make_plan(std::span<const Shape> inputs, bool merged,
                                            const WeightSet* weights,
                                            const std::vector<bool>& given_up,
                                            const sessions::PlanMaker& maker);
  std::size_t choose(const Step& step) const;
  void tell(const PlanReport::Fallback& fallback) const;

  /// Lowers the program, or what it is without loops and calls, in which the same values are
  /// constants: numbers do not depend on it.
  Lowered lowered(std::span<const Shape> inputs, const WeightSet* weights,
                  const std::vector<bool>& given_up, bool straight);

  /// Says which numbers the constant part gives: backends differ in their last bits.
  const std::string& constant_numbers();

  ForkAwareMutex mutex_{"Session"};
  std::string constant_numbers_;
  std::optional<Program> unrolled_;
  Origins origins_;                                         // of the values of unrolled_
  std::list<std::shared_ptr<const sessions::Plan>> plans_;  // most recently used first
};

/// Plans with weights.
struct Session::Bound {
  std::shared_ptr<const WeightSet> weights;
  std::map<std::string, std::string> digests;  ///< of weights whose data is not at hand

  std::shared_ptr<const sessions::BoundPlan> bind(const Shared& shared,
                                                  std::shared_ptr<const sessions::Plan> plan);
  /// The bound form of a plan, or null.
  std::shared_ptr<const sessions::BoundPlan> find(const sessions::Plan& plan);

 private:
  /// By constant: those of the plan that are computed from others and are needed to bind it.
  std::vector<std::shared_ptr<const Buffer>> computed_constants(const Shared& shared,
                                                                const sessions::Plan& plan);
  /// Computed for a plan that is still bound, from constants of the program; or null.
  std::shared_ptr<const Buffer> own_computed(const std::string& name) const;
  /// Drops what it noted of computed constants that no plan has any more.
  void forget_unused();
  const std::string& key_of(const ConstantSlot& slot, const Buffer& array);
  BoundConstants constants_of(const Lowered& lowered, std::span<const Buffer> arrays,
                              PreparedCache& prepared);
  /// The outputs of steps without inputs, in CPU memory.
  std::vector<Buffer> compute(const Shared& shared, Lowered part);

  ForkAwareMutex mutex_{"Session"};
  std::list<std::shared_ptr<const sessions::BoundPlan>> plans_;  // most recently used first
  // Of the program's own constants, by their names: what its plans share.
  std::map<std::string, std::string> own_keys_;
  std::map<std::string, std::weak_ptr<const Buffer>> own_computed_;
};

namespace sessions {

/// The memory of one run at a time.
class Activations {
 public:
  /// Held while somebody runs; Errc::busy when somebody does, Errc::forked_process when that was
  /// another thread of the parent process. Waits for submitted runs until the interrupt is due. A
  /// submitted run itself waits for whoever runs.
  class Lock {
   public:
    explicit Lock(Activations& activations);
    Lock(Activations& activations, const Interrupt& interrupt);
    ~Lock() { held_.running_.unlock(); }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    Activations& held_;
  };

  /// At least so many bytes in a region, kept from run to run; no chunk for 0 bytes.
  const MemChunk& slab(MemRegion& region, std::int64_t bytes) { return get(slabs_, region, bytes); }
  const MemChunk& scratch(MemRegion& region, std::int64_t bytes) {
    return get(scratch_, region, bytes);
  }
  /// Host copies of inputs and outputs that lie elsewhere.
  const MemChunk& mirror(MemRegion& region, std::int64_t bytes) {
    return get(mirrors_, region, bytes);
  }
  /// Memory for a run's results of these shapes, all of them: where that is large and the CPU's,
  /// what the last run's gave back.
  std::vector<Buffer> results(MemRegion& region, std::span<const Shape> shapes);

  /// The number of a run that begins in this memory.
  std::uint64_t begin_run() noexcept { return ++runs_; }
  /// Whether no other run has begun since.
  bool is_last(std::uint64_t run) const noexcept { return run == runs_; }

  /// Submitted runs.
  WorkQueue& queue() noexcept { return queue_; }
  /// Held while runs take or give back handles of their inputs and results.
  ForkAwareMutex& handles() noexcept { return handles_; }

 private:
  using Chunks = std::map<const MemRegion*, MemChunk>;
  static const MemChunk& get(Chunks& chunks, MemRegion& region, std::int64_t bytes);

  ForkAwareMutex running_{"Session::forward"};
  Chunks slabs_, scratch_, mirrors_;
  std::uint64_t runs_ = 0;
  KeptMemory kept_;
  ForkAwareMutex handles_{"Session"};
  WorkQueue queue_{"Session::submit"};  // last: its runs end before the memory goes
};

struct RunOptions {
  bool merge = true;
  bool log_io = false;
  bool log_time = false;
  std::string dump_folder;
  std::string dump_format;
  StepCallback before, after;
  bool profile = false;
  std::shared_ptr<Trace> trace;

  bool merges() const noexcept { return merge && dump_folder.empty(); }
  bool watches() const noexcept {
    return log_io || log_time || !dump_folder.empty() || before || after || profile ||
           trace != nullptr;
  }
};

}  // namespace sessions

struct Session::State {
  std::shared_ptr<sessions::Activations> activations = std::make_shared<sessions::Activations>();
  sessions::RunOptions options;
  bool applied = false;
  bool merge_is_fixed = false;  ///< plans were loaded
  Interrupt interrupt;
  std::unique_ptr<Run> stepping;
  std::vector<StepTime> times;
  std::chrono::nanoseconds total{};
};

}  // namespace tenon
