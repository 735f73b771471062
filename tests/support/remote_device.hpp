// "opaque:": devices whose memory the CPU cannot address, with the reference computing behind it.
#pragma once

#include "support/remote_backend.hpp"

#include <tenon/backend.hpp>
#include <tenon/device.hpp>

#include <cstdint>
#include <memory>

namespace tenon::testing {

/// Registers the scheme and its backend. Idempotent, of one thread.
inline void register_opaque_devices() {
  static const bool once = [] {
    Device::register_scheme("opaque", [](const DeviceUrl& url) {
      return std::make_shared<FakeDevice>(nullptr, url.text, std::uint64_t{64} << 20);
    });
    register_device_backend("opaque", [](const DevicePtr& device, const BackendOptions&) {
      return BackendPtr(
          std::make_shared<RemoteBackend>(std::dynamic_pointer_cast<FakeDevice>(device)));
    });
    return true;
  }();
  static_cast<void>(once);
}

}  // namespace tenon::testing
