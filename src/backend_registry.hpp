#pragma once

#include <string_view>

namespace tenon {

/// Forgets a backend, as unloading a plugin does.
void remove_backend(std::string_view name) noexcept;

}  // namespace tenon
