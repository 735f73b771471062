#include "partition.hpp"

#include "matmul/pack_rows.hpp"
#include "passes.hpp"
#include "schedule.hpp"

#include <tenon/cost.hpp>
#include <tenon/error.hpp>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <limits>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tenon::cpu {
namespace {

/// What a partition is made of, shared by its bindings.
struct Compiled : Schedule {
  std::vector<std::unique_ptr<const RegisteredStep>> registered;  // tasks refer to them
  std::vector<ConstantSlot> constants;
  ConstantUse use;
  std::string calibration;  // as text, where convolutions may be in int8
  std::vector<std::string> notes;
  std::int64_t recomputed_bytes = 0;  // of each thread
  std::int64_t shared_bytes = 0;      // of values of one image at a time, and tiled ones
  std::shared_ptr<ThreadPool> pool;
  int thread_limit = ThreadPool::max_threads;
};

class CpuBoundPartition final : public BoundPartition {
 public:
  CpuBoundPartition(std::shared_ptr<const Compiled> compiled,
                    std::vector<std::shared_ptr<const void>> prepared)
      : compiled_(std::move(compiled)),
        prepared_(std::move(prepared)),
        packed_constants_(compiled_->constants.size(), nullptr) {
    for (std::size_t i = 0; i < prepared_.size(); ++i) {
      const auto& [view, recipe] = compiled_->prepared[i];
      if (makes_packed_rows(*recipe) && view.is_whole(compiled_->constants[view.constant].shape)) {
        packed_constants_[view.constant] = static_cast<const PackedWeights*>(prepared_[i].get());
      }
    }
  }

  SavedPartition save() const override {
    const auto text = std::as_bytes(std::span(compiled_->calibration));
    return {{text.begin(), text.end()}, compiled_->use};
  }

  void run(HostFrame& shared) const override {
    std::byte* const zeroed = shared.scratch;
    std::byte* const prepared = zeroed + compiled_->zeroed_bytes;
    std::byte* const scratch = prepared + compiled_->prepared_bytes;
    std::byte* const own_prepared = scratch + compiled_->scratch_bytes;
    const int threads = compiled_->pool->threads();
    std::byte* const working = own_prepared + threads * compiled_->own_prepared_bytes;
    std::byte* const recomputed = working + threads * compiled_->working_bytes;
    std::byte* const shared_values = recomputed + threads * compiled_->recomputed_bytes;
    if (compiled_->zeroed_bytes > 0) std::fill_n(zeroed, compiled_->zeroed_bytes, std::byte{0});
    if (shared.marks != nullptr) {
      shared.marks->reserve(shared.marks->size() + count_marks(compiled_->nodes) + 1);
    }
    FirstFault first;
    compiled_->pool->run_elastic(
        [&](Worker& worker) {
          worker.interrupt = shared.interrupt;
          HostFrame frame = shared;  // iterations are each thread's own
          frame.scratch = recomputed + worker.id * compiled_->recomputed_bytes;
          frame.shared_scratch = shared_values;
          Fault fault;
          const TaskContext context{frame,        worker,
                                    prepared_,    packed_constants_,
                                    fault,        scratch,
                                    zeroed,       prepared,
                                    own_prepared, compiled_->own_prepared_bytes,
                                    working,      compiled_->working_bytes};
          TaskContext alone = context;
          alone.alone = true;
          Walk walk{frame, context, alone, worker.id == 0 ? shared.marks : nullptr, first.is_met};
          walk.run(compiled_->nodes, {});
          if (walk.faulty != nullptr) first.take(fault, *walk.faulty, walk.faulty_step);
        },
        compiled_->thread_limit);
    if (shared.marks != nullptr)
      shared.marks->push_back({{}, {}, std::chrono::steady_clock::now()});
    if (shared.interrupt != nullptr) shared.interrupt->check("cpu");
    if (first.exception != nullptr) {
      rethrow_from(first.exception, first.node->values.front());
    }
    if (first.node != nullptr) {
      throw Error(
          first.code, "cpu",
          fmt::format("{} {} outside [0, {}){}, computing '{}'", first.op, first.value, first.limit,
                      first.row < 0 ? "" : fmt::format(" in row {}", first.row),
                      fmt::join(first.node->values, ", ")));
    }
  }

 private:
  /// Of the faults that threads met, that of the earliest step, and of its smallest row: later
  /// steps read what it did not write. For when all threads have ended.
  struct FirstFault {
    std::atomic<bool> is_met{false};  // by any thread, which ends loops
    std::mutex mutex;
    const Node* node = nullptr;
    std::int64_t step = 0;
    Errc code = Errc::internal;
    const char* op = "";
    std::int64_t value = 0, limit = 0, row = -1;
    std::exception_ptr exception;  // of a registered kernel

