#include "partition.hpp"

#include "adapt.hpp"
#include "convolution/int8/quantize.hpp"
#include "convolution/layout.hpp"
#include "convolution/merge.hpp"
#include "convolution/split.hpp"
#include "matmul/layout.hpp"
#include "matmul/merged_linear.hpp"
#include "matmul/tiled_values.hpp"
#include "recomputed_values.hpp"
#include "schedule.hpp"

#include <tenon/error.hpp>
#include <tenon/prepare_progress.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tenon::cpu {
namespace {

/// What a partition is made of, shared by its bindings.
struct Compiled : Schedule {
  std::vector<ConstantSlot> constants;
  std::vector<std::string> notes;
  std::int64_t recomputed_bytes = 0;  // of each thread
  std::int64_t shared_bytes = 0;      // of values of one image at a time, and tiled ones
  std::shared_ptr<ThreadPool> pool;
};

class CpuBoundPartition final : public BoundPartition {
 public:
  CpuBoundPartition(std::shared_ptr<const Compiled> compiled,
                    std::vector<std::shared_ptr<const PackedWeights>> packed,
                    std::vector<const PackedWeights*> packed_constants,
                    std::vector<std::shared_ptr<const PackedFilter>> filters,
                    std::vector<std::shared_ptr<const PackedInt8Filter>> int8_filters)
      : compiled_(std::move(compiled)),
        owned_(std::move(packed)),
        packed_constants_(std::move(packed_constants)),
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
    std::byte* const recomputed = working + threads * compiled_->working_bytes;
    std::byte* const shared_values = recomputed + threads * compiled_->recomputed_bytes;
    if (compiled_->zeroed_bytes > 0) std::fill_n(zeroed, compiled_->zeroed_bytes, std::byte{0});
    if (shared.marks != nullptr) {
      shared.marks->reserve(shared.marks->size() + count_marks(compiled_->nodes) + 1);
    }
    FirstFault first;
    compiled_->pool->run_elastic([&](Worker& worker) {
      HostFrame frame = shared;  // iterations are each thread's own
      frame.scratch = recomputed + worker.id * compiled_->recomputed_bytes;
      frame.shared_scratch = shared_values;
      Fault fault;
      const TaskContext context{frame,        worker,
                                packed_,      packed_constants_,
                                filters_,     int8_filters_,
                                fault,        scratch,
                                zeroed,       prepared,
                                own_prepared, compiled_->own_prepared_bytes,
                                working,      compiled_->working_bytes};
      TaskContext alone = context;
      alone.alone = true;
      Walk walk{frame, context, alone, worker.id == 0 ? shared.marks : nullptr};
      walk.run(compiled_->nodes, {});
      if (walk.faulty != nullptr) first.take(fault, *walk.faulty);
    });
    if (shared.marks != nullptr)
      shared.marks->push_back({{}, {}, std::chrono::steady_clock::now()});
    if (first.node != nullptr) {
      throw Error(first.code, "cpu",
                  fmt::format("{} {} outside [0, {}), computing '{}'", first.op, first.value,
                              first.limit, fmt::join(first.node->values, ", ")));
    }
  }

 private:
  /// The fault of the thread that reported one first, for when all of them have ended.
  struct FirstFault {
    std::atomic<bool> is_taken{false};
    const Node* node = nullptr;
    Errc code = Errc::internal;
    const char* op = "";
    std::int64_t value = 0, limit = 0;

    void take(const Fault& fault, const Node& faulty) noexcept {
      if (is_taken.exchange(true)) return;
      node = &faulty;
      code = fault.code();
      op = fault.op();
      value = fault.value();
      limit = fault.limit();
    }
  };

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
    std::vector<StepMark>* marks;  // with room for all; null where no profile is kept
    const Node* faulty = nullptr;  // the first whose share of this thread met a fault

