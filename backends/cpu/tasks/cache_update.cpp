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
        position_(step.inputs[3]) {
    if (step.op.as<CacheUpdate>()->has_table) table_ = step.inputs[4];
  }

  void run(const TaskContext& context) const noexcept override {
    const std::int64_t layer = *context.pointer<const std::int64_t>(layer_);
    const std::int64_t queries = x_.shape[1], heads = x_.shape[2], size = x_.shape[3];
    if (layer < 0 || layer >= cache_.shape[0]) {
      context.fault.report(Errc::out_of_range, "cache_update: layer", layer, cache_.shape[0]);
      return;
    }
    const bool has_own = position_.shape.rank() == 1;
    const auto past_of = [&](std::int64_t b) {
      return std::int64_t{*reinterpret_cast<const std::int32_t*>(
          context.pointer<const std::byte>(position_) + (has_own ? b * position_.strides[0] : 0))};
    };
    const std::int64_t page_size = cache_.shape[3];
    const std::int64_t capacity = table_ ? page_size * table_->shape[1] : page_size;
    for (std::int64_t b = 0; b < (has_own ? x_.shape[0] : 1); ++b) {
      const std::int64_t past = past_of(b);
      if (past >= 0 && past + queries <= capacity) continue;
      context.fault.report(Errc::out_of_range, "cache_update: position", past,
                           capacity - queries + 1, has_own ? b : -1);
      return;
    }
    const auto page_of = [&](std::int64_t b, std::int64_t p) {
      return std::int64_t{*reinterpret_cast<const std::int32_t*>(
          context.pointer<const std::byte>(*table_) + b * table_->strides[0] +
          p / page_size * table_->strides[1])};
    };
    for (std::int64_t b = 0; table_ && b < x_.shape[0]; ++b) {  // before anything is written
      for (std::int64_t s = 0; s < queries; ++s) {
        const std::int64_t page = page_of(b, past_of(b) + s);
        if (page >= 0 && page < cache_.shape[1]) continue;
        context.fault.report(Errc::out_of_range, "cache_update: page", page, cache_.shape[1], b);
        return;
      }
    }
    std::byte* const cache = context.pointer<std::byte>(cache_) + layer * cache_.strides[0];
    const std::byte* const x = context.pointer<const std::byte>(x_);
    const Range rows = context.share(x_.shape[0] * queries * heads);
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      const std::int64_t h = row % heads, s = row / heads % queries, b = row / heads / queries;
      const auto* from = reinterpret_cast<const float*>(x + b * x_.strides[0] + s * x_.strides[1] +
                                                        h * x_.strides[2]);
      const std::int64_t p = past_of(b) + s;
      std::byte* to = cache + (table_ ? page_of(b, p) : b) * cache_.strides[1] +
                      h * cache_.strides[2] + (table_ ? p % page_size : p) * cache_.strides[3];
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
  std::optional<Operand> table_;
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
