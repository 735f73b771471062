// Rows that choose their weights: brought together by group, so that each group is a linear layer.
#include "../integer_math.hpp"
#include "../matmul/dense_blocking.hpp"
#include "../matmul/matmul.hpp"
#include "../matmul/pack_rows.hpp"
#include "../task.hpp"
#include "typed_matmul.hpp"

#include <tenon/ops/grouped_linear.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace tenon {

/// Names the tables below for Compiler::shared_table: the order of rows, and the rows in it; no op of
/// the registry.
struct GroupedRows {
  static constexpr std::string_view name = "grouped_rows";
  static constexpr int min_inputs = 1, max_inputs = 2;
  std::int64_t groups = 0;
  bool are_int8 = false;
  static constexpr auto fields =
      FieldList{field("groups", &GroupedRows::groups), field("are_int8", &GroupedRows::are_int8)};

  Shape infer(std::span<const Shape> in) const { return in[0]; }
};
TENON_DECLARE_OP(GroupedRows);
TENON_DEFINE_OP(grouped_rows, GroupedRows);

namespace cpu {
namespace {

/// Rows of one group that are multiplied together. More of them would not read weights less often:
/// kernels unpack a range of weights for about so many rows.
constexpr std::int64_t most_together = 128;

/// Some rows of one group: `rows` of them, from the `first` in the order of groups.
struct RowsOfGroup {
  std::int32_t group, first, rows;
};

/// In which order rows are computed, in memory of a run: [counts of groups][order][parts].
class RowOrder {
 public:
  RowOrder(std::int64_t rows, std::int64_t groups) : rows_(rows), groups_(groups) {}

  std::int64_t most_parts() const noexcept {
    return std::min(rows_, groups_ + rows_ / most_together);
  }
  std::int64_t bytes() const noexcept {
    return (groups_ + 1 + rows_ + 3 * most_parts()) *
           static_cast<std::int64_t>(sizeof(std::int32_t));
  }
  std::span<std::int32_t> counts(std::byte* memory) const noexcept {
    return {reinterpret_cast<std::int32_t*>(memory), static_cast<std::size_t>(groups_)};
  }
  std::int32_t& part_count(std::byte* memory) const noexcept {
    return reinterpret_cast<std::int32_t*>(memory)[groups_];
  }
  /// The number of each row before they were brought together.
  std::int32_t* order(std::byte* memory) const noexcept { return &part_count(memory) + 1; }
  RowsOfGroup* parts(std::byte* memory) const noexcept {
    return reinterpret_cast<RowsOfGroup*>(order(memory) + rows_);
  }
  std::span<const RowsOfGroup> filled_parts(std::byte* memory) const noexcept {
    return {parts(memory), static_cast<std::size_t>(part_count(memory))};
  }

  std::int64_t rows() const noexcept { return rows_; }
  std::int64_t groups() const noexcept { return groups_; }

 private:
  std::int64_t rows_, groups_;
};

/// Sorts rows by their group: on one thread, 2 ns a row.
class RowOrderTask final : public Task {
 public:
  RowOrderTask(const Operand& group, const RowOrder& order, std::int64_t table)
      : group_(group), order_(order), table_(table) {}

  void run(const TaskContext& context) const noexcept override {
    if (context.worker.thread != 0) return;
    std::byte* const memory = context.scratch(table_);
    const std::span<std::int32_t> counts = order_.counts(memory);
    std::ranges::fill(counts, 0);
    bool are_right = true;
    for (std::int64_t row = 0; row < order_.rows(); ++row) {
      const std::int64_t group = group_of(context, row);
      if (group < 0 || group >= order_.groups()) {
        context.fault.report(Errc::out_of_range, "grouped_linear: group", group, order_.groups());
        are_right = false;
        break;
      }
      ++counts[static_cast<std::size_t>(group)];
    }
    std::int32_t parts = 0, first = 0;
    for (std::int32_t g = 0; are_right && g < static_cast<std::int32_t>(counts.size()); ++g) {
      std::int32_t& count = counts[static_cast<std::size_t>(g)];
      const std::int32_t end = first + count;
      count = first;  // where the group's next row goes
      while (first < end) {
        const auto rows = std::min<std::int32_t>(end - first, most_together);
        order_.parts(memory)[parts++] = {g, first, rows};
        first += rows;
      }
    }
    order_.part_count(memory) =
        parts;  // none where a group is wrong: nobody reads what is not there
    for (std::int64_t row = 0; are_right && row < order_.rows(); ++row) {
      std::int32_t& next = counts[static_cast<std::size_t>(group_of(context, row))];
      order_.order(memory)[next++] = static_cast<std::int32_t>(row);
    }
  }

