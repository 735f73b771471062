#include "backend/backend_registry.hpp"
#include "base/immortal.hpp"

#include <tenon/error.hpp>
#include <tenon/fork_locked_mutex.hpp>

#include <map>
#include <mutex>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tenon {
namespace {

constexpr std::string_view cpu_scheme = "cpu";

struct SchemeBackend {
  DeviceBackendFactory plain = nullptr;  // the argument of register_device_backend
  DeviceBackendMaker make;
};

struct SchemeBackends {
  ForkLockedMutex mutex;
  std::map<std::string, SchemeBackend, std::less<>> schemes;
};

// Never destroyed, like the registry of backends by name.
SchemeBackends& scheme_backends() {
  return process_wide([] { return SchemeBackends(); });
}

void add(std::string_view scheme, SchemeBackend entry) {
  if (scheme.empty() || !entry.make) {
    throw Error(Errc::bad_argument, "register_device_backend", "a scheme and a factory are needed");
  }
  SchemeBackends& all = scheme_backends();
  const std::scoped_lock lock(all.mutex);
  const auto known = all.schemes.find(scheme);
  const bool is_known = known != all.schemes.end();
  if (is_known && entry.plain != nullptr && known->second.plain == entry.plain) return;
  if (is_known || scheme == cpu_scheme) {
    throw Error(Errc::duplicate_name, "register_device_backend",
                fmt::format("another backend serves the devices '{}:'", scheme));
  }
  all.schemes.emplace(scheme, std::move(entry));
}

DeviceBackendMaker find(std::string_view scheme) {
  SchemeBackends& all = scheme_backends();
  const std::scoped_lock lock(all.mutex);
  if (const auto found = all.schemes.find(scheme); found != all.schemes.end()) {
    return found->second.make;
  }
  std::vector<std::string> known{std::string(cpu_scheme)};
  for (const auto& [name, entry] : all.schemes) known.push_back(name);
  throw Error(Errc::unavailable, "device_backends",
              fmt::format("no backend serves devices '{}:'; there are backends for: {}", scheme,
                          fmt::join(known, ", ")));
}

}  // namespace

void register_device_backend(std::string_view scheme, DeviceBackendFactory factory) {
  add(scheme, {factory, factory});
}

void add_device_backend(std::string_view scheme, DeviceBackendMaker make) {
  add(scheme, {nullptr, std::move(make)});
}

void remove_device_backend(std::string_view scheme) noexcept {
  SchemeBackends& all = scheme_backends();
  const std::scoped_lock lock(all.mutex);
  if (const auto found = all.schemes.find(scheme); found != all.schemes.end()) {
    all.schemes.erase(found);
  }
}

std::vector<BackendPtr> device_backends(const DevicePtr& device, const BackendOptions& options) {
  if (!device) throw Error(Errc::bad_argument, "device_backends", "no device is given");
  const std::string scheme = DeviceUrl::parse(device->url()).scheme;
  if (scheme == cpu_scheme) {
    std::vector<BackendPtr> backends = default_backends(options);
    if (!backends.empty()) return backends;
    throw_no_backend(device->url());
  }
  BackendPtr backend = find(scheme)(device, options);
  if (!backend) throw Error(Errc::unavailable, device->url(), "the factory made no backend");
  return {std::move(backend)};
}

}  // namespace tenon
