#include "../attention/attention.hpp"

#include "../matmul/tiled_values.hpp"
#include "../task.hpp"
#include "real.hpp"
#include "typed_matmul.hpp"

#include <tenon/ops/attention.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

namespace tenon::cpu {
namespace {

std::int64_t element_step(const Operand& operand, int axis) {
  return operand.strides[static_cast<std::size_t>(axis)] / block_bytes(operand.shape.dtype());
}

/// What a step's sizes and attributes say: all but pointers and the mask's strides.
AttentionArgs args_of(const Step& step, bool fast) {
  const Operand &q = step.inputs[0], &k = step.inputs[1], &v = step.inputs[2];
  const auto& op = *step.op.as<Attention>();
  AttentionArgs args;
  args.queries = q.shape[1];
  args.keys = op.key_count(step.inputs);
  args.heads = q.shape[2];
  args.kv_heads = k.shape[2];
  args.head_dim = q.shape[3];
  args.value_dim = v.shape[3];
  args.q_row = element_step(q, 1);
  args.q_head = element_step(q, 2);
  args.k_row = element_step(k, 1);
  args.k_head = element_step(k, 2);
  args.v_row = element_step(v, 1);
  args.v_head = element_step(v, 2);
  if (op.has_table) {
    args.page_size = k.shape[1];
    args.k_page = element_step(k, 0);
    args.v_page = element_step(v, 0);
  }
  args.kv_dtype = k.shape.dtype();
  args.out_head = args.value_dim;
  args.out_row = args.heads * args.value_dim;
  args.scale = static_cast<float>(op.scale != 0 || args.head_dim == 0
                                      ? op.scale
                                      : 1.0 / std::sqrt(static_cast<double>(args.head_dim)));
  args.soft_cap = static_cast<float>(op.softcap);
  args.causal = op.causal;
  args.window = op.window;
  args.past = args.keys - args.queries;
  args.fast = fast && args.head_dim > 0;
  args.isa = active_isa();
  return args;
}

/// Where a batch stands among its keys: one position for all rows, or one for each.
class Positions {
 public:
  explicit Positions(const Operand& operand) : operand_(operand) {}

  bool are_own() const noexcept { return operand_.shape.rank() == 1; }
  std::int64_t past_of(const TaskContext& context, std::int64_t row) const noexcept {
    return *reinterpret_cast<const std::int32_t*>(context.pointer<const std::byte>(operand_) +
                                                  (are_own() ? row * operand_.strides[0] : 0));
  }
  /// Whether all of `queries` positions of each of `rows` are within the keys; reports the first
  /// that are not.
  bool fit(const TaskContext& context, std::int64_t rows, std::int64_t queries,
           std::int64_t keys) const noexcept {
    for (std::int64_t row = 0; row < (are_own() ? rows : 1); ++row) {
      const std::int64_t past = past_of(context, row), limit = keys - queries + 1;
      if (past >= 0 && past < limit) continue;
      context.fault.report(Errc::out_of_range, "attention: position", past, limit,
                           are_own() ? row : -1);
      return false;
    }
    return true;
  }

 private:
  Operand operand_;
};

/// Where the keys of each row of a batch are, in pages.
class PageTable {
 public:
  explicit PageTable(const Step& step)
      : op_(*step.op.as<Attention>()),
        table_(step.inputs[op_.table_index()]),
        keys_(op_.key_count(step.inputs)),
        queries_(step.inputs[0].shape[1]),
        pages_(step.inputs[1].shape[0]),
        page_size_(step.inputs[1].shape[1]) {}

  const std::int32_t* of_row(const TaskContext& context, std::int64_t row) const noexcept {
    return reinterpret_cast<const std::int32_t*>(context.pointer<const std::byte>(table_) +
                                                 row * table_.strides[0]);
  }
  /// Whether all pages exist that have keys which their row sees; reports the first that does not.
  bool has_seen_pages(const TaskContext& context,
                      const std::optional<Positions>& position) const noexcept {
    for (std::int64_t row = 0; row < table_.shape[0]; ++row) {
      const std::int64_t past = position ? position->past_of(context, row) : keys_ - queries_;
      const auto seen = [&](std::int64_t query) {
        return op_.visible_keys(past, query, queries_, keys_);
      };
      const std::int64_t begin = seen(0).begin, end = seen(queries_ - 1).end;
      if (begin >= end) continue;
      const std::int32_t* const pages = of_row(context, row);
      for (std::int64_t i = begin / page_size_; i <= (end - 1) / page_size_; ++i) {
        if (pages[i] >= 0 && pages[i] < pages_) continue;
        context.fault.report(Errc::out_of_range, "attention: page", pages[i], pages_, row);
        return false;
      }
    }
    return true;
  }

