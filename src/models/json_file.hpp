#pragma once

#include "base/strict_json.hpp"

#include <filesystem>

namespace tenon::models {

/// A small JSON file beside a model, parsed strictly. Errc::limit_exceeded above 16 MiB.
JsonDocument read_json(const std::filesystem::path& path);

}  // namespace tenon::models
