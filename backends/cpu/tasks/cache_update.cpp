#include "../elementwise/elementwise.hpp"
#include "../task.hpp"

#include <tenon/ops/cache_update.hpp>
#include <tenon/quant.hpp>

#include <cstring>

namespace tenon::cpu {
namespace {

class CacheUpdateTask final : public Task {
 public:
  explicit CacheUpdateTask(const Step& step)
      : cache_(step.inputs[0]),
        layer_(step.inputs[1]),
        x_(step.inputs[2]),
        position_(step.inputs[3]) {}

  void run(const TaskContext& context) const noexcept override {
    const std::int64_t layer = *context.pointer<const std::int64_t>(layer_);
    const std::int64_t past = *context.pointer<const std::int32_t>(position_);
    const std::int64_t queries = x_.shape[1], heads = x_.shape[2], size = x_.shape[3];
    if (layer < 0 || layer >= cache_.shape[0]) {
      context.fault.report(Errc::out_of_range, "cache_update: layer", layer, cache_.shape[0]);
      return;
    }
    if (past < 0 || past + queries > cache_.shape[3]) {
      context.fault.report(Errc::out_of_range, "cache_update: position", past,
                           cache_.shape[3] - queries + 1);
      return;
    }
    std::byte* const cache = context.pointer<std::byte>(cache_) + layer * cache_.strides[0];
    const std::byte* const x = context.pointer<const std::byte>(x_);
    const Range rows = context.share(x_.shape[0] * queries * heads);
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      const std::int64_t h = row % heads, s = row / heads % queries, b = row / heads / queries;
      const auto* from = reinterpret_cast<const float*>(x + b * x_.strides[0] + s * x_.strides[1] +
                                                        h * x_.strides[2]);
      std::byte* to =
          cache + b * cache_.strides[1] + h * cache_.strides[2] + (past + s) * cache_.strides[3];
      switch (cache_.shape.dtype()) {
        case DType::f64:
          std::memcpy(to, from, static_cast<std::size_t>(size) * sizeof(double));
          break;
        case DType::f16:
          f32_to_f16(from, reinterpret_cast<std::uint16_t*>(to), size);
          break;
        case DType::bf16:
          f32_to_bf16(from, reinterpret_cast<std::uint16_t*>(to), size);
          break;
        case DType::q8_0:
          tenon::quantize(DType::q8_0, from, to, size);
          break;
        default:
          std::memcpy(to, from, static_cast<std::size_t>(size) * sizeof(float));
      }
    }
  }

 private:
  Operand cache_, layer_, x_, position_;
};

std::optional<std::string> refuses_cache_update(const Step& step) {
  const DType cache = step.inputs[0].shape.dtype();
  const DType x = cache == DType::f64 ? DType::f64 : DType::f32;
  const bool is_taken = cache == DType::f64 || cache == DType::f16 || cache == DType::bf16 ||
                        cache == DType::f32 || cache == DType::q8_0;
  if (!is_taken) return "the cache is " + std::string(tenon::name(cache));
  if (auto why = needs_dtype(step.inputs[2], x, "x")) return why;
  if (auto why = needs_dense_rows(step.inputs[0], "the cache")) return why;
  return needs_dense_rows(step.inputs[2], "x");
}

}  // namespace

extern const Kernel cache_update_kernel;
constinit const Kernel cache_update_kernel{op_def<CacheUpdate>, refuses_cache_update,
                                           make_task<CacheUpdateTask>};

}  // namespace tenon::cpu