 private:
  Attention op_;
  Operand table_;
  std::int64_t keys_, queries_, pages_, page_size_;
};

/// What attention reads and writes, in any type.
class AttentionBase : public Task {
 protected:
  explicit AttentionBase(const Step& step)
      : q_(step.inputs[0]),
        k_(step.inputs[1]),
        v_(step.inputs[2]),
        y_(step.output),
        op_(*step.op.as<Attention>()) {
    if (op_.has_position) position_.emplace(step.inputs[3]);
    if (op_.has_mask) mask_ = step.inputs[op_.mask_index()];
    if (op_.has_sinks) sinks_ = step.inputs[op_.sinks_index()];
    if (op_.has_table) table_.emplace(step);
  }

  Operand q_, k_, v_, y_;
  Attention op_;
  std::optional<Positions> position_;
  std::optional<PageTable> table_;
  std::optional<Operand> mask_, sinks_;
};

class AttentionTask final : public AttentionBase {
 public:
  AttentionTask(const Step& step, Compiler& compiler) : AttentionBase(step) {
    batch_ = q_.shape[0];
    args_ = args_of(step, !compiler.exact());
    capacity_ = args_.keys;
    if (mask_) {
      const int rank = mask_->shape.rank();
      const auto step_from_end = [&](int from_end) {
        const int axis = rank - from_end;
        return axis < 0 || mask_->shape[axis] == 1 ? 0 : element_step(*mask_, axis);
      };
      args_.mask_row = step_from_end(2);
      args_.mask_head = step_from_end(3);
      mask_batch_ = step_from_end(4);
    }
    if (y_.shape.elements() == 0) return;
    workspace_bytes_ = static_cast<std::int64_t>(attention_workspace_bytes(args_));
    workspace_ = compiler.zeroed_scratch(workspace_bytes_ * batch_);
  }

  void run(const TaskContext& context) const noexcept override {
    AttentionArgs args = args_;
    if (sinks_) args.sinks = context.pointer<const float>(*sinks_);
    if (position_ && !position_->fit(context, batch_, args.queries, capacity_)) return;
    if (y_.shape.elements() == 0) return;
    if (table_ && !table_->has_seen_pages(context, position_)) return;
    for (std::int64_t b = 0; b < batch_; ++b) {
      const auto keys_at = [&](const Operand& operand) {
        return context.pointer<const std::byte>(operand) + (table_ ? 0 : b * operand.strides[0]);
      };
      if (position_) {
        args.past = position_->past_of(context, b);
        args.keys = args.past + args.queries;
      }
      args.q =
          reinterpret_cast<const float*>(context.pointer<const std::byte>(q_) + b * q_.strides[0]);
      args.k = keys_at(k_);
      args.v = keys_at(v_);
      if (table_) args.pages = table_->of_row(context, b);
      if (is_tiled(y_)) {
        args.tiled = {tiles_of(y_, context.pointer<std::byte>(y_)).tile(0, 0), b * args.queries};
      } else {
        args.out = context.pointer<float>(y_) + b * args.queries * args.out_row;
      }
      if (mask_) args.mask = context.pointer<const float>(*mask_) + b * mask_batch_;
      args.workspace = context.zeroed(workspace_ + b * workspace_bytes_);
      context.worker.share(attention_items(args), 1, [&](std::int64_t begin, std::int64_t end) {
        attention_range(args, begin, end);
      });
    }
  }

 private:
  AttentionArgs args_;
  std::int64_t batch_ = 0, capacity_ = 0, mask_batch_ = 0;
  std::int64_t workspace_ = 0, workspace_bytes_ = 0;
};

/// In f64, for blocks of queries of one head: all scores of a block, their softmax, the sums.
class AttentionF64Task final : public AttentionBase {
 public:
  AttentionF64Task(const Step& step, Compiler& compiler) : AttentionBase(step) {
    keys_ = op_.key_count(step.inputs);
    const std::int64_t size = q_.shape[3];
    scale_ = op_.scale != 0 || size == 0 ? op_.scale : 1 / std::sqrt(static_cast<double>(size));
    score_bytes_ = most_queries * keys_ * 8;
    if (table_) row_bytes_ = keys_ * std::max(size, v_.shape[3]) * 8;
    compiler.working_memory(score_bytes_ + row_bytes_ + product_f64_bytes());
  }

