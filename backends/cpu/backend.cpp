#include "adapt.hpp"
#include "cpu_features.hpp"
#include "isa_variable.hpp"
#include "partition.hpp"
#include "task.hpp"
#include "thread_pool.hpp"

#include <tenon/backend.hpp>
#include <tenon/backends/cpu.hpp>
#include <tenon/error.hpp>
#include <tenon/memory_errors.hpp>
#include <tenon/ops.hpp>
#include <tenon/worker_threads.hpp>

#include <algorithm>
#include <any>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <fmt/format.h>

namespace tenon {
namespace cpu {

#define CPU_KERNEL(id, Struct) extern const Kernel id##_kernel;
#include "kernels.def"
#undef CPU_KERNEL
// Of ops that only this backend makes.
extern const Kernel fused_points_kernel, gathered_sum_kernel, integer_product_kernel,
    linear_argmax_kernel, merged_conv2d_kernel, merged_linear_kernel, quantized_conv2d_kernel,
    quantized_mean_kernel, registered_kernel;

namespace {

constinit const Kernel* const kernel_list[] = {
#define CPU_KERNEL(id, Struct) &id##_kernel,
#include "kernels.def"
#undef CPU_KERNEL
    &fused_points_kernel,     &gathered_sum_kernel,   &integer_product_kernel,
    &linear_argmax_kernel,    &merged_conv2d_kernel,  &merged_linear_kernel,
    &quantized_conv2d_kernel, &quantized_mean_kernel, &registered_kernel,
};

class CpuBackend final : public Backend, public WorkerThreads {
 public:
  explicit CpuBackend(const BackendOptions& options)
      : with_{std::make_shared<ThreadPool>(checked_threads(options)), options.exact,
              min_shared_work()} {
    check_isa_variable();
    const auto* own = std::any_cast<Options>(&options.device);
    if (own != nullptr) int8_ = own->int8;
    if (with_.exact && int8_ != nullptr) {
      throw Error(Errc::bad_argument, "cpu",
                  "exact results and convolutions in int8 were asked for");
    }
  }

  std::string_view name() const noexcept override { return "cpu"; }
  MemRegion& region() const override { return cpu_device()->default_mem_region(); }

  std::optional<std::string> refuses(const Step& step) const override { return why_not_run(step); }

  std::unique_ptr<Partition> compile(const Lowered& program,
                                     std::span<const Step> steps) const override {
    return compile_partition(program, steps, with_, int8_.get());
  }

  /// Only the calibration is saved: everything else is packed weights.
  std::unique_ptr<Partition> restore(const Lowered& program, std::span<const Step> steps,
                                     std::span<const std::byte> saved) const override {
    if (with_.exact) {
      throw Error(Errc::incompatible, "cpu",
                  "saved with convolutions in int8, and exact results are asked for");
    }
    const std::string_view text(reinterpret_cast<const char*>(saved.data()), saved.size());
    const auto table = quant::CalibrationTable::from_text(text, "saved calibration");
    require_accepted(*this, steps);
    return compile_partition(program, steps, with_, &table);
  }

  std::map<std::string, std::string> properties() const override {
    return {{"isa", std::string(cpu::name(active_isa()))},
            {"threads", std::to_string(with_.pool->threads())},
            {"precision", with_.exact ? "exact" : "fast"},
            {"convolutions", int8_ != nullptr ? "int8" : "f32"}};
  }

  void share(std::int64_t count, const std::function<void(std::int64_t)>& run) const override {
    const auto run_some = [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) run(i);
    };
    const auto threads = std::min<std::int64_t>(count, ThreadPool::max_threads);
    with_.pool->run([&](Worker& worker) { worker.share(count, 1, run_some); },
                    static_cast<int>(threads));
  }

 private:
  static int checked_threads(const BackendOptions& options) {
    if (options.threads >= 0) return options.threads;
    throw Error(Errc::bad_argument, "cpu",
                fmt::format("threads is {}; 0 means one per CPU", options.threads));
  }

  PartitionOptions with_;
  std::shared_ptr<const quant::CalibrationTable> int8_;
};

}  // namespace

const Kernel* kernel_of(const OpDef* op) noexcept {
  for (const Kernel* kernel : kernel_list) {
    if (same_op(&kernel->op(), op)) return kernel;
  }
  return nullptr;
}

}  // namespace cpu

BackendPtr make_cpu_backend(const BackendOptions& options) {
  return with_memory_errors("cpu",
                            [&] { return std::make_shared<const cpu::CpuBackend>(options); });
}

void register_cpu_backend() { register_backend("cpu", make_cpu_backend); }

}  // namespace tenon
