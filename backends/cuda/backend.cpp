#include "device.hpp"
#include "partition.hpp"
#include "plan/launch.hpp"

#include <tenon/backends/cuda.hpp>
#include <tenon/error.hpp>

#include <memory>
#include <mutex>
#include <utility>

namespace tenon {
namespace cuda {
namespace {

class CudaBackend final : public Backend {
 public:
  CudaBackend(std::shared_ptr<CudaDevice> device, bool is_exact)
      : device_(std::move(device)), is_exact_(is_exact) {}

  std::string_view name() const noexcept override { return "cuda"; }
  MemRegion& region() const override { return device_->default_mem_region(); }
  std::optional<std::string> refuses(const Step& step) const override {
    return plan_step(step, nullptr);
  }
  std::unique_ptr<Partition> compile(const Lowered& program,
                                     std::span<const Step> steps) const override {
    return make_partition(device_, program, steps, is_exact_);
  }
  std::map<std::string, std::string> properties() const override {
    return {{"device", device_->url()}, {"name", device_->driver()->facts().name}};
  }

 private:
  std::shared_ptr<CudaDevice> device_;
  bool is_exact_;
};

BackendPtr backend_of_device(const DevicePtr& device, const BackendOptions& options) {
  auto cuda_device = std::dynamic_pointer_cast<CudaDevice>(device);
  if (cuda_device == nullptr) {
    throw Error(Errc::bad_argument, device->url(), "not a device that this library opened");
  }
  return std::make_shared<const CudaBackend>(std::move(cuda_device), options.exact);
}

}  // namespace
}  // namespace cuda

BackendPtr make_cuda_backend(const BackendOptions& options) {
  return cuda::backend_of_device(cuda::open_device(DeviceUrl::parse("cuda:0")), options);
}

std::optional<int> cuda_device_number(const Device& device) {
  const auto* const cuda_device = dynamic_cast<const cuda::CudaDevice*>(&device);
  if (cuda_device == nullptr) return std::nullopt;
  return cuda_device->number();
}

void synchronize_cuda_device(Device& device) {
  const auto* const cuda_device = dynamic_cast<const cuda::CudaDevice*>(&device);
  if (cuda_device == nullptr) throw Error(Errc::bad_argument, device.url(), "no CUDA device");
  cuda_device->driver()->synchronize();
}

void register_cuda_backend() {
  static std::once_flag once;
  std::call_once(once, [] { Device::register_scheme("cuda", cuda::open_device); });
  register_device_backend("cuda", cuda::backend_of_device);
}

}  // namespace tenon