 private:
  std::int64_t group_of(const TaskContext& context, std::int64_t row) const noexcept {
    return group_.shape.dtype() == DType::i32 ? context.pointer<const std::int32_t>(group_)[row]
                                              : context.pointer<const std::int64_t>(group_)[row];
  }

  Operand group_;
  RowOrder order_;
  std::int64_t table_;
};

/// How the rows of a group meet its weights.
enum class GroupProduct : std::uint8_t {
  packed,       ///< packed weights, rows in f32
  packed_int8,  ///< packed weights, rows prepared for integer dot products
  f32,          ///< weights as they lie
  f64,
};

/// Rows of x in the order of groups, as their products read them. A part's rows begin at
/// `row_bytes()` times the number of its first.
class OrderedRows {
 public:
  OrderedRows(std::int64_t inputs, GroupProduct product) : inputs_(inputs), product_(product) {
    if (!are_int8()) {
      row_bytes_ = inputs * (product == GroupProduct::f64 ? 8 : 4);
      return;
    }
    std::int64_t most = 1;
    for (std::int64_t rows = 1; rows <= most_together; ++rows) {
      const std::size_t bytes = PreparedRows::size_bytes(RowForm::int8, rows, inputs);
      most = std::max(most, ceil_div(static_cast<std::int64_t>(bytes), rows));
    }
    row_bytes_ = ceil_div(most, 64) * 64;
  }

  std::int64_t inputs() const noexcept { return inputs_; }
  bool are_int8() const noexcept { return product_ == GroupProduct::packed_int8; }
  std::int64_t row_bytes() const noexcept { return row_bytes_; }
  std::byte* at(std::byte* memory, const RowsOfGroup& part) const noexcept {
    return memory + part.first * row_bytes_;
  }
  PreparedRows prepared(std::byte* memory, const RowsOfGroup& part) const noexcept {
    return {RowForm::int8, part.rows, inputs_, at(memory, part)};
  }

 private:
  std::int64_t inputs_, row_bytes_ = 0;
  GroupProduct product_;
};

class OrderedRowsTask final : public Task {
 public:
  /// `choices`: rows of y for each row of x.
  OrderedRowsTask(const Operand& x, std::int64_t choices, const RowOrder& order,
                  std::int64_t order_table, const OrderedRows& ordered, std::int64_t table)
      : x_(x),
        choices_(choices),
        x_step_(*even_row_step(x) * block_bytes(x.shape.dtype())),
        order_(order),
        order_table_(order_table),
        ordered_(ordered),
        table_(table) {}

  void run(const TaskContext& context) const noexcept override {
    std::byte* const order = context.scratch(order_table_);
    const std::int32_t* const numbers = order_.order(order);
    const std::span<const RowsOfGroup> parts = order_.filled_parts(order);
    const auto* x = context.pointer<const std::byte>(x_);
    const std::int64_t line = ordered_.inputs() * block_bytes(x_.shape.dtype());
    const Range range = context.share(static_cast<std::int64_t>(parts.size()));
    for (std::int64_t i = range.begin; i < range.end; ++i) {
      const RowsOfGroup& part = parts[static_cast<std::size_t>(i)];
      std::byte* const table = context.scratch(table_);
      std::byte* const rows =
          ordered_.are_int8() ? context.working_memory() : ordered_.at(table, part);
      for (std::int64_t r = 0; line > 0 && r < part.rows; ++r) {
        const std::byte* from = x + numbers[part.first + r] / choices_ * x_step_;
        std::memcpy(rows + r * line, from, static_cast<std::size_t>(line));
      }
      if (ordered_.are_int8()) {
        prepare_rows(reinterpret_cast<const float*>(rows), ordered_.inputs(),
                     ordered_.prepared(table, part), 0, 1);
      }
    }
  }