    /// False when this thread has been taken out of the region. `function`: see StepMark.
    bool run(const std::vector<Node>& nodes, std::string_view function) noexcept {
      Worker& worker = shared.worker;
      for (const Node& node : nodes) {
        if (node.task) {
          if (node.barrier_before && !worker.sync()) return false;
          if (marks != nullptr) {
            marks->push_back({function, node.values, std::chrono::steady_clock::now()});
          }
          node.task->run(node.alone ? alone : shared);
          if (shared.fault.reported() && faulty == nullptr) faulty = &node;
          continue;
        }
        const auto depth = static_cast<std::size_t>(node.depth);
        for (std::int64_t i = 0; i < node.count; ++i) {
          if (!worker.sync()) return false;
          frame.iteration[depth] = i;
          frame.loop_index[depth] = node.first + i;
          if (!run(node.body, node.function)) return false;
        }
        frame.iteration[depth] = 0;
        if (!worker.sync()) return false;
      }
      return true;
    }
  };

  std::shared_ptr<const Compiled> compiled_;
  std::vector<std::shared_ptr<const PackedWeights>> owned_;
  std::vector<const PackedWeights*> packed_;            // in the order of the requests
  std::vector<const PackedWeights*> packed_constants_;  // whole ones, by constant
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
                                         compiled_->recomputed_bytes) +
           compiled_->shared_bytes;
  }

  std::unique_ptr<BoundPartition> bind(const BoundConstants& constants) const override {
    std::vector<std::shared_ptr<const PackedWeights>> packed;
    std::vector<const PackedWeights*> whole(compiled_->constants.size(), nullptr);
    for (const PackRequest& request : compiled_->packed) {
      const ConstantSlot& constant = compiled_->constants[request.constant];
      const bool is_whole = request.is_whole(constant.shape);
      const std::string key =
          fmt::format("cpu/packed {}/{} {}{}", packed_layout, to_string(request.shape),
                      name_of(request.constant, constants), is_whole ? "" : place_text(request));
      packed.push_back(std::static_pointer_cast<const PackedWeights>(
          constants.prepared.get(key, [&]() -> std::shared_ptr<const void> {
            const HostBuffer rows = rows_of(request, constants.buffers[request.constant].to_host());
            return constant.folded ? pack(rows)
                                   : kept_or_packed(key, constant.name, rows, constants.prepared);
          })));
      if (is_whole) whole[request.constant] = packed.back().get();
    }
    return std::make_unique<CpuBoundPartition>(compiled_, std::move(packed), std::move(whole),
                                               bind_filters(constants),
                                               bind_int8_filters(constants));
  }
  std::vector<std::string> notes() const override { return compiled_->notes; }

 private:
  /// What tells a constant from all others of the weights. Those that a program made itself may be
  /// called the same in another program on the same weights: their contents tell them apart.
  std::string name_of(std::size_t constant, const BoundConstants& constants) const {
    const ConstantSlot& slot = compiled_->constants[constant];
    if (!slot.folded) return slot.name;
    const HostBuffer value = constants.buffers[constant].to_host().contiguous();
    const XXH128_hash_t digest =
        XXH3_128bits(value.bytes(), static_cast<std::size_t>(value.shape().bytes()));
    return fmt::format("{} {:016x}{:016x}", slot.name, digest.high64, digest.low64);
  }

  static std::string place_text(const PackRequest& view) {
    return fmt::format(
        " at {} by {}", view.offset,
        fmt::join(std::span(view.strides).first(static_cast<std::size_t>(view.shape.rank())), ","));
  }

  /// The rows that a request names, densely: of the constant itself where they lie so.
  static HostBuffer rows_of(const PackRequest& view, const HostBuffer& constant) {
    const DType dtype = view.shape.dtype();
    if (view.shape.elements() == 0) return HostBuffer::zeros(view.shape);
    if (is_contiguous(view.shape, view.strides) && constant.is_contiguous()) {
      const std::int64_t first = view.offset / block_bytes(dtype) * block_size(dtype);
      const std::int64_t all = constant.shape().elements();
      return constant.reshape({all})
          .slice(0, first, first + view.shape.elements())
          .reshape(view.shape.dims());
    }
    return HostBuffer::borrow(constant.view().data + view.offset, view.shape, view.strides)
        .contiguous();
  }

  std::shared_ptr<const PackedWeights> kept_or_packed(const std::string& key,
                                                      const std::string& name,
                                                      const HostBuffer& rows,
                                                      PreparedCache& prepared) const {
    const Shape& shape = rows.shape();
    const auto size = PackedWeights::packed_bytes(shape.dtype(), shape[0], shape[1]);
    if (auto kept = prepared.kept(key, size)) {
      PrepareProgress::advance(name, static_cast<std::uint64_t>(shape.bytes()));
      return std::make_shared<const PackedWeights>(PackedWeights::borrow(
          shape.dtype(), shape[0], shape[1], kept->bytes, std::move(kept->owner)));
    }
    auto weights = pack(rows, [&](std::int64_t bytes) {
      PrepareProgress::advance(name, static_cast<std::uint64_t>(bytes));
    });
    prepared.keep(key, {weights->bytes(), weights});
    return weights;
  }

  /// The rows in their packed form. What is packed leaves memory piece by piece, so that there
  /// never are two copies of a large weight. `advance` is told how many bytes each piece had.
  std::shared_ptr<const PackedWeights> pack(
      const HostBuffer& rows, const std::function<void(std::int64_t)>& advance = {}) const {
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
      const HostBuffer packed =
          rows.slice(0, panels.begin * panel_rows, std::min(panels.end * panel_rows, shape[0]));
      packed.release_pages();
      if (advance) advance(packed.shape().bytes());
    }
    return weights;
  }

  std::vector<std::shared_ptr<const PackedFilter>> bind_filters(
      const BoundConstants& constants) const {
    std::vector<std::shared_ptr<const PackedFilter>> filters(compiled_->constants.size());
    for (std::size_t i = 0; i < filters.size(); ++i) {
      if (!compiled_->filters[i]) continue;
      const FilterShape& shape = *compiled_->filters[i];
      const std::string key =
          fmt::format("cpu/filter/{}/{} in {}, form {}", name_of(i, constants),
                      to_string(shape.file_shape()), shape.groups, static_cast<int>(shape.form));
      filters[i] = std::static_pointer_cast<const PackedFilter>(
          constants.prepared.get(key, [&]() -> std::shared_ptr<const void> {
            auto filter = std::make_shared<PackedFilter>(shape);
            const HostBuffer rows = constants.buffers[i].to_host();
            const HostView w(rows.view().data, shape.file_shape());
            compiled_->pool->run(
                [&](Worker& worker) { filter->pack(w, worker.thread, worker.threads); });
            rows.release_pages();
            PrepareProgress::advance(compiled_->constants[i].name,
                                     static_cast<std::uint64_t>(rows.shape().bytes()));
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
          "cpu/int8 filter/{}/{} in {}, joined {}, to {}", name_of(constant, constants),
          to_string(form.shape.file_shape()), form.shape.groups, form.joined, form.limit);
      const auto make = [&]() -> std::shared_ptr<const void> {
        auto filter = std::make_shared<PackedInt8Filter>(form);
        const HostBuffer rows = constants.buffers[constant].to_host();
        const HostView w(rows.view().data, form.shape.file_shape());
        compiled_->pool->run(
            [&](Worker& worker) { filter->pack(w, worker.thread, worker.threads); });
        rows.release_pages();
        PrepareProgress::advance(compiled_->constants[constant].name,
                                 static_cast<std::uint64_t>(rows.shape().bytes()));
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
  std::vector<Step> own(steps.begin(), steps.end());
  const std::vector<Operand> leaves = edges(program, steps).writes;
  auto compiled = std::make_shared<Compiled>();
  compiled->shared_bytes = adapt_steps(own, 0, compiled->notes);
  merge_convolutions(own, leaves);
  if (int8 != nullptr) {
    quantize_convolutions(own, leaves, program, steps, *int8, compiled->notes);
  }
  merge_linears(program, steps, own);
  put_channels_last(own, leaves);
  compiled->shared_bytes = split_batches(own, leaves, compiled->shared_bytes);
  if (!exact) {
    compiled->shared_bytes = keep_values_tiled(program, steps, own, compiled->shared_bytes);
  }
  if (pool->threads() > 1) compiled->recomputed_bytes = recompute_small_values(program, steps, own);
  ScheduleOptions options;
  options.exact = exact;
  options.threads = pool->threads();
  options.constants = program.constants.size();
  find_loops_around(program.steps, steps, options.counts);
  static_cast<Schedule&>(*compiled) = make_schedule(own, options);
  compiled->constants = program.constants;
  compiled->pool = std::move(pool);
  return std::make_unique<CpuPartition>(std::move(compiled));
}

}  // namespace tenon::cpu
