#pragma once

#include <tenon/backend.hpp>

#include <functional>
#include <string>
#include <string_view>

namespace tenon {

/// register_backend for a factory with state, as a plugin has. Errc::duplicate_name.
void add_backend(std::string_view name, std::function<BackendPtr(const BackendOptions&)> factory);

/// Removes a backend, when a plugin is unloaded.
void remove_backend(std::string_view name) noexcept;

/// The same for the backends of devices, by URL scheme.
using DeviceBackendMaker = std::function<BackendPtr(const DevicePtr&, const BackendOptions&)>;
void add_device_backend(std::string_view scheme, DeviceBackendMaker make);
void remove_device_backend(std::string_view scheme) noexcept;

/// Errc::unavailable: nobody has registered a backend, and what to do about it.
[[noreturn]] void throw_no_backend(std::string where);

}  // namespace tenon