  void run(const TaskContext& context) const noexcept override {
    const std::int64_t queries = q_.shape[1], keys = keys_;
    if (position_ && !position_->fit(context, q_.shape[0], queries, keys)) return;
    if (y_.shape.elements() == 0) return;
    if (table_ && !table_->has_seen_pages(context, position_)) return;
    const std::int64_t heads = q_.shape[2];
    const std::int64_t blocks = (q_.shape[1] + most_queries - 1) / most_queries;
    const Range range = context.share(q_.shape[0] * heads * blocks);
    for (std::int64_t i = range.begin; i < range.end && !context.worker.is_interrupted(); ++i) {
      const std::int64_t batch = i / blocks / heads;
      const std::int64_t past = position_ ? position_->past_of(context, batch) : keys - queries;
      block(context, batch, i / blocks % heads, i % blocks * most_queries, past);
    }
  }

 private:
  static constexpr std::int64_t most_queries = 32;

  template <class T>
  static T* at(const TaskContext& context, const Operand& operand, std::int64_t batch,
               std::int64_t row, std::int64_t head) noexcept {
    return context.pointer<T>(operand) +
           (batch * operand.strides[0] + row * operand.strides[1] + head * operand.strides[2]) / 8;
  }

  struct Rows {
    const double* first;
    std::int64_t step;  ///< from row to row
  };
  /// Keys or values `range` of a head: where they are, or those of a table's pages copied together.
  Rows rows_of(const TaskContext& context, const Operand& operand, std::int64_t batch,
               std::int64_t head, Range range) const noexcept {
    if (!table_) {
      return {at<const double>(context, operand, batch, range.begin, head), operand.strides[1] / 8};
    }
    const std::int64_t page_size = operand.shape[1], size = operand.shape[3];
    const std::int32_t* const pages = table_->of_row(context, batch);
    auto* const rows = reinterpret_cast<double*>(context.working_memory() + score_bytes_);
    for (std::int64_t t = range.begin; t < range.end; ++t) {
      const double* const from =
          at<const double>(context, operand, pages[t / page_size], t % page_size, head);
      std::copy_n(from, size, rows + (t - range.begin) * size);
    }
    return {rows, size};
  }

  void block(const TaskContext& context, std::int64_t batch, std::int64_t head, std::int64_t first,
             std::int64_t past) const noexcept {
    const std::int64_t queries = q_.shape[1], keys = keys_;
    const std::int64_t count = std::min(most_queries, queries - first);
    const std::int64_t kv_head = head / (q_.shape[2] / k_.shape[2]);
    // The keys that any of these queries sees; others may be uninitialised.
    const auto seen = [&](std::int64_t s) { return op_.visible_keys(past, s, queries, keys); };
    const std::int64_t begin = seen(first).begin, end = seen(first + count - 1).end;
    const std::int64_t width = std::max<std::int64_t>(0, end - begin);
    auto* const scores = reinterpret_cast<double*>(context.working_memory());
    std::byte* const memory = context.working_memory() + score_bytes_ + row_bytes_;
    const Rows k = rows_of(context, k_, batch, kv_head, {begin, begin + width});
    multiply({.m = count,
              .n = width,
              .k = q_.shape[3],
              .a = at<const double>(context, q_, batch, first, head),
              .a_row = q_.strides[1] / 8,
              .a_column = 1,
              .b = k.first,
              .b_row = 1,
              .b_column = k.step,
              .c = scores,
              .c_row = width},
             memory);
    for (std::int64_t i = 0; i < count; ++i) {
      const auto range = seen(first + i);
      weigh(context, batch, head, first + i, {range.begin, range.end}, {begin, end},
            scores + i * width);
    }
    const Rows v = rows_of(context, v_, batch, kv_head, {begin, begin + width});
    multiply({.m = count,
              .n = v_.shape[3],
              .k = width,
              .a = scores,
              .a_row = width,
              .a_column = 1,
              .b = v.first,
              .b_row = v.step,
              .b_column = 1,
              .c = at<double>(context, y_, batch, first, head),
              .c_row = y_.strides[1] / 8},
             memory);
    mend(context, batch, head, first, count, {begin, end}, scores, v);
  }

  /// Products of a query and the keys `all` become weights; those outside of `seen` become 0.
  void weigh(const TaskContext& context, std::int64_t batch, std::int64_t head, std::int64_t query,
             Range seen, Range all, double* scores) const noexcept {
    constexpr double hidden = -std::numeric_limits<double>::infinity();
    const double sink =
        sinks_ ? static_cast<double>(*reinterpret_cast<const float*>(
                     context.pointer<const std::byte>(*sinks_) + head * sinks_->strides[0]))
               : hidden;
    double peak = sink;
    bool sees = false;
    for (std::int64_t t = seen.begin; t < seen.end; ++t) {
      double& score = scores[t - all.begin];
      score *= scale_;
      if (op_.softcap > 0) score = op_.softcap * std::tanh(score / op_.softcap);
      if (mask_) score += static_cast<double>(*mask_at(context, batch, head, query, t));
      peak = std::max(peak, score);
      sees = sees || score != hidden;  // a NaN is seen
    }
    double sum = sink == hidden ? 0 : sink == peak ? 1 : std::exp(sink - peak);
    for (std::int64_t t = all.begin; t < all.end; ++t) {
      double& score = scores[t - all.begin];
      const bool counts = sees && t >= seen.begin && t < seen.end && score != hidden;
      score = counts ? std::exp(score - peak) : 0.0;
      sum += score;
    }
    if (!sees) return;
    for (std::int64_t t = seen.begin; t < seen.end; ++t) scores[t - all.begin] /= sum;
  }

