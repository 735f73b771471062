#include "backend/backend_registry.hpp"
#include "backend/elf_file.hpp"
#include "backend/plugin_backend.hpp"
#include "base/immortal.hpp"

#include <tenon/backend.hpp>
#include <tenon/error.hpp>
#include <tenon/fork_aware_mutex.hpp>
#include <tenon/kernel.hpp>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <dlfcn.h>
#include <fmt/format.h>

namespace tenon {
namespace {

/// Why dlopen(path) failed. The loader's text begins with the path, which errors name anyway.
std::string loader_error(const std::string& path) {
  const char* const text = dlerror();
  std::string_view why = text != nullptr ? text : "the loader gives no reason";
  if (why.starts_with(path + ": ")) why.remove_prefix(path.size() + 2);
  std::string message(why);
  if (why.find("undefined symbol") != std::string_view::npos) {
    message +=
        ": a plugin is linked with every library whose functions it calls, such as tenon::tenon";
  }
  return message;
}

/// A library that the loader holds; closed with the last owner.
class Library {
 public:
  explicit Library(const std::string& path) : handle_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (!handle_) throw Error(Errc::plugin_load, path, loader_error(path));
  }

  void* handle() const noexcept { return handle_.get(); }
  void* symbol(const char* name) const noexcept { return dlsym(handle_.get(), name); }
  PluginDevices& devices() const noexcept { return devices_; }

 private:
  struct Close {
    void operator()(void* handle) const noexcept { dlclose(handle); }
  };
  std::unique_ptr<void, Close> handle_;
  mutable PluginDevices
      devices_;  // goes first: it refers to objects that the library's code destroys
};

struct Plugin {
  std::shared_ptr<const Library> library;
  std::string path;
  std::string name;
  std::string scheme;  // of the devices that it serves, or ""
  bool adds = false;   // ops or kernels
  int loads = 0;
};

struct Plugins {
  ForkAwareMutex mutex{"plugins"};  // for as long as loading takes
  std::vector<Plugin> loaded;
};

// Never destroyed: backends of plugins may live until after main.
Plugins& plugins() {
  return process_wide([] { return Plugins(); });
}

/// The file itself, links resolved: no folders are searched, and only regular files are opened (a
/// pipe would block).
std::string resolved(const std::string& path) {
  std::error_code error;
  const std::filesystem::path file = std::filesystem::canonical(path, error);
  if (error) {
    const auto tried = std::filesystem::absolute(path, error);
    throw Error(Errc::plugin_load, path,
                fmt::format("no such file; tried {}", error ? path : tried.string()));
  }
  if (!std::filesystem::is_regular_file(file, error)) {
    throw Error(Errc::plugin_load, file.string(), "no regular file");
  }
  if (const auto why = cut_short(file.string()))
    throw Error(Errc::plugin_load, file.string(), *why);
  return file.string();
}

/// The descriptor, read only as far as its own size says it goes.
const PluginDescriptor& descriptor_of(const Library& library, const std::string& path) {
  using EntryPoint = const PluginDescriptor* (*)();
  const auto entry = reinterpret_cast<EntryPoint>(library.symbol(plugin_entry));
  if (entry == nullptr) {
    throw Error(Errc::invalid_plugin, path, fmt::format("no symbol '{}'", plugin_entry));
  }
  const PluginDescriptor* descriptor = guarded(path, entry);
  if (descriptor == nullptr) {
    throw Error(Errc::invalid_plugin, path, fmt::format("'{}' returns null", plugin_entry));
  }
  if (descriptor->abi_version != plugin_abi_version ||
      descriptor->struct_bytes < sizeof(PluginDescriptor)) {
    throw Error(Errc::abi_mismatch, path,
                fmt::format("plugin interface {} with {} bytes, this library has {} with {}",
                            descriptor->abi_version, descriptor->struct_bytes, plugin_abi_version,
                            sizeof(PluginDescriptor)));
  }
  if (descriptor->name == nullptr || *descriptor->name == '\0') {
    throw Error(Errc::invalid_plugin, path, "the backend has no name");
  }
  if ((descriptor->scheme == nullptr) != (descriptor->create_for == nullptr)) {
    throw Error(Errc::invalid_plugin, path, "'scheme' and 'create_for' come together");
  }
  if (descriptor->create == nullptr && descriptor->create_for == nullptr &&
      descriptor->add == nullptr) {
    throw Error(Errc::invalid_plugin, path, "the descriptor makes no backends and adds no ops");
  }
  return *descriptor;
}

void check_available(const PluginDescriptor& descriptor, const std::string& path) {
  if (descriptor.unavailable == nullptr) return;
  const char* why = guarded(path, descriptor.unavailable);
  if (why != nullptr) {
    throw Error(Errc::unsupported, path, fmt::format("backend '{}': {}", descriptor.name, why));
  }
}

/// What `make` makes, a call of the plugin. `devices`: null where the device is the caller's, whose
/// memory needs no code of the plugin.
template <class Make>
BackendPtr create(const PluginDescriptor& descriptor, const std::shared_ptr<const Library>& library,
                  PluginDevices* devices, const Make& make) {
  const std::string name = descriptor.name;
  BackendPtr backend = guarded(name, make);
  if (!backend) throw Error(Errc::plugin_init, name, "the plugin made no backend");
  return keep_loaded(std::move(backend), library, devices);
}

/// Makes a backend and destroys it: detects a plugin that cannot start while loading.
void try_out(const PluginDescriptor& descriptor, const std::shared_ptr<const Library>& library,
             const std::string& path) {
  if (descriptor.create == nullptr) return;  // it needs a device, which only a caller has
  BackendPtr backend;
  try {
    backend = create(descriptor, library, &library->devices(),
                     [&] { return descriptor.create({.threads = 1}); });
  } catch (const Error& error) {
    throw Error(Errc::plugin_init, path, error.what());
  }
  if (backend->name() != descriptor.name) {
    throw Error(Errc::invalid_plugin, path,
                fmt::format("the descriptor says '{}', the backend '{}'", descriptor.name,
                            backend->name()));
  }
}

/// Has a plugin add its ops and kernels. It stays loaded, since nobody can take them back.
void add_ops(const PluginDescriptor& descriptor, std::shared_ptr<const Library> library,
             const std::string& path) {
  if (descriptor.add == nullptr) return;
  immortal<std::shared_ptr<const Library>>(std::move(library));
  const PluginRegistry registry{
      [](const OpDef& def) { register_op(def); },
      [](std::string_view backend, const KernelDef& kernel) { register_kernel(backend, kernel); }};
  try {
    guarded(path, [&] { descriptor.add(registry); });
  } catch (const Error& error) {
    throw Error(Errc::plugin_init, path, error.what());
  }
}

/// Registers what a plugin makes, under its name and for the devices of its scheme: both or none.
void announce(const PluginDescriptor& descriptor, const std::shared_ptr<const Library>& library) {
  // Held while it makes a backend: an unload on another thread comes before that or after.
  const auto hold = [weak = std::weak_ptr(library)] {
    std::shared_ptr<const Library> held = weak.lock();
    if (held) return held;
    throw Error(Errc::unavailable, "make_backend", "the plugin has just been unloaded");
  };
  if (descriptor.create_for != nullptr) {
    add_device_backend(descriptor.scheme,
                       [hold, &descriptor](const DevicePtr& device, const BackendOptions& options) {
                         const auto held = hold();
                         return create(descriptor, held, nullptr,
                                       [&] { return descriptor.create_for(device, options); });
                       });
  }
  if (descriptor.create == nullptr) return;
  try {
    add_backend(descriptor.name, [hold, &descriptor](const BackendOptions& options) {
      const auto held = hold();
      return create(descriptor, held, &held->devices(), [&] { return descriptor.create(options); });
    });
  } catch (...) {
    if (descriptor.scheme != nullptr) remove_device_backend(descriptor.scheme);
    throw;
  }
}

}  // namespace

