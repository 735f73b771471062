// The tasks of a partition in execution order, and the memory they need.
#pragma once

#include "prepared.hpp"
#include "task.hpp"

#include <tenon/lowered.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tenon::cpu {

/// A task, or a loop around some.
struct Node {
  std::unique_ptr<Task> task;       ///< null for loops
  bool barrier_before = false;      ///< waits for every thread to finish what came before
  bool alone = false;               ///< each thread runs all of it (recomputed per thread)
  int parts = 1;                    ///< what a thread's share is divided into; see PartwiseTask
  std::vector<std::string> values;  ///< the task computes these of the program, or parts of them
  std::string
      function;  ///< of a loop: what it repeats; of a task for a loop, run before it: the same
  std::int64_t first = 0, count = 0;
  int depth = 0;
  std::optional<Operand> condition;  ///< see Step::inputs
  std::int64_t goes_on = 0;          ///< where in scratch memory the threads agree on it: a bool
  std::vector<Node> body;
};

struct Schedule {
  std::vector<Node> nodes;
  std::vector<PrepareRequest> prepared;   ///< when weights are bound
  std::vector<ConstantView> read;         ///< constants that tasks read as they are
  std::vector<ConstantView> read_packed;  ///< the same, unless their whole rows are prepared
  // Memory of a run; see TaskContext.
  std::int64_t scratch_bytes = 0, zeroed_bytes = 0, prepared_bytes = 0;
  std::int64_t own_prepared_bytes = 0, working_bytes = 0;  ///< of each thread
};

/// What a schedule is made for.
struct ScheduleOptions {
  bool exact = false;
  int threads = 1;
  LoopSteps counts{};  ///< how often the loops around the steps run
};

/// Makes the tasks of steps that every kernel accepts, with barriers before tasks that access
/// memory of earlier, unfinished ones.
Schedule make_schedule(std::span<const Step> steps, const ScheduleOptions& options);

}  // namespace tenon::cpu
