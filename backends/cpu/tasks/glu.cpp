#include "../elementwise/elementwise.hpp"
#include "../matmul/tiled_values.hpp"
#include "point_task.hpp"

#include <tenon/ops/glu.hpp>

#include <cstddef>

namespace tenon::cpu {
namespace {

class GluTask final : public PartwiseTask {
 public:
  GluTask(const Step& step, Compiler& compiler)
      : gate_(step.inputs[0]),
        up_(step.inputs[1]),
        y_(step.output),
        activation_(*find_unary(step.op.as<Glu>()->activation.text())),
        rows_(row_count(gate_.shape)),
        size_(row_size(gate_.shape)),
        gate_step_(*even_row_step(gate_)),
        up_step_(*even_row_step(up_)) {
    if (is_tiled(y_)) compiler.working_memory(size_ * 4);
  }
  void run(const TaskContext& context) const noexcept override {
    // One long row is divided into pieces, many rows by rows.
    const auto* gate = context.pointer<const float>(gate_);
    const auto* up = context.pointer<const float>(up_);
    if (is_tiled(y_)) return write_tiles(context, gate, up);
    auto* y = context.pointer<float>(y_);
    if (rows_ == 1) {
      const Range range = flat_share(context, size_);
      gated(activation_, gate + range.begin, up + range.begin, y + range.begin,
            range.end - range.begin);
      return;
    }
    const Range rows = context.share(rows_);
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      gated(activation_, gate + row * gate_step_, up + row * up_step_, y + row * size_, size_);
    }
  }

 private:
  void write_tiles(const TaskContext& context, const float* gate, const float* up) const noexcept {
    const PreparedRows tiles = tiles_of(y_, context.pointer<std::byte>(y_));
    auto* const row = reinterpret_cast<float*>(context.working_memory());
    const Range rows = context.share(rows_);
    for (std::int64_t i = rows.begin; i < rows.end; ++i) {
      gated(activation_, gate + i * gate_step_, up + i * up_step_, row, size_);
      round_row(row, tiles, i);
    }
  }

  Operand gate_, up_, y_;
  Unary activation_;
  std::int64_t rows_, size_, gate_step_, up_step_;
};

bool has_even_rows(const Operand& operand) {
  return operand.shape.dtype() == DType::f32 && !needs_even_rows(operand, "");
}

template <Unary activation>
void gated_block(const PointCall& call, const OpInstance&) noexcept {
  alignas(64) float gate[block_elements], up[block_elements];
  const auto spread = [&](int i, float* to) {
    const auto* x = static_cast<const float*>(call.x[i]);
    if (call.step[i] != 0) return x;
    std::fill_n(to, call.count, *x);
    return static_cast<const float*>(to);
  };
  gated(activation, spread(0, gate), spread(1, up), static_cast<float*>(call.y), call.count);
}

/// In the order of Unary.
constexpr PointFunction gated_blocks[] = {
#define CPU_UNARY(id, Struct) gated_block<Unary::id>,
#include "../elementwise/unary.def"
#undef CPU_UNARY
};

PointStep glu_point(const Step& step) {
  const Unary activation = *find_unary(step.op.as<Glu>()->activation.text());
  return {step, gated_blocks[static_cast<std::size_t>(activation)]};
}

std::optional<std::string> refuses_glu(const Step& step) {
  if (compute_type(step.output.shape.dtype()) != Compute::f32) return "not computed in f32";
  return std::nullopt;
}

bool takes_rows(const Step& step) {
  return has_even_rows(step.inputs[0]) && has_even_rows(step.inputs[1]) &&
         step.inputs[0].shape == step.inputs[1].shape;
}

bool glu_writes_tiles(const Step& step, std::int64_t size) {
  return takes_rows(step) && row_size(step.output.shape) == size;
}

std::unique_ptr<Task> make_glu(const Step& step, Compiler& compiler) {
  if (takes_rows(step)) {
    return std::make_unique<GluTask>(step, compiler);
  }
  return std::make_unique<PointTask>(glu_point(step), compiler);
}

}  // namespace

extern const Kernel glu_kernel;
constinit const Kernel glu_kernel{op_def<Glu>, refuses_glu, make_glu, glu_writes_tiles, glu_point};

}  // namespace tenon::cpu
