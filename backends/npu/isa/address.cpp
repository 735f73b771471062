#include "base/immortal.hpp"

#include <tenon/error.hpp>
#include <tenon/fork_locked_mutex.hpp>
#include <tenon/npu/isa/address.hpp>

#include <map>
#include <mutex>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace tenon::npu::isa {
namespace {

struct Registry {
  ForkLockedMutex mutex;
  std::map<std::string, Device::Factory> factories;
};

// Never destroyed: devices may be opened by destructors of static objects.
Registry& registry() {
  return process_wide([] { return Registry(); });
}

bool matches(std::string_view known, std::string_view address) {
  return known.ends_with(':') ? address.starts_with(known) : address == known;
}

DevicePtr open(const DeviceUrl& url) {
  Device::Factory factory;
  std::string all;
  {
    Registry& addresses = registry();
    const std::scoped_lock lock(addresses.mutex);
    for (const auto& [known, make] : addresses.factories) {
      if (matches(known, url.address)) factory = make;
      all += fmt::format("{}npu://{}{}", all.empty() ? "" : ", ", known,
                         known.ends_with(':') ? "PATH" : "");
    }
  }
  if (!factory) {
    throw Error(Errc::device_unavailable, url.text,
                fmt::format("'{}' is the address of no NPU; there are {}", url.address, all));
  }
  return factory(url);
}

}  // namespace

void register_address(std::string address, Device::Factory factory) {
  static std::once_flag once;
  std::call_once(once, [] { Device::register_scheme("npu", open); });
  Registry& addresses = registry();
  const std::scoped_lock lock(addresses.mutex);
  addresses.factories.emplace(std::move(address), std::move(factory));
}

}  // namespace tenon::npu::isa