std::string load_plugin(const std::string& path) {
  const std::string file = resolved(path);
  Plugins& all = plugins();
  const std::scoped_lock lock(all.mutex);
  auto library = std::make_shared<const Library>(file);
  // The system's loader identifies a library under all its paths.
  const auto known = std::ranges::find_if(all.loaded, [&](const Plugin& plugin) {
    return plugin.library->handle() == library->handle();
  });
  if (known != all.loaded.end()) {
    ++known->loads;
    return known->name;
  }

  const PluginDescriptor& descriptor = descriptor_of(*library, file);
  check_available(descriptor, file);
  try_out(descriptor, library, file);
  add_ops(descriptor, library, file);
  Plugin plugin{library,
                file,
                descriptor.name,
                descriptor.scheme != nullptr ? descriptor.scheme : "",
                descriptor.add != nullptr,
                1};
  all.loaded.reserve(all.loaded.size() + 1);  // nothing may fail once the backend has its name
  try {
    announce(descriptor, library);
  } catch (const Error& error) {
    throw Error(error.code(), file, error.message());
  }
  all.loaded.push_back(std::move(plugin));
  return all.loaded.back().name;
}

void unload_plugin(std::string_view name) {
  Plugins& all = plugins();
  const std::scoped_lock lock(all.mutex);
  const auto plugin = std::ranges::find(all.loaded, name, &Plugin::name);
  if (plugin == all.loaded.end()) {
    throw Error(Errc::bad_reference, "unload_plugin",
                fmt::format("no plugin '{}' is loaded", name));
  }
  if (plugin->loads > 1) {
    --plugin->loads;
    return;
  }
  if (plugin->adds) {
    throw Error(Errc::busy, plugin->path,
                fmt::format("'{}' added ops or kernels, which programs may refer to", name));
  }
  // A backend made at this very moment keeps the library mapped by itself: then only the name goes.
  if (plugin->library.use_count() > 1) {
    throw Error(Errc::busy, plugin->path,
                fmt::format("backends of '{}', or weights they have packed, are alive", name));
  }
  if (plugin->library->devices().has_arrays()) {
    throw Error(Errc::busy, plugin->path,
                fmt::format("arrays in the memory of a device of '{}' are alive", name));
  }
  remove_backend(name);
  if (!plugin->scheme.empty()) remove_device_backend(plugin->scheme);
  all.loaded.erase(plugin);
}

}  // namespace tenon