 private:
  Operand x_;
  std::int64_t choices_, x_step_;  // in bytes
  RowOrder order_;
  std::int64_t order_table_;
  OrderedRows ordered_;
  std::int64_t table_;
};

class GroupedLinearTask final : public Task {
 public:
  GroupedLinearTask(const Step& step, Compiler& compiler)
      : w_(step.inputs[1]),
        y_(step.output),
        outputs_(w_.shape[1]),
        product_(product_of(step, compiler)),
        order_(step.inputs[2].shape.elements(), w_.shape[0]),
        ordered_(w_.shape[2], product_) {
    const Operand &x = step.inputs[0], &group = step.inputs[2];
    if (step.op.as<GroupedLinear>()->has_bias) bias_ = step.inputs[3];
    const int last = group.shape.rank() - 1;
    const std::int64_t choices = x.shape[last] == 1 ? group.shape[last] : 1;
    if (is_packed()) packed_ = compiler.prepare(w_, pack_rows());
    order_table_ = compiler.shared_table(
        OpInstance(GroupedRows{order_.groups(), false}), {&group, 1}, order_.bytes(),
        [&](std::int64_t at) { return std::make_unique<RowOrderTask>(group, order_, at); });
    const std::array<Operand, 2> reads{x, group};
    rows_table_ = compiler.shared_table(
        OpInstance(GroupedRows{order_.groups(), ordered_.are_int8()}), reads,
        order_.rows() * ordered_.row_bytes(),
        [&](std::int64_t at) {
          return std::make_unique<OrderedRowsTask>(x, choices, order_, order_table_, ordered_, at);
        },
        order_table_);
    std::int64_t scratch = ordered_.are_int8() ? most_together * ordered_.inputs() * 4 : 0;
    for (std::int64_t rows = 1; rows <= std::min(order_.rows(), most_together); ++rows) {
      scratch = std::max(scratch, scratch_bytes(rows));
    }
    compiler.working_memory(sums_bytes + scratch);
  }

  void run(const TaskContext& context) const noexcept override {
    const auto parts = order_.filled_parts(context.scratch(order_table_));
    std::int64_t items = 0;
    for (const RowsOfGroup& part : parts) items += items_of(part);
    context.worker.share(items, 1, [&](std::int64_t begin, std::int64_t end) {
      std::int64_t first = 0;  // item of a part
      for (const RowsOfGroup& part : parts) {
        const std::int64_t count = items_of(part);
        for (std::int64_t i = std::max(begin, first); i < std::min(end, first + count); ++i) {
          multiply(context, part, i - first);
        }
        first += count;
        if (first >= end) break;
      }
    });
  }

 private:
  static constexpr std::int64_t unit = 2 * panel_rows;  // the width of a tile
  static constexpr std::int64_t most_sums = 8192;       // which stay in L1
  static constexpr std::int64_t sums_bytes = most_sums * std::int64_t{8};
  static_assert(most_sums / most_together >= unit);

  static GroupProduct product_of(const Step& step, const Compiler& compiler) {
    const Operand& w = step.inputs[1];
    if (step.output.shape.dtype() == DType::f64) return GroupProduct::f64;
    if (!are_groups_packed(w)) return GroupProduct::f32;
    const bool is_int8 = !compiler.exact() &&
                         PreparedRows::form_for(w.shape.dtype(), 1, w.shape[2]) == RowForm::int8;
    return is_int8 ? GroupProduct::packed_int8 : GroupProduct::packed;
  }
  bool is_packed() const noexcept {
    return product_ == GroupProduct::packed || product_ == GroupProduct::packed_int8;
  }

