#include "backend/backend_registry.hpp"

#include "base/immortal.hpp"

#include <tenon/backend.hpp>
#include <tenon/error.hpp>
#include <tenon/fork_locked_mutex.hpp>
#include <tenon/memory_errors.hpp>

#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tenon {
namespace {

struct NamedBackend {
  std::string name;
  BackendFactory plain = nullptr;  // the argument of register_backend, to detect repetitions
  std::function<BackendPtr(const BackendOptions&)> make;
};

struct Backends {
  ForkLockedMutex mutex;
  std::vector<NamedBackend> backends;
};

// Never destroyed: static destructors may use backends.
Backends& backends() {
  return process_wide([] { return Backends(); });
}

void add(NamedBackend entry) {
  Backends& all = backends();
  const std::scoped_lock lock(all.mutex);
  for (const NamedBackend& known : all.backends) {
    if (known.name != entry.name) continue;
    if (entry.plain != nullptr && known.plain == entry.plain) return;  // registered twice
    throw Error(Errc::duplicate_name, "register_backend",
                fmt::format("another backend is called '{}'", entry.name));
  }
  if (entry.name.empty() || !entry.make) {
    throw Error(Errc::bad_argument, "register_backend", "a name and a factory are needed");
  }
  all.backends.push_back(std::move(entry));
}

}  // namespace

void register_backend(std::string_view name, BackendFactory factory) {
  add({std::string(name), factory, factory});
}

void add_backend(std::string_view name, std::function<BackendPtr(const BackendOptions&)> factory) {
  add({std::string(name), nullptr, std::move(factory)});
}

void remove_backend(std::string_view name) noexcept {
  Backends& all = backends();
  const std::scoped_lock lock(all.mutex);
  std::erase_if(all.backends, [&](const NamedBackend& entry) { return entry.name == name; });
}

std::vector<std::string> backend_names() {
  Backends& all = backends();
  const std::scoped_lock lock(all.mutex);
  std::vector<std::string> names;
  for (const NamedBackend& entry : all.backends) names.push_back(entry.name);
  return names;
}

BackendPtr make_backend(std::string_view name, const BackendOptions& options) {
  return with_memory_errors("make_backend", [&] {
    std::function<BackendPtr(const BackendOptions&)> factory;
    {
      Backends& all = backends();
      const std::scoped_lock lock(all.mutex);
      for (const NamedBackend& entry : all.backends) {
        if (entry.name == name) factory = entry.make;
      }
    }
    if (!factory) {
      throw Error(
          Errc::unavailable, "make_backend",
          fmt::format("no backend '{}'; there are: {}", name, fmt::join(backend_names(), ", ")));
    }
    BackendPtr backend = factory(options);
    if (!backend) {
      throw Error(Errc::unavailable, "make_backend",
                  fmt::format("the factory of '{}' made no backend", name));
    }
    return backend;
  });
}

std::vector<BackendPtr> default_backends(const BackendOptions& options) {
  std::vector<BackendPtr> backends;
  bool has_reference = false;
  for (const std::string& name : backend_names()) {
    has_reference = has_reference || name == "reference";
    if (name != "reference" && name != "null") backends.push_back(make_backend(name, options));
  }
  if (has_reference) backends.push_back(make_backend("reference", options));
  return backends;
}

void throw_no_backend(std::string where) {
  throw Error(Errc::unavailable, std::move(where),
              "no backend is registered: include <tenon/tenon.hpp>, or call register_cpu_backend() "
              "and register_reference_backend()");
}

}  // namespace tenon