    void take(const Fault& fault, const Node& faulty, std::int64_t at) noexcept {
      const std::scoped_lock lock(mutex);
      if (node != nullptr && std::pair(step, row) <= std::pair(at, fault.row())) return;
      node = &faulty;
      step = at;
      code = fault.code();
      op = fault.op();
      value = fault.value();
      limit = fault.limit();
      row = fault.row();
      exception = fault.exception();
    }
  };

  /// What a registered kernel threw, with the value that it was to compute where it is an Error.
  [[noreturn]] static void rethrow_from(const std::exception_ptr& exception,
                                        const std::string& value) {
    try {
      std::rethrow_exception(exception);
    } catch (const Error& error) {
      throw Error(error.code(), fmt::format("{}: {}", value, error.where()), error.message());
    }
  }

  /// How many tasks a run begins.
  static std::size_t count_marks(const std::vector<Node>& nodes) noexcept {
    std::size_t count = 0;
    for (const Node& node : nodes) {
      count += node.task ? 1 : static_cast<std::size_t>(node.count) * count_marks(node.body);
    }
    return count;
  }

  /// One thread's way through the tasks.
  struct Walk {
    HostFrame& frame;
    const TaskContext& shared;  // of tasks that threads share the work of
    const TaskContext& alone;
    std::vector<StepMark>* marks;            // with room for all; null where no profile is kept
    std::atomic<bool>& is_met;               // a fault, by any thread
    const Node* faulty = nullptr;            // the first whose share of this thread met a fault
    std::int64_t step = 0, faulty_step = 0;  // tasks that were begun, the same in all threads

    /// False when this thread has been taken out of the region. `function`: see StepMark.
    bool run(const std::vector<Node>& nodes, std::string_view function) noexcept {
      Worker& worker = shared.worker;
      for (const Node& node : nodes) {
        if (node.task) {
          if (node.barrier_before && !worker.sync()) return false;
          if (marks != nullptr) {
            const std::string_view own = node.function.empty() ? function : node.function;
            marks->push_back({own, node.values, std::chrono::steady_clock::now()});
          }
          run_parts(node);
          ++step;
          if (shared.fault.reported() && faulty == nullptr) {
            faulty = &node;
            faulty_step = step;
            is_met = true;
          }
          continue;
        }
        const auto depth = static_cast<std::size_t>(node.depth);
        for (std::int64_t i = 0; i < node.count; ++i) {
          if (!worker.sync()) return false;
          if (node.condition) {
            bool goes_on = false;
            if (!agree(node, goes_on)) return false;
            if (!goes_on) break;
          }
          frame.iteration[depth] = i;
          frame.loop_index[depth] = node.first + i;
          if (!run(node.body, node.function)) return false;
        }
        frame.iteration[depth] = 0;
        if (!worker.sync()) return false;
      }
      return true;
    }

    /// An interrupt is looked for before every part; a run without one takes a share as a whole.
    void run_parts(const Node& node) const noexcept {
      const TaskContext& whole = node.alone ? alone : shared;
      if (node.parts == 1 || shared.worker.interrupt == nullptr) {
        if (!shared.worker.is_interrupted()) node.task->run(whole);
        return;
      }
      TaskContext context = whole;
      context.parts = node.parts;
      for (; context.part < context.parts && !shared.worker.is_interrupted(); ++context.part) {
        node.task->run(context);
      }
    }

    /// Whether another iteration begins: what one thread says, which all have reached. An iteration
    /// may change the condition before the last thread would have read it. False as `run` is.
    bool agree(const Node& loop, bool& goes_on) noexcept {
      Worker& worker = shared.worker;
      bool& said = *reinterpret_cast<bool*>(shared.scratch(loop.goes_on));
      if (worker.thread == 0) {
        // The condition last: nothing has written it where the tasks before it were left out.
        said = !worker.is_interrupted() && !is_met && *shared.pointer<const bool>(*loop.condition);
      }
      if (!worker.sync()) return false;
      goes_on = said;
      return true;
    }
  };

  std::shared_ptr<const Compiled> compiled_;
  std::vector<std::shared_ptr<const void>> prepared_;   // in the order of the requests
  std::vector<const PackedWeights*> packed_constants_;  // whole ones, by constant
};

class CpuPartition final : public Partition {
 public:
  explicit CpuPartition(std::shared_ptr<const Compiled> compiled)
      : compiled_(std::move(compiled)) {}