  /// A single row's columns are as many as give all threads some.
  std::int64_t columns_at_once(std::int64_t rows) const noexcept {
    if (rows > 1) return most_sums / rows / unit * unit;
    return std::clamp<std::int64_t>(ceil_div(outputs_, 16 * unit), 1, 32) * unit;
  }
  std::int64_t items_of(const RowsOfGroup& part) const noexcept {
    return ceil_div(outputs_, columns_at_once(part.rows));
  }

  /// What the product of so many rows needs besides the sums.
  std::int64_t scratch_bytes(std::int64_t rows) const noexcept {
    const std::int64_t columns = columns_at_once(rows);
    std::size_t bytes = 0;
    if (product_ == GroupProduct::packed) {
      bytes = dense_scratch_bytes({w_.shape.dtype(), rows, columns, ordered_.inputs()}, false);
    } else if (product_ == GroupProduct::f32) {
      MatmulArgs args;
      args.m = rows;
      args.n = columns;
      args.k = ordered_.inputs();
      bytes = matmul_scratch_bytes(args);
    } else if (product_ == GroupProduct::f64) {
      bytes = static_cast<std::size_t>(product_f64_bytes());
    }
    return static_cast<std::int64_t>(bytes);
  }

  /// The `item`-th range of columns of a part's rows.
  void multiply(const TaskContext& context, const RowsOfGroup& part,
                std::int64_t item) const noexcept {
    const std::int64_t width = columns_at_once(part.rows), column = item * width;
    const Range columns{column, std::min(column + width, outputs_)};
    if (product_ == GroupProduct::f64) {
      auto* const sums = reinterpret_cast<double*>(context.working_memory());
      multiply_f64(context, part, columns, sums, width);
      spread(context, part, columns, sums, width, bias_);
    } else if (product_ == GroupProduct::f32) {
      auto* const sums = reinterpret_cast<float*>(context.working_memory());
      multiply_f32(context, part, columns, sums, width);
      spread(context, part, columns, sums, width, bias_);
    } else if (part.rows == 1) {
      auto* const y = context.pointer<float>(y_) + numbers_of(context, part)[0] * outputs_ + column;
      multiply_packed(context, part, columns, y, outputs_);
    } else {
      auto* const sums = reinterpret_cast<float*>(context.working_memory());
      multiply_packed(context, part, columns, sums, width);
      spread(context, part, columns, sums, width, {});
    }
  }

  void multiply_packed(const TaskContext& context, const RowsOfGroup& part, Range columns, float* y,
                       std::int64_t y_stride) const noexcept {
    const std::int64_t first = part.group * outputs_;
    const PackedWeights weights =
        context.constant<PackedWeights>(packed_).rows(first + columns.begin, first + columns.end);
    PreparedRows prepared;
    LinearArgs args;
    args.weights = &weights;
    args.rows = part.rows;
    args.y = y;
    args.y_stride = y_stride;
    args.scratch = context.working_memory() + sums_bytes;
    if (ordered_.are_int8()) {
      prepared = ordered_.prepared(context.scratch(rows_table_), part);
      args.prepared = &prepared;
    } else {
      args.x = rows_of<float>(context, part);
      args.x_stride = ordered_.inputs();
    }
    if (bias_) args.bias = context.pointer<const float>(*bias_) + first + columns.begin;
    linear_range(args, 0, linear_items(args));
  }

  void multiply_f32(const TaskContext& context, const RowsOfGroup& part, Range columns, float* sums,
                    std::int64_t stride) const noexcept {
    MatmulArgs args;
    args.m = part.rows;
    args.n = columns.end - columns.begin;
    args.k = ordered_.inputs();
    args.a = rows_of<float>(context, part);
    args.a_row = ordered_.inputs();
    args.b = weights_of<float>(context, part, columns);
    args.b_row = w_.strides[2] / 4;
    args.b_column = w_.strides[1] / 4;
    args.c = sums;
    args.c_row = stride;
    args.scratch = context.working_memory() + sums_bytes;
    matmul(args, 0, 1);
  }

