#include "base/immortal.hpp"

#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/fork_locked_mutex.hpp>
#include <tenon/memory_errors.hpp>

#include <map>
#include <mutex>
#include <ranges>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tenon {
namespace {

DevicePtr open_cpu(const DeviceUrl& url) {
  if (!url.address.empty()) {
    throw Error(Errc::device_unavailable, url.text, "the CPU is one device, without an address");
  }
  url.check_keys({});
  return cpu_device();
}

struct Schemes {
  ForkLockedMutex mutex;
  std::map<std::string, Device::Factory, std::less<>> factories{{"cpu", open_cpu}};
};

// Made at first use and never destroyed: devices may open before main and live until after it.
Schemes& known_schemes() {
  return process_wide([] { return Schemes(); });
}

Device::Factory factory_of(const DeviceUrl& url) {
  Schemes& devices = known_schemes();
  const std::scoped_lock lock(devices.mutex);
  const auto found = devices.factories.find(url.scheme);
  if (found == devices.factories.end()) {
    throw Error(Errc::device_unavailable, url.text,
                fmt::format("no device is registered for '{}:'; there are devices for: {}",
                            url.scheme, fmt::join(std::views::keys(devices.factories), ", ")));
  }
  return found->second;
}

}  // namespace

DevicePtr Device::open(std::string_view url) {
  return with_memory_errors("Device::open", [&] {
    const DeviceUrl parsed = DeviceUrl::parse(url);
    DevicePtr device = factory_of(parsed)(parsed);
    if (!device) throw Error(Errc::device_unavailable, parsed.text, "the factory made no device");
    return device;
  });
}

void Device::register_scheme(std::string scheme, Factory factory) {
  if (!factory) throw Error(Errc::bad_argument, scheme, "a scheme without a factory");
  if (const DeviceUrl url = DeviceUrl::parse(scheme + ":"); url.scheme != scheme) {
    throw Error(Errc::syntax, scheme, "no scheme");
  }
  Schemes& devices = known_schemes();
  const std::scoped_lock lock(devices.mutex);
  if (!devices.factories.emplace(scheme, std::move(factory)).second) {
    throw Error(Errc::duplicate_name, scheme, "the scheme is registered already");
  }
}

std::vector<std::string> Device::schemes() {
  Schemes& devices = known_schemes();
  const std::scoped_lock lock(devices.mutex);
  std::vector<std::string> names;
  for (const auto& [scheme, factory] : devices.factories) names.push_back(scheme);
  return names;
}

}  // namespace tenon
