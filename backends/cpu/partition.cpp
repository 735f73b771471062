#include "partition.hpp"

#include "convolution/int8/quantize.hpp"
#include "convolution/layout.hpp"
#include "convolution/merge.hpp"
#include "convolution/split.hpp"
#include "kernels/copy.hpp"
#include "matmul/merged_linear.hpp"
#include "matmul/prepared_rows.hpp"
#include "own_values.hpp"
#include "task.hpp"
#include "touch.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include <fmt/format.h>

namespace tenon::cpu {
namespace {

constexpr std::int64_t alignment = 64;

std::int64_t aligned(std::int64_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

/// Tasks in order, with the barriers between them and the loops around them.
struct Node {
  std::unique_ptr<Task> task;   // null for loops
  bool barrier_before = false;  // waits for every thread to finish what came before
  bool alone = false;           // each thread does all of it for itself
  std::int64_t first = 0, count = 0;
  int depth = 0;
  std::vector<Node> body;
};

struct Int8FilterRequest {
  std::size_t constant;
  Int8FilterForm form;
  friend bool operator==(const Int8FilterRequest&, const Int8FilterRequest&) noexcept = default;
};

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

class PartitionCompiler final : public Compiler {
 public:
  /// `counts`: of the loops around the partition.
  PartitionCompiler(bool exact, int threads, std::size_t constants, const LoopSteps& counts)
      : exact_(exact),
        threads_(threads),
        packed_(constants, false),
        filters_(constants),
        counts_(counts) {}

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

  bool exact() const noexcept override { return exact_; }
  int threads() const noexcept override { return threads_; }
  std::int64_t scratch(std::int64_t bytes) override {
    return std::exchange(scratch_bytes_, aligned(scratch_bytes_ + bytes));
  }
  std::int64_t zeroed_scratch(std::int64_t bytes) override {
    return std::exchange(zeroed_bytes_, aligned(zeroed_bytes_ + bytes));
  }
  void working_memory(std::int64_t bytes) override {
    working_bytes_ = std::max(working_bytes_, aligned(bytes));
  }
  void pack(const Operand& weights) override {
    for (const std::size_t entry : entries_of(weights)) packed_[entry] = true;
  }
  bool pack_filter(const Operand& w, const FilterShape& shape) override {
    if (w.place.kind != Place::Kind::constant || w.place.offset != 0 ||
        w.place.byte_step != LoopSteps{} || !w.is_contiguous()) {
      return false;
    }
    const std::vector<std::size_t> entries = entries_of(w);
    const bool fits = std::ranges::all_of(
        entries, [&](std::size_t entry) { return !filters_[entry] || *filters_[entry] == shape; });
    if (!fits) return false;
    for (const std::size_t entry : entries) filters_[entry] = shape;
    return true;
  }
  std::size_t pack_int8_filter(const Operand& w, const Int8FilterForm& form) override {
    const Int8FilterRequest request{w.place.index, form};
    const auto found = std::ranges::find(int8_filters_, request);
    const auto number = static_cast<std::size_t>(found - int8_filters_.begin());
    if (found == int8_filters_.end()) int8_filters_.push_back(request);
    return number;
  }
  /// The constants that an operand is in one iteration or another.
  std::vector<std::size_t> entries_of(const Operand& weights) const {
    std::vector<std::int64_t> entries{weights.place.index};
    for (std::size_t d = 0; d < max_loop_depth; ++d) {
      if (weights.place.entry_step[d] == 0) continue;
      std::vector<std::int64_t> all;
      for (const std::int64_t entry : entries) {
        for (std::int64_t i = 0; i < counts_[d]; ++i)
          all.push_back(entry + i * weights.place.entry_step[d]);
      }
      entries = std::move(all);
    }
    return {entries.begin(), entries.end()};
  }
  void prepare_rows_of(const Operand& x, RowForm form, std::int64_t rows,
                       std::int64_t inputs) override {
    const bool own = TaskContext::has_own_prepared(rows);
    reads_prepared_ = !own;
    if (prepared_ && *prepared_ == x && prepared_form_ == form) return;
    std::int64_t& most = own ? own_prepared_bytes_ : prepared_bytes_;
    most = std::max(
        most, aligned(static_cast<std::int64_t>(PreparedRows::size_bytes(form, rows, inputs))));
    std::vector<Touch> reads, writes;
    if (is_memory(x)) reads.push_back(touch_of(x));
    if (!own) writes.push_back(prepared_touch);
    add_task(std::make_unique<PrepareTask>(x, form, rows, inputs, *even_row_step(x)), reads,
             writes);
    prepared_ = x;
    prepared_form_ = form;
  }

  std::int64_t shared_table(
      const OpInstance& meaning, std::span<const Operand> reads, std::int64_t bytes,
      const std::function<std::unique_ptr<Task>(std::int64_t)>& make) override {
    const bool is_fixed = std::ranges::none_of(
        reads, [this](const Operand& operand) { return changes_in_loops(operand); });
    for (const Table& table : tables_) {
      const bool same = table.meaning == meaning && std::ranges::equal(table.reads, reads);
      if (same && (is_fixed || table.depth == loops_.size())) {
        reads_tables_.push_back(table.touch);
        return table.offset;
      }
    }
    Table table{meaning, {reads.begin(), reads.end()}, scratch(bytes), {}, loops_.size()};
    table.touch = {Place::Kind::loop_index, 1, {table.offset, table.offset + bytes}};
    if (is_fixed && !loops_.empty()) {
      // Loops begin with a barrier, which stands between this task and its readers.
      Node node;
      node.task = make(table.offset);
      node.barrier_before = true;
      outermost_->push_back(std::move(node));
      table.depth = 0;
    } else {
      std::vector<Touch> touches;
      for (const Operand& operand : reads) {
        if (is_memory(operand)) touches.push_back(touch_of(operand));
      }
      add_task(make(table.offset), touches, {table.touch});
    }
    reads_tables_.push_back(table.touch);
    tables_.push_back(table);
    return table.offset;
  }

  std::int64_t scratch_bytes() const { return scratch_bytes_; }
  std::int64_t zeroed_bytes() const { return zeroed_bytes_; }
  std::int64_t prepared_bytes() const { return prepared_bytes_; }
  std::int64_t own_prepared_bytes() const { return own_prepared_bytes_; }
  std::int64_t working_bytes() const { return working_bytes_; }
  const std::vector<bool>& packed() const { return packed_; }
  const std::vector<std::optional<FilterShape>>& filters() const { return filters_; }
  const std::vector<Int8FilterRequest>& int8_filters() const { return int8_filters_; }

 private:
  /// Stands for the memory of the prepared rows.
  static constexpr Touch prepared_touch{Place::Kind::loop_index, 0, {0, 1}};

  struct Table {
    OpInstance meaning;
    std::vector<Operand> reads;
    std::int64_t offset;
    Touch touch;
    std::size_t depth;  // loops around the task that fills it
  };

  static bool writes_to(const Step& step, const Touch& touch) {
    if (step.kind != Step::Kind::loop) return overlap(touch_of(step.output), touch);
    return std::ranges::any_of(step.body,
                               [&](const Step& inner) { return writes_to(inner, touch); });
  }

  /// Whether an operand moves with the loops around this point, or is written in them.
  bool changes_in_loops(const Operand& operand) const {
    if (loops_.empty()) return false;
    if (operand.place.byte_step != LoopSteps{} || operand.place.entry_step != LoopSteps{} ||
        operand.place.kind == Place::Kind::loop_index) {
      return true;
    }
    return writes_to(*loops_.front(), touch_of(operand));
  }

  void add_step(const Step& step) {
    std::vector<Touch> reads;
    for (const Operand& input : step.inputs) {
      if (is_memory(input)) reads.push_back(touch_of(input));
    }
    const Touch write = touch_of(step.output);
    reads_prepared_ = false;
    reads_tables_.clear();
    std::unique_ptr<Task> task = step.kind == Step::Kind::copy
                                     ? make_copy(step)
                                     : kernel_of(step.op.def())->make(step, *this);
    if (reads_prepared_) reads.push_back(prepared_touch);
    reads.insert(reads.end(), reads_tables_.begin(), reads_tables_.end());
    const bool own = !is_memory(step.output);
    add_task(std::move(task), reads, own ? std::vector<Touch>() : std::vector{write});
    nodes_->back().alone = own;
    if (prepared_ && overlap(write, touch_of(*prepared_))) prepared_.reset();
    std::erase_if(tables_, [&](const Table& table) {
      return std::ranges::any_of(
          table.reads, [&](const Operand& operand) { return overlap(write, touch_of(operand)); });
    });
  }

  /// Appends a task, behind a barrier where it meets memory that unfinished tasks use.
  void add_task(std::unique_ptr<Task> task, const std::vector<Touch>& reads,
                const std::vector<Touch>& writes) {
    const auto clash = [](const std::vector<Touch>& a, const std::vector<Touch>& b) {
      return std::ranges::any_of(a, [&](const Touch& x) {
        return std::ranges::any_of(b, [&](const Touch& y) { return overlap(x, y); });
      });
    };
    Node node;
    node.barrier_before = clash(reads, written_) || clash(writes, written_) || clash(writes, read_);
    if (node.barrier_before) forget_touches();
    read_.insert(read_.end(), reads.begin(), reads.end());
    written_.insert(written_.end(), writes.begin(), writes.end());
    node.task = std::move(task);
    nodes_->push_back(std::move(node));
  }

  /// Every iteration begins behind a barrier, and so does what follows the loop.
  void add_loop(const Step& step) {
    Node node;
    node.first = step.first;
    node.count = step.count;
    node.depth = step.depth;
    counts_[static_cast<std::size_t>(step.depth)] = step.count;
    prepared_.reset();
    forget_touches();
    loops_.push_back(&step);
    node.body = compile(step.body);
    loops_.pop_back();
    std::erase_if(tables_, [this](const Table& table) { return table.depth > loops_.size(); });
    prepared_.reset();
    forget_touches();
    nodes_->push_back(std::move(node));
  }

  void forget_touches() {
    written_.clear();
    read_.clear();
  }

  bool exact_;
  int threads_;
  std::vector<bool> packed_;
  std::vector<std::optional<FilterShape>> filters_;
  std::vector<Int8FilterRequest> int8_filters_;
  LoopSteps counts_;                // how often each loop runs
  std::vector<const Step*> loops_;  // around this point, outermost first
  std::vector<Node>* nodes_ = nullptr;
  std::vector<Node>* outermost_ = nullptr;
  std::int64_t scratch_bytes_ = 0;
  std::int64_t zeroed_bytes_ = 0;
  std::int64_t prepared_bytes_ = 0;
  std::int64_t own_prepared_bytes_ = 0;  // of each thread
  std::int64_t working_bytes_ = 0;       // of each thread
  std::optional<Operand> prepared_;      // whose rows are prepared at this point
  RowForm prepared_form_ = RowForm::int8;
  bool reads_prepared_ = false;
  std::vector<Table> tables_;          // filled at this point
  std::vector<Touch> reads_tables_;    // of them, by the step that is being compiled
  std::vector<Touch> written_, read_;  // since the last barrier
};

/// What a partition is made of, shared by its bindings.
struct Compiled {
  std::vector<Node> nodes;
  std::vector<bool> packed;  // by constant
  std::vector<std::optional<FilterShape>> filters;
  std::vector<Int8FilterRequest> int8_filters;
  std::vector<ConstantSlot> constants;
  std::vector<std::string> notes;
  std::int64_t scratch_bytes = 0, zeroed_bytes = 0, prepared_bytes = 0;
  std::int64_t own_prepared_bytes = 0, working_bytes = 0, own_value_bytes = 0;  // of each thread
  std::shared_ptr<ThreadPool> pool;
};

class CpuBoundPartition final : public BoundPartition {
 public:
  CpuBoundPartition(std::shared_ptr<const Compiled> compiled,
                    std::vector<std::shared_ptr<const PackedWeights>> packed,
                    std::vector<std::shared_ptr<const PackedFilter>> filters,
                    std::vector<std::shared_ptr<const PackedInt8Filter>> int8_filters)
      : compiled_(std::move(compiled)),
        owned_(std::move(packed)),
        owned_filters_(std::move(filters)),
        owned_int8_filters_(std::move(int8_filters)) {
    for (const auto& filter : owned_int8_filters_) int8_filters_.push_back(filter.get());
    for (const auto& weights : owned_) packed_.push_back(weights.get());
    for (const auto& filter : owned_filters_) {
      filters_.push_back(filter == nullptr ? nullptr : filter->elements());
    }
  }

  void run(HostFrame& shared) const override {
    std::byte* const zeroed = shared.scratch;
    std::byte* const prepared = zeroed + compiled_->zeroed_bytes;
    std::byte* const scratch = prepared + compiled_->prepared_bytes;
    std::byte* const own_prepared = scratch + compiled_->scratch_bytes;
    const int threads = compiled_->pool->threads();
    std::byte* const working = own_prepared + threads * compiled_->own_prepared_bytes;
    std::byte* const own_values = working + threads * compiled_->working_bytes;
    if (compiled_->zeroed_bytes > 0) std::fill_n(zeroed, compiled_->zeroed_bytes, std::byte{0});
    Fault fault;
    compiled_->pool->run([&](Worker& worker) {
      HostFrame frame = shared;  // iterations are each thread's own
      frame.scratch = own_values + worker.thread * compiled_->own_value_bytes;
      const TaskContext context{frame,
                                worker,
                                packed_,
                                filters_,
                                int8_filters_,
                                fault,
                                scratch,
                                zeroed,
                                prepared,
                                own_prepared,
                                compiled_->own_prepared_bytes,
                                working,
                                compiled_->working_bytes};
      TaskContext alone = context;
      alone.alone = true;
      run_nodes(compiled_->nodes, frame, {context, alone});
    });
    if (fault.reported()) {
      throw Error(fault.code(), "cpu",
                  fmt::format("{} {} outside [0, {})", fault.op(), fault.value(), fault.limit()));
    }
  }

 private:
  struct Contexts {
    const TaskContext& shared;  // of tasks that threads share the work of
    const TaskContext& alone;
  };
  static void run_nodes(const std::vector<Node>& nodes, HostFrame& frame,
                        const Contexts& contexts) noexcept {
    Barrier& barrier = contexts.shared.worker.barrier;
    for (const Node& node : nodes) {
      if (node.task) {
        if (node.barrier_before) barrier.wait();
        node.task->run(node.alone ? contexts.alone : contexts.shared);
        continue;
      }
      const auto depth = static_cast<std::size_t>(node.depth);
      for (std::int64_t i = 0; i < node.count; ++i) {
        barrier.wait();
        frame.iteration[depth] = i;
        frame.loop_index[depth] = node.first + i;
        run_nodes(node.body, frame, contexts);
      }
      frame.iteration[depth] = 0;
      barrier.wait();
    }
  }

  std::shared_ptr<const Compiled> compiled_;
  std::vector<std::shared_ptr<const PackedWeights>> owned_;
  std::vector<const PackedWeights*> packed_;
  std::vector<std::shared_ptr<const PackedFilter>> owned_filters_;
  std::vector<const float*> filters_;
  std::vector<std::shared_ptr<const PackedInt8Filter>> owned_int8_filters_;
  std::vector<const PackedInt8Filter*> int8_filters_;
};

class CpuPartition final : public Partition {
 public:
  explicit CpuPartition(std::shared_ptr<const Compiled> compiled)
      : compiled_(std::move(compiled)) {}

  std::int64_t scratch_bytes() const override {
    return compiled_->zeroed_bytes + compiled_->prepared_bytes + compiled_->scratch_bytes +
           compiled_->pool->threads() * (compiled_->own_prepared_bytes + compiled_->working_bytes +
                                         compiled_->own_value_bytes);
  }

  std::unique_ptr<BoundPartition> bind(const BoundConstants& constants) const override {
    std::vector<std::shared_ptr<const PackedWeights>> packed(compiled_->constants.size());
    for (std::size_t i = 0; i < packed.size(); ++i) {
      if (!compiled_->packed[i]) continue;
      const ConstantSlot& slot = compiled_->constants[i];
      packed[i] = std::static_pointer_cast<const PackedWeights>(constants.prepared.get(
          "cpu/packed/" + slot.name,
          [&]() -> std::shared_ptr<const void> { return pack(constants.buffers[i].to_host()); }));
    }
    return std::make_unique<CpuBoundPartition>(
        compiled_, std::move(packed), bind_filters(constants), bind_int8_filters(constants));
  }
  std::vector<std::string> notes() const override { return compiled_->notes; }

 private:
  /// The rows in their packed form. What is packed leaves memory piece by piece, so that there
  /// never are two copies of a large weight.
  std::shared_ptr<const PackedWeights> pack(const HostBuffer& rows) const {
    constexpr std::int64_t piece_bytes = std::int64_t{8} << 20;
    const Shape& shape = rows.shape();
    auto weights = std::make_shared<PackedWeights>(shape.dtype(), shape[0], shape[1]);
    const std::int64_t panel_bytes =
        std::max<std::int64_t>(1, shape.bytes() / std::max<std::int64_t>(1, weights->panels()));
    const std::int64_t piece = std::max<std::int64_t>(1, piece_bytes / panel_bytes);
    for (std::int64_t begin = 0; begin < weights->panels(); begin += piece) {
      const Range panels{begin, std::min(begin + piece, weights->panels())};
      compiled_->pool->run([&](Worker& worker) {
        weights->pack(rows.bytes(), panels, worker.thread, worker.threads);
      });
      rows.slice(0, panels.begin * panel_rows, std::min(panels.end * panel_rows, shape[0]))
          .release_pages();
    }
    return weights;
  }

  std::vector<std::shared_ptr<const PackedFilter>> bind_filters(
      const BoundConstants& constants) const {
    std::vector<std::shared_ptr<const PackedFilter>> filters(compiled_->constants.size());
    for (std::size_t i = 0; i < filters.size(); ++i) {
      if (!compiled_->filters[i]) continue;
      const FilterShape& shape = *compiled_->filters[i];
      const std::string key = fmt::format("cpu/filter/{}/{} in {}", compiled_->constants[i].name,
                                          to_string(shape.file_shape()), shape.groups);
      filters[i] = std::static_pointer_cast<const PackedFilter>(
          constants.prepared.get(key, [&]() -> std::shared_ptr<const void> {
            auto filter = std::make_shared<PackedFilter>(shape);
            const HostBuffer rows = constants.buffers[i].to_host();
            const HostView w(rows.view().data, shape.file_shape());
            compiled_->pool->run(
                [&](Worker& worker) { filter->pack(w, worker.thread, worker.threads); });
            rows.release_pages();
            return filter;
          }));
    }
    return filters;
  }

  std::vector<std::shared_ptr<const PackedInt8Filter>> bind_int8_filters(
      const BoundConstants& constants) const {
    std::vector<std::shared_ptr<const PackedInt8Filter>> filters;
    for (const auto& [constant, form] : compiled_->int8_filters) {
      const std::string key = fmt::format(
          "cpu/int8 filter/{}/{} in {}, joined {}, to {}", compiled_->constants[constant].name,
          to_string(form.shape.file_shape()), form.shape.groups, form.joined, form.limit);
      const auto make = [&]() -> std::shared_ptr<const void> {
        auto filter = std::make_shared<PackedInt8Filter>(form);
        const HostBuffer rows = constants.buffers[constant].to_host();
        const HostView w(rows.view().data, form.shape.file_shape());
        compiled_->pool->run(
            [&](Worker& worker) { filter->pack(w, worker.thread, worker.threads); });
        rows.release_pages();
        return filter;
      };
      filters.push_back(
          std::static_pointer_cast<const PackedInt8Filter>(constants.prepared.get(key, make)));
    }
    return filters;
  }

  std::shared_ptr<const Compiled> compiled_;
};

/// How often the loops run that are around `steps`, a stretch of the program's steps or of a
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

}  // namespace

std::unique_ptr<Partition> compile_partition(const Lowered& program, std::span<const Step> steps,
                                             std::shared_ptr<ThreadPool> pool, bool exact,
                                             const quant::CalibrationTable* int8) {
  LoopSteps counts{};
  find_loops_around(program.steps, steps, counts);
  PartitionCompiler compiler(exact, pool->threads(), program.constants.size(), counts);
  std::vector<Step> own(steps.begin(), steps.end());
  const std::vector<Operand> leaves = edges(program, steps).writes;
  merge_convolutions(own, leaves);
  auto compiled = std::make_shared<Compiled>();
  if (int8 != nullptr) {
    quantize_convolutions(own, leaves, program, steps, *int8, compiled->notes);
  }
  merge_linears(own, leaves);
  put_channels_last(own, leaves);
  split_batches(own);
  const bool is_shared = pool->threads() > 1;
  const std::int64_t own_value_bytes = is_shared ? keep_own_values(program, steps, own) : 0;
  compiled->nodes = compiler.compile(own);
  compiled->packed = compiler.packed();
  compiled->filters = compiler.filters();
  compiled->int8_filters = compiler.int8_filters();
  compiled->constants = program.constants;
  compiled->scratch_bytes = compiler.scratch_bytes();
  compiled->zeroed_bytes = compiler.zeroed_bytes();
  compiled->prepared_bytes = compiler.prepared_bytes();
  compiled->own_prepared_bytes = compiler.own_prepared_bytes();
  compiled->working_bytes = compiler.working_bytes();
  compiled->own_value_bytes = own_value_bytes;
  compiled->pool = std::move(pool);
  return std::make_unique<CpuPartition>(std::move(compiled));
}

}  // namespace tenon::cpu
