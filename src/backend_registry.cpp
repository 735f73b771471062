#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tenon/backend.hpp>
#include <tenon/error.hpp>

#include "backend_registry.hpp"

namespace tenon {
namespace {

struct Registry {
  std::mutex mutex;
  std::vector<std::pair<std::string, BackendFactory>> backends;
};

// Never destroyed: backends may be asked for from static destructors.
Registry& registry() {
  static Registry* const instance = new Registry;
  return *instance;
}

}  // namespace

void register_backend(std::string_view name, BackendFactory factory) {
  Registry& all = registry();
  const std::scoped_lock lock(all.mutex);
  for (const auto& [known, other] : all.backends) {
    if (known != name) continue;
    if (other == factory) return;  // announced twice
    throw Error(Errc::duplicate_name, "register_backend",
                fmt::format("another backend is called '{}'", name));
  }
  all.backends.emplace_back(std::string(name), factory);
}

void remove_backend(std::string_view name) noexcept {
  Registry& all = registry();
  const std::scoped_lock lock(all.mutex);
  std::erase_if(all.backends, [&](const auto& entry) { return entry.first == name; });
}

std::vector<std::string> backend_names() {
  Registry& all = registry();
  const std::scoped_lock lock(all.mutex);
  std::vector<std::string> names;
  for (const auto& [name, factory] : all.backends) names.push_back(name);
  return names;
}

BackendPtr make_backend(std::string_view name, const BackendOptions& options) {
  BackendFactory factory = nullptr;
  {
    Registry& all = registry();
    const std::scoped_lock lock(all.mutex);
    for (const auto& [known, make] : all.backends) {
      if (known == name) factory = make;
    }
  }
  if (factory == nullptr) {
    throw Error(Errc::unavailable, "make_backend",
                fmt::format("no backend '{}'; there are: {}", name, fmt::join(backend_names(), ", ")));
  }
  return factory(options);
}

std::shared_ptr<const void> PreparedCache::get(const std::string& key, const Make& make) {
  const std::scoped_lock lock(mutex_);
  auto& entry = entries_[key];
  if (!entry) entry = make();
  return entry;
}

}  // namespace tenon
