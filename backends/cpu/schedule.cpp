#include "schedule.hpp"

#include "lower/memory_access.hpp"
#include "matmul/prepared_rows.hpp"
#include "tasks/copy.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <optional>
#include <utility>

namespace tenon::cpu {

using namespace lowering;
namespace {

constexpr std::int64_t alignment = 64;

std::int64_t aligned(std::int64_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

class PrepareTask final : public Task {
 public:
  PrepareTask(const Operand& x, RowForm form, std::int64_t rows, std::int64_t inputs,
              std::int64_t x_step)
      : x_(x), form_(form), rows_(rows), inputs_(inputs), x_step_(x_step) {}
  void run(const TaskContext& context) const noexcept override {
    const PreparedRows rows(form_, rows_, inputs_, context.prepared(rows_));
    const bool alone = TaskContext::has_own_prepared(rows_);
    prepare_rows(context.pointer<const float>(x_), x_step_, rows, alone ? 0 : context.worker.thread,
                 alone ? 1 : context.worker.threads);
  }

 private:
  Operand x_;
  RowForm form_;
  std::int64_t rows_, inputs_, x_step_;
};

class Scheduler final : public Compiler {
 public:
  explicit Scheduler(const ScheduleOptions& options) : options_(options), counts_(options.counts) {}

  Schedule run(std::span<const Step> steps) {
    made_.nodes = compile(steps);
    return std::move(made_);
  }

  bool exact() const noexcept override { return options_.exact; }
  int threads() const noexcept override { return options_.threads; }
  std::int64_t scratch(std::int64_t bytes) override {
    return std::exchange(made_.scratch_bytes, aligned(made_.scratch_bytes + bytes));
  }
  std::int64_t zeroed_scratch(std::int64_t bytes) override {
    return std::exchange(made_.zeroed_bytes, aligned(made_.zeroed_bytes + bytes));
  }
  void working_memory(std::int64_t bytes) override {
    made_.working_bytes = std::max(made_.working_bytes, aligned(bytes));
  }
  PreparedIndex prepare(const Operand& constant, std::shared_ptr<const Recipe> recipe) override {
    std::vector<PrepareRequest> wanted;
    for (ConstantView& view : views_of(constant)) wanted.push_back({std::move(view), recipe});
    forget_read(constant);
    const auto found = std::ranges::search(made_.prepared, wanted);
    PreparedIndex index{found.begin() - made_.prepared.begin(), {}};
    if (found.empty()) made_.prepared.insert(made_.prepared.end(), wanted.begin(), wanted.end());
    std::int64_t step = 1;
    for (std::size_t d = max_loop_depth; d-- > 0;) {
      if (!moves_with(constant, d)) continue;
      index.step[d] = step;
      step *= counts_[d];
    }
    return index;
  }
  void prefer_packed(const Operand& constant) override {
    if (!forget_read(constant)) return;
    for (ConstantView& view : views_of(constant)) made_.read_packed.push_back(std::move(view));
  }
  /// Whether a constant operand is another one, or another part, in each iteration of loop `d`.
  static bool moves_with(const Operand& operand, std::size_t d) {
    return operand.place.entry_step[d] != 0 || operand.place.byte_step[d] != 0;
  }
  /// What an operand is in all iterations of the loops that it moves with, the innermost fastest.
  std::vector<ConstantView> views_of(const Operand& operand) const {
    const Place& place = operand.place;
    std::vector<ConstantView> views{
        {place.index, place.offset, operand.shape.without_tags(),
         operand.is_contiguous() ? dense_strides(operand.shape) : operand.strides}};
    for (std::size_t d = 0; d < max_loop_depth; ++d) {
      if (!moves_with(operand, d)) continue;
      std::vector<ConstantView> all;
      for (ConstantView view : views) {
        for (std::int64_t i = 0; i < counts_[d]; ++i) {
          all.push_back(view);
          view.constant += static_cast<std::size_t>(place.entry_step[d]);
          view.offset += place.byte_step[d];
        }
      }
      views = std::move(all);
    }
    return views;
  }
  void prepare_rows_of(const Operand& x, RowForm form, std::int64_t rows,
                       std::int64_t inputs) override {
    const bool own = TaskContext::has_own_prepared(rows);
    reads_prepared_ = !own;
    if (prepared_ && *prepared_ == x && prepared_form_ == form) return;
    std::int64_t& most = own ? made_.own_prepared_bytes : made_.prepared_bytes;
    most = std::max(
        most, aligned(static_cast<std::int64_t>(PreparedRows::size_bytes(form, rows, inputs))));
    std::vector<Access> reads, writes;
    if (is_memory(x)) reads.push_back(access_of(x));
    if (!own) writes.push_back(prepared_access);
    add_task(std::make_unique<PrepareTask>(x, form, rows, inputs, *even_row_step(x)), reads,
             writes);
    prepared_ = x;
    prepared_form_ = form;
  }

  std::int64_t shared_table(const OpInstance& meaning, std::span<const Operand> reads,
                            std::int64_t bytes,
                            const std::function<std::unique_ptr<Task>(std::int64_t)>& make,
                            std::optional<std::int64_t> earlier) override {
    const bool is_fixed = std::ranges::none_of(
        reads, [this](const Operand& operand) { return changes_in_loops(operand); });
    for (const Table& table : tables_) {
      // Tables of elements of another type have another size.
      const bool same = table.meaning == meaning && table.bytes == bytes &&
                        std::ranges::equal(table.reads, reads);
      if (same && (is_fixed || table.depth == loops_.size())) {
        reads_tables_.push_back(table.access);
        return table.offset;
      }
    }
    Table table{meaning, {reads.begin(), reads.end()}, bytes, scratch(bytes), {}, loops_.size()};
    table.access = {Place::Kind::loop_index, 1, {table.offset, table.offset + bytes}};
    if (is_fixed && !loops_.empty()) {
      // Loops begin with a barrier, which stands between this task and its readers.
      Node node;
      node.task = make(table.offset);
      node.barrier_before = true;
      node.values = {value_};
      node.function = loops_.back()->value;
      outermost_->push_back(std::move(node));
      table.depth = 0;
    } else {
      std::vector<Access> accesses;
      for (const Operand& operand : reads) {
        if (is_memory(operand)) accesses.push_back(access_of(operand));
      }
      for (const Table& other : tables_) {
        if (other.offset == earlier) accesses.push_back(other.access);
      }
      add_task(make(table.offset), accesses, {table.access});
    }
    reads_tables_.push_back(table.access);
    tables_.push_back(table);
    return table.offset;
  }

 private:
  /// Stands for the memory of the prepared rows.
  static constexpr Access prepared_access{Place::Kind::loop_index, 0, {0, 1}};

  struct Table {
    OpInstance meaning;
    std::vector<Operand> reads;
    std::int64_t bytes;
    std::int64_t offset;
    Access access;
    std::size_t depth;  // loops around the task that fills it
  };

  std::vector<Node> compile(std::span<const Step> steps) {
    std::vector<Node> nodes;
    std::vector<Node>* const outer = std::exchange(nodes_, &nodes);
    if (outer == nullptr) outermost_ = &nodes;
    for (const Step& step : steps) {
      if (step.kind == Step::Kind::loop) {
        add_loop(step);
      } else {
        add_step(step);
      }
    }
    nodes_ = outer;
    return nodes;
  }

  /// Whether an operand moves with the loops around this point, or is written in them.
  bool changes_in_loops(const Operand& operand) const {
    if (loops_.empty()) return false;
    // What a loop that may not run would compute, and perhaps find wrong, is not computed before it.
    const auto has_condition = [](const Step* loop) { return loop->condition() != nullptr; };
    if (std::ranges::any_of(loops_, has_condition)) return true;
    if (operand.place.byte_step != LoopSteps{} || operand.place.entry_step != LoopSteps{} ||
        operand.place.kind == Place::Kind::loop_index) {
      return true;
    }
    return writes_to(*loops_.front(), access_of(operand));
  }

  /// One operand of the step at hand that its task does not read as it is. False where none is left.
  bool forget_read(const Operand& constant) {
    const auto found = std::ranges::find(constants_read_, constant);
    if (found == constants_read_.end()) return false;
    constants_read_.erase(found);
    return true;
  }

  /// So many that one of them takes a thread some milliseconds.
  static int parts_of(const Step& step) {
    constexpr std::int64_t part_bytes = std::int64_t{4} << 20;
    std::int64_t bytes = 0;
    for (const Operand& output : outputs_of(step)) bytes = std::max(bytes, output.shape.bytes());
    for (const Operand& input : step.inputs) bytes = std::max(bytes, input.shape.bytes());
    return static_cast<int>(std::clamp<std::int64_t>(bytes / part_bytes, 1, 1 << 16));
  }

  /// An empty result takes no work, unless there are indices to check.
  static bool is_nothing(const Step& step) {
    return step.output.shape.elements() == 0 &&
           (step.kind == Step::Kind::copy || step.op.def()->traits.picked_inputs == 0);
  }

  void add_step(const Step& step) {
    if (is_nothing(step)) return;
    std::vector<Access> reads;
    for (const Operand& input : step.inputs) {
      if (is_memory(input)) reads.push_back(access_of(input));
    }
    std::vector<Access> writes;
    for (const Operand& output : outputs_of(step)) writes.push_back(access_of(output));
    value_ = step.value;
    parts_ = parts_of(step);
    reads_prepared_ = false;
    reads_tables_.clear();
    constants_read_.clear();
    std::ranges::copy_if(
        step.inputs, std::back_inserter(constants_read_),
        [](const Operand& input) { return input.place.kind == Place::Kind::constant; });
    std::unique_ptr<Task> task = step.kind == Step::Kind::copy
                                     ? make_copy(step)
                                     : kernel_of(step.op.def())->make(step, *this);
    for (const Operand& constant : constants_read_) {
      for (ConstantView& view : views_of(constant)) made_.read.push_back(std::move(view));
    }
    if (reads_prepared_) reads.push_back(prepared_access);
    reads.insert(reads.end(), reads_tables_.begin(), reads_tables_.end());
    const bool own = !is_memory(step.output);
    add_task(std::move(task), reads, own ? std::vector<Access>() : writes);
    nodes_->back().alone = own;
    const auto is_written = [&](const Operand& operand) {
      const Access access = access_of(operand);
      return std::ranges::any_of(writes, [&](const Access& w) { return overlap(w, access); });
    };
    if (prepared_ && is_written(*prepared_)) prepared_.reset();
    std::erase_if(tables_,
                  [&](const Table& table) { return std::ranges::any_of(table.reads, is_written); });
  }

  /// Appends a task, behind a barrier where it meets memory that unfinished tasks use.
  void add_task(std::unique_ptr<Task> task, const std::vector<Access>& reads,
                const std::vector<Access>& writes) {
    const auto clash = [](const std::vector<Access>& a, const std::vector<Access>& b) {
      return std::ranges::any_of(a, [&](const Access& x) {
        return std::ranges::any_of(b, [&](const Access& y) { return overlap(x, y); });
      });
    };
    Node node;
    node.barrier_before = clash(reads, written_) || clash(writes, written_) || clash(writes, read_);
    if (node.barrier_before) forget_accesses();
    read_.insert(read_.end(), reads.begin(), reads.end());
    written_.insert(written_.end(), writes.begin(), writes.end());
    if (!node.barrier_before && !nodes_->empty() && nodes_->back().task != nullptr &&
        nodes_->back().task->join(task)) {
      nodes_->back().values.push_back(value_);
      return;
    }
    if (task->runs_in_parts()) node.parts = parts_;
    node.task = std::move(task);
    node.values = {value_};
    nodes_->push_back(std::move(node));
  }

  /// Every iteration begins behind a barrier, and so does what follows the loop.
  void add_loop(const Step& step) {
    Node node;
    node.function = step.value;
    node.first = step.first;
    node.count = step.count;
    node.depth = step.depth;
    if (const Operand* condition = step.condition()) {
      node.condition = *condition;
      node.goes_on = scratch(sizeof(bool));
    }
    counts_[static_cast<std::size_t>(step.depth)] = step.count;
    prepared_.reset();
    forget_accesses();
    loops_.push_back(&step);
    node.body = compile(step.body);
    loops_.pop_back();
    std::erase_if(tables_, [this](const Table& table) { return table.depth > loops_.size(); });
    prepared_.reset();
    forget_accesses();
    nodes_->push_back(std::move(node));
  }

  void forget_accesses() {
    written_.clear();
    read_.clear();
  }

  ScheduleOptions options_;
  Schedule made_;
  LoopSteps counts_;                // how often each loop runs
  std::vector<const Step*> loops_;  // around this point, outermost first
  std::vector<Node>* nodes_ = nullptr;
  std::vector<Node>* outermost_ = nullptr;
  std::string value_;                // of the step that is being compiled
  int parts_ = 1;                    // of its partwise tasks
  std::optional<Operand> prepared_;  // whose rows are prepared at this point
  RowForm prepared_form_ = RowForm::int8;
  bool reads_prepared_ = false;
  std::vector<Table> tables_;            // filled at this point
  std::vector<Access> reads_tables_;     // of them, by the step that is being compiled
  std::vector<Operand> constants_read_;  // as they are, by that step
  std::vector<Access> written_, read_;   // since the last barrier
};

}  // namespace

Schedule make_schedule(std::span<const Step> steps, const ScheduleOptions& options) {
  return Scheduler(options).run(steps);
}

}  // namespace tenon::cpu