  /// A value of weight 0 does not count, even where it is not finite: rows of the result that a
  /// product with one has spoilt are computed again.
  void mend(const TaskContext& context, std::int64_t batch, std::int64_t head, std::int64_t first,
            std::int64_t count, Range all, const double* scores, Rows v) const noexcept {
    const std::int64_t size = v_.shape[3];
    for (std::int64_t i = 0; i < count; ++i, scores += all.end - all.begin) {
      double* const y = at<double>(context, y_, batch, first + i, head);
      if (std::all_of(y, y + size, [](double value) { return std::isfinite(value); })) continue;
      std::fill_n(y, size, 0.0);
      for (std::int64_t t = all.begin; t < all.end; ++t) {
        const double weight = scores[t - all.begin];
        if (weight == 0) continue;
        const double* value = v.first + (t - all.begin) * v.step;
        for (std::int64_t d = 0; d < size; ++d) y[d] += weight * value[d];
      }
    }
  }

  const float* mask_at(const TaskContext& context, std::int64_t batch, std::int64_t head,
                       std::int64_t query, std::int64_t key) const noexcept {
    const std::int64_t index[] = {batch, head, query, key};
    const int rank = mask_->shape.rank();
    std::int64_t offset = 0;
    for (int i = 0; i < rank; ++i) {
      if (mask_->shape[i] != 1) {
        offset += index[4 - rank + i] * mask_->strides[static_cast<std::size_t>(i)];
      }
    }
    return reinterpret_cast<const float*>(context.pointer<const std::byte>(*mask_) + offset);
  }

  double scale_ = 0;
  std::int64_t keys_ = 0, score_bytes_ = 0, row_bytes_ = 0;
};

std::unique_ptr<Task> make_attention(const Step& step, Compiler& compiler) {
  if (is_f64(step)) return std::make_unique<AttentionF64Task>(step, compiler);
  return std::make_unique<AttentionTask>(step, compiler);
}

std::optional<std::string> refuses_attention_f64(const Step& step) {
  for (std::size_t i = 0; i < 3; ++i) {
    if (auto why = needs_dtype(step.inputs[i], DType::f64, "q, k or v")) return why;
    if (auto why = needs_dense_rows(step.inputs[i], "q, k or v")) return why;
  }
  return std::nullopt;
}

std::optional<std::string> refuses_attention(const Step& step) {
  const auto& op = *step.op.as<Attention>();
  if (op.has_table) {
    if (auto why = needs_dense_rows(step.inputs[op.table_index()], "the table")) return why;
  }
  if (is_f64(step)) return refuses_attention_f64(step);
  if (auto why = needs_dtype(step.inputs[0], DType::f32, "q")) return why;
  const DType kv = step.inputs[1].shape.dtype();
  if (kv != DType::f32 && kv != DType::f16 && kv != DType::q8_0)
    return "keys are " + std::string(tenon::name(kv));
  for (std::size_t i = 0; i < 3; ++i) {
    if (auto why = needs_dense_rows(step.inputs[i], i == 0 ? "q" : i == 1 ? "k" : "v")) return why;
  }
  if (step.inputs[0].shape[3] > max_head_dim || step.inputs[2].shape[3] > max_head_dim) {
    return "heads wider than 512";
  }
  if (op.has_sinks) {
    if (auto why = needs_dense_rows(step.inputs[op.sinks_index()], "sinks")) return why;
  }
  if (op.has_mask) {
    const Operand& mask = step.inputs[op.mask_index()];
    const int rank = mask.shape.rank();
    if (rank == 0 || mask.shape[rank - 1] != op.key_count(step.inputs)) {
      return "the mask broadcasts along keys";
    }
    return needs_dense_rows(mask, "mask");
  }
  return std::nullopt;
}

bool attention_step_writes_tiles(const Step& step, std::int64_t row_size) {
  if (is_f64(step)) return false;
  const AttentionArgs args = args_of(step, true);
  return args.out_row == row_size && attention_writes_tiles(args);
}

}  // namespace

extern const Kernel attention_kernel;
constinit const Kernel attention_kernel{op_def<Attention>, refuses_attention, make_attention,
                                        attention_step_writes_tiles};

}  // namespace tenon::cpu
