#include "../elementwise/elementwise.hpp"
#include "../task.hpp"

#include <tenon/ops/embedding.hpp>
#include <tenon/quant.hpp>

#include <algorithm>
#include <cstring>
#include <optional>

namespace tenon::cpu {
namespace {

class EmbeddingTask final : public PartwiseTask {
 public:
  EmbeddingTask(const Step& step, Compiler& compiler)
      : ids_(step.inputs[0]), table_(step.inputs[1]), y_(step.output) {
    if (!is_copied()) compiler.prefer_packed(table_);
    if (is_wide()) compiler.working_memory(table_.shape[1] * 4);
  }

  void run(const TaskContext& context) const noexcept override {
    const std::int64_t count = ids_.shape.elements(), size = table_.shape[1],
                       limit = table_.shape[0];
    const Range rows = context.share(count);
    const std::optional<PackedTable> packed = is_copied() ? std::nullopt : packed_table(context);
    const auto* table = packed ? nullptr : context.pointer<const std::byte>(table_);
    const DType dtype = table_.shape.dtype();
    auto* const y = context.pointer<std::byte>(y_);
    const std::int64_t line = size * block_bytes(y_.shape.dtype());
    auto* const row_f32 = reinterpret_cast<float*>(context.working_memory());
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      const std::int64_t id = ids_.shape.dtype() == DType::i32
                                  ? context.pointer<const std::int32_t>(ids_)[row]
                                  : context.pointer<const std::int64_t>(ids_)[row];
      if (id < 0 || id >= limit) {
        context.fault.report(Errc::out_of_range, "embedding: id", id, limit);
        return;
      }
      std::byte* const to = y + row * line;
      if (is_copied()) {
        std::memcpy(to, table + id * table_.strides[0], static_cast<std::size_t>(line));
        continue;
      }
      float* const wide = is_wide() ? row_f32 : reinterpret_cast<float*>(to);
      if (packed) {
        packed->weights->dequantize_row(packed->first + id * packed->step, wide);
      } else {
        dequantize(dtype, table + id * table_.strides[0], wide, size);
      }
      if (is_wide()) std::copy_n(wide, size, reinterpret_cast<double*>(to));
    }
  }

 private:
  /// The table as rows first, first + step, ... of a constant that a linear layer has packed.
  struct PackedTable {
    const PackedWeights* weights;
    std::int64_t first, step;
  };

  /// Nothing where the constant is not packed, or the table's rows are no rows of it.
  std::optional<PackedTable> packed_table(const TaskContext& context) const noexcept {
    if (table_.place.kind != Place::Kind::constant || table_.shape.elements() == 0) {
      return std::nullopt;
    }
    const PackedWeights* weights =
        context.packed_constants[table_.place.entry_in(context.frame.iteration)];
    if (weights == nullptr || weights->inputs() != table_.shape[1]) return std::nullopt;
    const std::int64_t offset = table_.place.offset_in(context.frame.iteration);
    const DType dtype = table_.shape.dtype();
    const std::int64_t row_bytes = weights->inputs() / block_size(dtype) * block_bytes(dtype);
    if (offset % row_bytes != 0 || table_.strides[0] % row_bytes != 0) return std::nullopt;
    return PackedTable{weights, offset / row_bytes, table_.strides[0] / row_bytes};
  }

  bool is_wide() const noexcept { return y_.shape.dtype() == DType::f64; }
  /// Packed rows of f64 would be f32.
  bool is_copied() const noexcept { return is_wide() && table_.shape.dtype() == DType::f64; }

  Operand ids_, table_, y_;
};

std::optional<std::string> refuses_embedding(const Step& step) {
  if (step.output.shape.dtype() != DType::f64) {
    if (auto why = needs_dtype(step.output, DType::f32, "the output")) return why;
  }
  if (auto why = needs_dense(step.inputs[0], "ids")) return why;
  return needs_dense_rows(step.inputs[1], "the table");
}

}  // namespace

extern const Kernel embedding_kernel;
constinit const Kernel embedding_kernel{op_def<Embedding>, refuses_embedding,
                                        make_task<EmbeddingTask>};

}  // namespace tenon::cpu
