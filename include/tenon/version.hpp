#pragma once

#include <string_view>

namespace tenon {

/// Version of this library: "major.minor.patch".
std::string_view version() noexcept;

}  // namespace tenon
