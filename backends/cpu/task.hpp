// Tasks: what lowered steps are compiled to. Every thread of the region runs its share of each.
#pragma once

#include "matmul/packed_weights.hpp"
#include "matmul/prepared_rows.hpp"
#include "prepared.hpp"
#include "thread_pool.hpp"

#include <tenon/backend.hpp>
#include <tenon/error.hpp>
#include <tenon/lowered.hpp>

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace tenon::cpu {

/// Errors in data that tasks report. The first report wins; the region runs to its end.
class Fault {
 public:
  /// `row`: of the batch, where each has its own value.
  void report(Errc code, const char* op, std::int64_t value, std::int64_t limit,
              std::int64_t row = -1) noexcept {
    bool none = false;
    if (!reported_.compare_exchange_strong(none, true)) return;
    code_ = code;
    op_ = op;
    value_ = value;
    limit_ = limit;
    row_ = row;
  }
  /// The same for a kernel that is not ours.
  void report(std::exception_ptr exception) noexcept {
    bool none = false;
    if (reported_.compare_exchange_strong(none, true)) exception_ = std::move(exception);
  }
  bool reported() const noexcept { return reported_.load(); }
  const std::exception_ptr& exception() const noexcept { return exception_; }
  Errc code() const noexcept { return code_; }
  const char* op() const noexcept { return op_; }
  std::int64_t value() const noexcept { return value_; }
  std::int64_t limit() const noexcept { return limit_; }
  std::int64_t row() const noexcept { return row_; }

 private:
  std::atomic<bool> reported_{false};
  Errc code_ = Errc::internal;
  const char* op_ = "";
  std::int64_t value_ = 0;
  std::int64_t limit_ = 0;
  std::int64_t row_ = -1;
  std::exception_ptr exception_;
};

/// The context of a task on one thread.
struct TaskContext {
  const HostFrame& frame;
  Worker& worker;
  /// What Compiler::prepare was asked for, numbered by PreparedIndex.
  std::span<const std::shared_ptr<const void>> prepared_constants;
  /// By constant entry: the packed rows of the whole constant; null where nobody asked for them.
  std::span<const PackedWeights* const> packed_constants;
  Fault& fault;
  std::byte* scratch_base;
  std::byte* zeroed_base;
  std::byte* prepared_base;
  std::byte* own_prepared_base;
  std::int64_t own_prepared_bytes;
  std::byte* working_base;
  std::int64_t working_bytes;
  /// Whether every thread runs the whole task (recomputed per thread).
  bool alone = false;
  /// Which part of its share a thread computes now.
  int part = 0, parts = 1;

  template <class T>
  T* pointer(const Operand& operand) const noexcept {
    return reinterpret_cast<T*>(frame.address(operand.place));
  }
  /// The constant that Compiler::prepare was asked for, as its recipe made it.
  template <class T>
  const T& constant(const PreparedIndex& index) const noexcept {
    return *static_cast<const T*>(constant_or_null(index));
  }
  const void* constant_or_null(const PreparedIndex& index) const noexcept {
    return prepared_constants[index.in(frame.iteration)].get();
  }
  /// The memory of prepared rows. Threads share the work of preparing several rows; a single row is
  /// recomputed per thread, since a barrier would take longer.
  static constexpr bool has_own_prepared(std::int64_t rows) noexcept { return rows == 1; }
  std::byte* prepared(std::int64_t rows) const noexcept {
    return has_own_prepared(rows) ? own_prepared_base + worker.id * own_prepared_bytes
                                  : prepared_base;
  }
  /// Bytes that Compiler::scratch and Compiler::zeroed_scratch gave.
  std::byte* scratch(std::int64_t offset) const noexcept { return scratch_base + offset; }
  std::byte* zeroed(std::int64_t offset) const noexcept { return zeroed_base + offset; }
  /// This thread's bytes that Compiler::working_memory asked for.
  std::byte* working_memory() const noexcept { return working_base + worker.id * working_bytes; }
  /// The items of `count` that this thread is to compute now.
  Range share(std::int64_t count) const noexcept {
    const Range own = alone ? Range{0, count} : split(count, worker.thread, worker.threads);
    if (parts == 1) return own;
    const Range now = split(own.end - own.begin, part, parts);
    return {own.begin + now.begin, own.begin + now.end};
  }
};

class Task {
 public:
  virtual ~Task() = default;
  /// Computes this thread's share. Barriers between tasks are the runner's.
  virtual void run(const TaskContext& context) const noexcept = 0;
  /// Takes over a task that may run at the same time as this one, if threads then share the work
  /// of both at once.
  virtual bool join(std::unique_ptr<Task>& /*next*/) { return false; }
  /// Whether the runner may call run() for parts of a large share one by one, to look for interrupts
  /// in between.
  virtual bool runs_in_parts() const noexcept { return false; }
};

/// A task that computes the items that TaskContext::share gives it, and does nothing else that
/// takes time.
class PartwiseTask : public Task {
 public:
  bool runs_in_parts() const noexcept override { return true; }
};

/// What kernels may request while a partition is compiled.
class Compiler {
 public:
  virtual ~Compiler() = default;
  virtual bool exact() const noexcept = 0;
  /// Threads that a run has at most.
  virtual int threads() const noexcept = 0;
  /// Memory of the task for the duration of a run, and memory that is zero when a run begins.
  /// Offsets for TaskContext::scratch and TaskContext::zeroed.
  virtual std::int64_t scratch(std::int64_t bytes) = 0;
  virtual std::int64_t zeroed_scratch(std::int64_t bytes) = 0;
  /// At least `bytes` for each thread while the task runs; later tasks reuse them.
  virtual void working_memory(std::int64_t bytes) = 0;
  /// Has a constant, or any view of one, prepared when weights are bound; for
  /// TaskContext::constant. The task does not read this operand of its step otherwise, unless the
  /// recipe's results are not kept.
  virtual PreparedIndex prepare(const Operand& constant, std::shared_ptr<const Recipe> recipe) = 0;
  /// Says that a task reads a whole constant's rows from TaskContext::packed_constants where they
  /// are packed.
  virtual void prefer_packed(const Operand& constant) = 0;
  /// Has the rows of `x` prepared for integer dot products at TaskContext::prepared when the task
  /// runs: adds the work unless an earlier task requested the same rows and they have not changed
  /// since.
  virtual void prepare_rows_of(const Operand& x, RowForm form, std::int64_t rows,
                               std::int64_t inputs) = 0;
  /// `bytes` of scratch memory that another task, `make(offset)`, fills from the operands `reads`
  /// before this one runs. `meaning` identifies the contents: tasks that request the same from the
  /// same operands share one table. It is filled once per run, before all loops, where no loop
  /// around it changes the operands. `earlier`: the offset of a table that this one is made from;
  /// what that one reads is among `reads`.
  virtual std::int64_t shared_table(
      const OpInstance& meaning, std::span<const Operand> reads, std::int64_t bytes,
      const std::function<std::unique_ptr<Task>(std::int64_t offset)>& make,
      std::optional<std::int64_t> earlier = {}) = 0;
};

/// A kernel's entry in kernels.def: for which steps, and how.
/// What a task of blocks is made of (tasks/point_task.hpp).
struct PointStep;

struct Kernel {
  const OpDef& (*op)() noexcept;
  /// The clause that fails for this step, or nothing.
  std::optional<std::string> (*refuses)(const Step& step);
  std::unique_ptr<Task> (*make)(const Step& step, Compiler& compiler);
  /// Whether the result may be tiled, as rows of `row_size` elements (see keep_values_tiled). Null:
  /// never. Asked in fast precision only.
  bool (*writes_tiles)(const Step& step, std::int64_t row_size) = nullptr;
  /// Null where steps are not computed in blocks of elements: such steps are not merged with others
  /// (see fused_points.hpp).
  PointStep (*point)(const Step& step) = nullptr;
};

/// Kernel::make of a task that is constructed from its step, or from that and the compiler.
template <class T>
std::unique_ptr<Task> make_task(const Step& step, Compiler& compiler) {
  if constexpr (std::is_constructible_v<T, const Step&, Compiler&>) {
    return std::make_unique<T>(step, compiler);
  } else {
    return std::make_unique<T>(step);
  }
}

/// The kernel that kernels.def lists for an op, or null.
const Kernel* kernel_of(const OpDef* op) noexcept;

// Clauses that many kernels share: nothing when they hold.
std::optional<std::string> takes_everything(const Step& step);  ///< that the op's checks let pass
std::optional<std::string> needs_f32(const Step& step);         ///< every input and the output
std::optional<std::string> needs_dense(const Operand& operand, std::string_view what);
std::optional<std::string> needs_dtype(const Operand& operand, DType dtype, std::string_view what);
/// The last axis steps by one element (or has at most one).
std::optional<std::string> needs_dense_rows(const Operand& operand, std::string_view what);

/// Elements of all axes but the last; of the last.
std::int64_t row_count(const Shape& shape) noexcept;
std::int64_t row_size(const Shape& shape) noexcept;
/// Step between rows in elements when rows lie evenly: [.., M, K] with one stride for all of "..M",
/// which is not negative.
/// 0 where all rows are one.
std::optional<std::int64_t> even_row_step(const Operand& operand) noexcept;
/// Dense rows with one step between them.
std::optional<std::string> needs_even_rows(const Operand& operand, std::string_view what);

}  // namespace tenon::cpu