  void multiply_f64(const TaskContext& context, const RowsOfGroup& part, Range columns,
                    double* sums, std::int64_t stride) const noexcept {
    const ProductF64 product{.m = part.rows,
                             .n = columns.end - columns.begin,
                             .k = ordered_.inputs(),
                             .a = rows_of<double>(context, part),
                             .a_row = ordered_.inputs(),
                             .a_column = 1,
                             .b = weights_of<double>(context, part, columns),
                             .b_row = w_.strides[2] / 8,
                             .b_column = w_.strides[1] / 8,
                             .c = sums,
                             .c_row = stride};
    cpu::multiply(product, context.working_memory() + sums_bytes);
  }

  template <class T>
  const T* rows_of(const TaskContext& context, const RowsOfGroup& part) const noexcept {
    return reinterpret_cast<const T*>(ordered_.at(context.scratch(rows_table_), part));
  }
  template <class T>
  const T* weights_of(const TaskContext& context, const RowsOfGroup& part,
                      Range columns) const noexcept {
    return reinterpret_cast<const T*>(context.pointer<const std::byte>(w_) +
                                      part.group * w_.strides[0] + columns.begin * w_.strides[1]);
  }
  const std::int32_t* numbers_of(const TaskContext& context,
                                 const RowsOfGroup& part) const noexcept {
    return order_.order(context.scratch(order_table_)) + part.first;
  }

  /// Stores the rows where they belong, with `bias` added.
  template <class T>
  void spread(const TaskContext& context, const RowsOfGroup& part, Range columns, const T* sums,
              std::int64_t stride, const std::optional<Operand>& bias) const noexcept {
    const std::int32_t* const numbers = numbers_of(context, part);
    const T* const added = bias ? context.pointer<const T>(*bias) + part.group * outputs_ : nullptr;
    for (std::int64_t r = 0; r < part.rows; ++r) {
      T* const y = context.pointer<T>(y_) + numbers[r] * outputs_;
      const T* const from = sums + r * stride - columns.begin;
      for (std::int64_t n = columns.begin; n < columns.end; ++n) {
        y[n] = from[n] + (added != nullptr ? added[n] : T{0});
      }
    }
  }

  Operand w_, y_;
  std::optional<Operand> bias_;
  std::int64_t outputs_;
  GroupProduct product_;
  RowOrder order_;
  OrderedRows ordered_;
  PreparedIndex packed_;
  std::int64_t order_table_ = 0, rows_table_ = 0;
};

std::optional<std::string> refuses_grouped_linear(const Step& step) {
  const Operand &x = step.inputs[0], &w = step.inputs[1], &group = step.inputs[2];
  const DType dtype = step.output.shape.dtype() == DType::f64 ? DType::f64 : DType::f32;
  if (auto why = needs_dtype(x, dtype, "x")) return why;
  if (dtype == DType::f64 || !are_groups_packed(w)) {
    if (auto why = needs_dtype(w, dtype, "w, which is not packed,")) return why;
  }
  constexpr std::int64_t most = std::int64_t{1} << 30;  // their numbers are i32
  if (group.shape.elements() > most || w.shape[0] > most) return "more than 2^30 rows or groups";
  if (auto why = needs_even_rows(x, "x")) return why;
  if (auto why = needs_dense(group, "group")) return why;
  if (step.op.as<GroupedLinear>()->has_bias) {
    if (auto why = needs_dtype(step.inputs[3], dtype, "bias")) return why;
    return needs_dense(step.inputs[3], "bias");
  }
  return std::nullopt;
}

}  // namespace

extern const Kernel grouped_linear_kernel;
constinit const Kernel grouped_linear_kernel{op_def<GroupedLinear>, refuses_grouped_linear,
                                             make_task<GroupedLinearTask>};

}  // namespace cpu
}  // namespace tenon
