#pragma once

#include <filesystem>

#include <nlohmann/json_fwd.hpp>

namespace tenon::models {

/// A small JSON file beside a model, parsed strictly. Errc::limit_exceeded above 16 MiB.
nlohmann::json read_json(const std::filesystem::path& path);

}  // namespace tenon::models
