#include "../elementwise/elementwise.hpp"
#include "../task.hpp"

#include <tenon/ops/embedding.hpp>
#include <tenon/quant.hpp>

#include <cstring>

namespace tenon::cpu {
namespace {

class EmbeddingTask final : public Task {
 public:
  explicit EmbeddingTask(const Step& step)
      : ids_(step.inputs[0]), table_(step.inputs[1]), y_(step.output) {}

  void run(const TaskContext& context) const noexcept override {
    const std::int64_t count = ids_.shape.elements(), size = table_.shape[1],
                       limit = table_.shape[0];
    const Range rows = context.share(count);
    const PackedWeights* packed =
        table_.place.kind == Place::Kind::constant ? context.packed_weights(table_) : nullptr;
    const auto* table = packed == nullptr ? context.pointer<const std::byte>(table_) : nullptr;
    auto* y = context.pointer<float>(y_);
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      const std::int64_t id = ids_.shape.dtype() == DType::i32
                                  ? context.pointer<const std::int32_t>(ids_)[row]
                                  : context.pointer<const std::int64_t>(ids_)[row];
      if (id < 0 || id >= limit) {
        context.fault.report(Errc::out_of_range, "embedding: id", id, limit);
        return;
      }
      if (packed != nullptr) {
        packed->dequantize_row(id, y + row * size);
      } else {
        dequantize(table_.shape.dtype(), table + id * table_.strides[0], y + row * size, size);
      }
    }
  }

 private:
  Operand ids_, table_, y_;
};

std::optional<std::string> refuses(const Step& step) {
  if (auto why = needs_dtype(step.output, DType::f32, "the output")) return why;
  if (auto why = needs_dense(step.inputs[0], "ids")) return why;
  return needs_dense_rows(step.inputs[1], "the table");
}

}  // namespace

extern const Kernel embedding_kernel;
constinit const Kernel embedding_kernel{op_def<Embedding>, refuses,
                                        [](const Step& step, Compiler&) -> std::unique_ptr<Task> {
                                          return std::make_unique<EmbeddingTask>(step);
                                        }};

}  // namespace tenon::cpu