  std::int64_t scratch_bytes() const override {
    return compiled_->zeroed_bytes + compiled_->prepared_bytes + compiled_->scratch_bytes +
           compiled_->pool->threads() * (compiled_->own_prepared_bytes + compiled_->working_bytes +
                                         compiled_->recomputed_bytes) +
           compiled_->shared_bytes;
  }

  std::unique_ptr<BoundPartition> bind(const BoundConstants& constants) const override {
    return std::make_unique<CpuBoundPartition>(
        compiled_,
        prepare_constants(compiled_->prepared, compiled_->constants, constants, *compiled_->pool));
  }
  std::vector<std::string> notes() const override { return compiled_->notes; }
  std::optional<ConstantUse> constant_use() const override { return compiled_->use; }

 private:
  std::shared_ptr<const Compiled> compiled_;
};

/// Whether all rows of a constant are prepared, for EmbeddingTask to read.
bool has_packed_rows(const Compiled& compiled, std::size_t constant) {
  return std::ranges::any_of(compiled.prepared, [&](const PrepareRequest& request) {
    return request.view.constant == constant && makes_packed_rows(*request.recipe) &&
           request.view.is_whole(compiled.constants[constant].shape);
  });
}

ConstantUse use_of(const Compiled& compiled) {
  std::vector<std::size_t> read;
  for (const ConstantView& view : compiled.read) read.push_back(view.constant);
  for (const ConstantView& view : compiled.read_packed) {
    const bool is_whole = view.is_whole(compiled.constants[view.constant].shape);
    if (!is_whole || !has_packed_rows(compiled, view.constant)) read.push_back(view.constant);
  }
  return use_of(compiled.prepared, compiled.constants, std::move(read));
}

/// How often the loops run that are around `steps`, a run of the program's steps or of a
/// loop's.
bool find_loops_around(std::span<const Step> all, std::span<const Step> steps, LoopSteps& counts) {
  if (!steps.empty() && &steps.front() >= all.data() && &steps.front() < all.data() + all.size())
    return true;
  for (const Step& step : all) {
    if (step.kind != Step::Kind::loop) continue;
    const auto depth = static_cast<std::size_t>(step.depth);
    counts[depth] = step.count;
    if (find_loops_around(step.body, steps, counts)) return true;
    counts[depth] = 0;
  }
  return false;
}

/// Operations of the steps and numbers of 32 bits that they read and write, in one run; infinite where
/// data decide.
double work_of(std::span<const Step> steps) {
  double work = 0;
  for (const Step& step : steps) {
    if (step.kind == Step::Kind::loop) {
      if (step.condition() != nullptr) return std::numeric_limits<double>::infinity();
      work += static_cast<double>(step.count) * work_of(step.body);
      continue;
    }
    const Cost cost = cost_of(step);
    if (std::isnan(cost.flops)) return std::numeric_limits<double>::infinity();
    work += cost.flops + cost.bytes / 4;
  }
  return work;
}

constexpr const char* work_variable = "TENON_CPU_MIN_SHARED_WORK";

}  // namespace

double min_shared_work() {
  const char* const text = std::getenv(work_variable);
  if (text == nullptr || *text == '\0') return 131072;
  const std::string_view word(text);
  double work = 0;
  const auto [end, status] = std::from_chars(word.data(), word.data() + word.size(), work);
  if (status == std::errc() && end == word.data() + word.size() && work >= 0) return work;
  throw Error(Errc::bad_argument, work_variable,
              fmt::format("'{}' is no number of operations", word));
}

std::unique_ptr<Partition> compile_partition(const Lowered& program, std::span<const Step> steps,
                                             const PartitionOptions& with,
                                             const quant::CalibrationTable* int8) {
  PartitionSteps partition(program, steps);
  run_passes(partition, {with.exact, with.pool->threads(), int8});
  ScheduleOptions options;
  options.exact = with.exact;
  options.threads = with.pool->threads();
  find_loops_around(program.steps, steps, options.counts);
  auto compiled = std::make_shared<Compiled>();
  static_cast<Schedule&>(*compiled) = make_schedule(partition.steps, options);
  if (options.threads > 1 && work_of(steps) < with.min_shared_work) compiled->thread_limit = 1;
  compiled->registered = std::move(partition.registered);
  compiled->constants = program.constants;
  compiled->notes = std::move(partition.notes);
  compiled->recomputed_bytes = partition.recomputed_bytes;
  compiled->shared_bytes = partition.shared_bytes;
  compiled->use = use_of(*compiled);
  if (int8 != nullptr) compiled->calibration = int8->of(program).to_text();
  compiled->pool = with.pool;
  return std::make_unique<CpuPartition>(std::move(compiled));
}

}  // namespace tenon::cpu
