#include "../elementwise/elementwise.hpp"
#include "../task.hpp"

#include <tenon/ops/rope.hpp>

#include <cmath>

namespace tenon::cpu {
namespace {

class RopeTask final : public Task {
 public:
  RopeTask(const Step& step, Compiler& compiler)
      : x_(step.inputs[0]), positions_(step.inputs[1]), y_(step.output), op_(*step.op.as<Rope>()) {
    if (op_.has_freq_factors) factors_ = step.inputs[2];
    pairs_ = (op_.dims != 0 ? op_.dims : x_.shape[3]) / 2;
    frequencies_ = op_.frequencies(2 * pairs_);
    magnitude_ = op_.magnitude();
    tables_ = compiler.scratch(max_threads * 2 * pairs_ * static_cast<std::int64_t>(sizeof(float)));
  }

  void run(const TaskContext& context) const noexcept override {
    const std::int64_t heads = x_.shape[2], size = x_.shape[3];
    const Range rows = context.share(x_.shape[0] * x_.shape[1]);
    auto* cosines =
        reinterpret_cast<float*>(context.scratch(tables_)) + context.worker.thread * 2 * pairs_;
    float* sines = cosines + pairs_;
    const auto* factors = factors_ ? context.pointer<const float>(*factors_) : nullptr;
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      const std::int64_t s = row % x_.shape[1], b = row / x_.shape[1];
      const std::int64_t offset = positions_.shape.rank() == 1
                                      ? s * positions_.strides[0]
                                      : b * positions_.strides[0] + s * positions_.strides[1];
      const auto position = static_cast<double>(*reinterpret_cast<const std::int32_t*>(
          context.pointer<const std::byte>(positions_) + offset));
      for (std::int64_t i = 0; i < pairs_; ++i) {
        const double angle = position * frequencies_[static_cast<std::size_t>(i)] /
                             (factors != nullptr ? static_cast<double>(factors[i]) : 1.0);
        cosines[i] = static_cast<float>(std::cos(angle) * magnitude_);
        sines[i] = static_cast<float>(std::sin(angle) * magnitude_);
      }
      const std::byte* x =
          context.pointer<const std::byte>(x_) + b * x_.strides[0] + s * x_.strides[1];
      auto* y = context.pointer<float>(y_) + row * heads * size;
      for (std::int64_t h = 0; h < heads; ++h) {
        rotate_row(reinterpret_cast<const float*>(x + h * x_.strides[2]), cosines, sines, pairs_,
                   op_.interleaved, y + h * size, size);
      }
    }
  }

 private:
  static constexpr std::int64_t max_threads = ThreadPool::max_threads;
  Operand x_, positions_, y_;
  std::optional<Operand> factors_;
  Rope op_;
  std::int64_t pairs_ = 0;
  std::vector<double> frequencies_;
  double magnitude_ = 1;
  std::int64_t tables_ = 0;
};

std::optional<std::string> refuses(const Step& step) {
  if (auto why = needs_dtype(step.inputs[0], DType::f32, "x")) return why;
  if (step.inputs.size() > 2 && !is_dense(step.inputs[2])) return "freq_factors are strided";
  return needs_dense_rows(step.inputs[0], "x");
}

}  // namespace

extern const Kernel rope_kernel;
constinit const Kernel rope_kernel{
    op_def<Rope>, refuses, [](const Step& step, Compiler& compiler) -> std::unique_ptr<Task> {
      return std::make_unique<RopeTask>(step, compiler);
    }};

}  // namespace tenon::cpu
