#include "emulation/emulation.hpp"
#include "results.hpp"
#include "ways.hpp"

#include <tenon/backend.hpp>
#include <tenon/backends/cuda.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/device.hpp>
#include <tenon/optimize.hpp>
#include <tenon/session.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tenon::testing {
namespace {

std::shared_ptr<const WeightSet> weights_in(const RandomModel& model, MemRegion& region) {
  std::map<std::string, Buffer> weights;
  for (const auto& [name, value] : on_cpu(model.weights)) weights[name] = value.to(region);
  return std::make_shared<const WeightSet>(std::move(weights));
}

/// One way of running a program: the same bits twice, close to `wanted`.
struct Variant {
  std::string name;
  Program program;
  bool lies_on_device;  ///< inputs, which are given up, weights and results
  bool is_exact;
  std::optional<std::uint64_t> refused{};  ///< see Refusing
};

/// A backend that also refuses every fourth step, other ones with another seed: programs, and the bodies of their
/// loops, then run in parts on the device and in parts elsewhere.
class Refusing final : public Backend {
 public:
  Refusing(BackendPtr inner, std::uint64_t seed) : inner_(std::move(inner)), seed_(seed) {}

  std::string_view name() const noexcept override { return inner_->name(); }
  MemRegion& region() const override { return inner_->region(); }
  std::optional<std::string> refuses(const Step& step) const override {
    if ((std::hash<std::string>()(step.value) ^ seed_) % 4 == 0) return "one in four";
    return inner_->refuses(step);
  }
  std::unique_ptr<Partition> compile(const Lowered& program,
                                     std::span<const Step> steps) const override {
    return inner_->compile(program, steps);
  }
  bool wants_unrolled() const noexcept override { return inner_->wants_unrolled(); }

 private:
  BackendPtr inner_;
  std::uint64_t seed_;
};

/// Whether rows may be rounded to bf16 where nothing is to be exact: to be multiplied with weights of
/// 16 bits or of blocks.
bool may_round(const RandomModel& model) {
  const auto is_of_blocks = [](const HostBuffer& array) { return is_block(array.shape().dtype()); };
  return model.has_halves || std::ranges::any_of(model.inputs, is_of_blocks) ||
         std::ranges::any_of(model.weights, is_of_blocks,
                             [](const auto& weight) -> const HostBuffer& { return weight.second; });
}

void check(const RandomModel& model, const Variant& variant, const DevicePtr& device,
           const Results& wanted, bool is_tame, CheckCounts& counts) {
  MemRegion& region =
      variant.lies_on_device ? device->default_mem_region() : cpu_device()->default_mem_region();
  std::vector<BackendPtr> backends = device_backends(device, {.exact = variant.is_exact});
  backends.push_back(make_reference_backend({}));
  if (variant.refused) {
    backends.front() = std::make_shared<Refusing>(backends.front(), *variant.refused);
  }
  Session session(variant.program,
                  {.backends = backends, .results_on_device = variant.lies_on_device});
  session.bind(weights_in(model, region));
  if (!model.has_rare_types && !variant.refused) {
    ++counts.plain;
    if (!session.report(shapes_of(model.inputs)).fallbacks.empty()) ++counts.plain_fallbacks;
  }
  const Results first = on_host(session.forward(to_give_up(model.inputs, region)));
  const bool is_rounded = variant.is_exact ? model.has_halves : may_round(model);
  const double allowed = is_rounded ? 0.03 : 2e-4;
  if (is_tame) {
    const double error = largest_error(variant.name, first, wanted, allowed);
    counts.worst_exact = std::max(counts.worst_exact, error);
  }
  compare_bits(variant.name + ", run again",
               on_host(session.submit(to_give_up(model.inputs, region))), first);
  compare_bits(variant.name + ", in a fork", on_host(session.fork().forward(on_cpu(model.inputs))),
               first);
  counts.runs += 3;
}

DevicePtr device(const std::string& keys) {
  const char* const url = std::getenv("TENON_TEST_CUDA_DEVICE");
  return Device::open((url == nullptr ? "cuda:emulated" : url) + keys);
}

}  // namespace

void check_cuda(const RandomModelPlan& plan, CheckCounts& counts) {
  register_cuda_backend();
  cuda::register_emulation();
  const RandomModel model = make_random_model(plan);
  const Results wanted = run_reference(
      model.program, std::make_shared<const WeightSet>(on_cpu(model.weights)), model.inputs);
  const bool is_tame = is_finite(wanted);
  Program optimized = model.program;
  optimize(optimized);
  // Every other program multiplies few rows as digits.
  const bool has_digits = plan.seed % 2 != 0;
  const DevicePtr kernels = device(has_digits ? "?libraries=off&digits=on" : "?libraries=off");
  const DevicePtr libraries = device(has_digits ? "?digits=on" : "");
  check(model, {"cuda, as recorded", model.program, false, true}, kernels, wanted, is_tame, counts);
  check(model, {"cuda, in parts", optimized, true, true, plan.seed}, kernels, wanted, is_tame,
        counts);
  check(model, {"cuda, optimised", std::move(optimized), true, false}, libraries, wanted, is_tame,
        counts);
  for (const DevicePtr& one : {kernels, libraries}) {
    if (!one->default_mem_region().all_chunks().empty()) throw Failure{"memory is not given back"};
  }
}

}  // namespace tenon::testing
