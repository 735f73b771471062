#include "cuda.hpp"

#include <tenon/error.hpp>

#include <map>
#include <memory>
#include <mutex>

#include <fmt/format.h>
#ifdef TENON_WITH_CUDA
#include <tenon/backends/cuda.hpp>
#endif
#ifdef TENON_WITH_CUDA_EMULATION
#include "emulation/emulation.hpp"
#endif

namespace tenon::python {

#ifdef TENON_WITH_CUDA

namespace {

/// Devices that are open, by their URLs.
struct OpenDevices {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<Device>> devices;
};
OpenDevices& open_devices() {
  static OpenDevices devices;
  return devices;
}

}  // namespace

void register_cuda() {
  register_cuda_backend();
#ifdef TENON_WITH_CUDA_EMULATION
  cuda::register_emulation();
#endif
}

std::optional<int> cuda_number(const Buffer& array) {
  if (!array.has_data()) return std::nullopt;
  MemRegion& region = array.region();
  return region.is_host() ? std::nullopt : cuda_device_number(region.device());
}

DevicePtr cuda_device(int number) {
  {
    OpenDevices& open = open_devices();
    const std::scoped_lock lock(open.mutex);
    for (const auto& [url, weak] : open.devices) {
      DevicePtr device = weak.lock();
      if (device != nullptr && cuda_device_number(*device) == number) return device;
    }
  }
  return open_cuda_device(fmt::format("cuda:{}", number));
}

DevicePtr open_cuda_device(const std::string& url) {
  OpenDevices& open = open_devices();
  const std::scoped_lock lock(open.mutex);
  std::weak_ptr<Device>& known = open.devices[url];
  DevicePtr device = known.lock();
  if (device == nullptr) known = device = Device::open(url);
  return device;
}

void synchronize_cuda(Device& device) { synchronize_cuda_device(device); }

#else

void register_cuda() {}
std::optional<int> cuda_number(const Buffer& /*array*/) { return std::nullopt; }
DevicePtr cuda_device(int number) { return open_cuda_device(fmt::format("cuda:{}", number)); }
DevicePtr open_cuda_device(const std::string& url) {
  throw Error(Errc::device_unavailable, url, "this package was built without the CUDA backend");
}
void synchronize_cuda(Device& /*device*/) {}

#endif

}  // namespace tenon::python
