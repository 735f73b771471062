#include "bench.hpp"

#include <tenon/error.hpp>

#include <memory>
#include <mutex>

namespace tenon::testkit {
namespace {

void require_no_driver(const DevicePtr& device) {
  if (!device) throw Error(Errc::bad_argument, "check_npu", "no device is given");
  auto* const control = dynamic_cast<isa::DeviceControl*>(device.get());
  if (control == nullptr) return;
  isa::DeviceControl::DriverSlot& slot = control->driver_slot();
  const std::scoped_lock lock(slot.mutex);
  if (slot.driver.expired()) return;
  throw Error(Errc::busy, device->url(), "a backend uses the device: the check needs it alone");
}

/// Whether networks can be tried: by hand the device does what a driver needs.
bool check_by_hand(const DevicePtr& device, const NpuCheckOptions& options, Findings& findings) {
  Bench bench(device, options, findings);
  check_registers(bench);
  if (!check_ring(bench)) return false;
  if (!check_memory(bench)) return false;
  check_errors(bench);
  findings.guarded("resets", [&] { check_resets(bench); });
  return true;
}

}  // namespace

std::vector<std::string> check_npu(const DevicePtr& device, const NpuCheckOptions& options) {
  require_no_driver(device);
  Findings findings;
  if (check_description(device, findings)) {
    findings.guarded("the device", [&] {
      if (check_by_hand(device, options, findings)) check_networks(device, options, findings);
    });
    findings.guarded("the last reset", [&] { device->reset(2); });
  }
  return findings.take();
}

}  // namespace tenon::testkit
