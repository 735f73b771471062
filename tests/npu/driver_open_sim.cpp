#include "npu/driver_open.hpp"

#include <tenon/backends/npu_sim.hpp>

namespace tenon::npu::testing {

DevicePtr open_npu(const std::string& url) {
  register_npu_sim();
  return Device::open(url);
}

}  // namespace tenon::npu::testing
