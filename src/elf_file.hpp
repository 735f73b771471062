#pragma once

#include <optional>
#include <string>

namespace tenon {

/// Why a shared library's file is cut short, or nothing. The system's loader maps what the headers
/// promise and is killed by reading pages behind the file's end, so this is asked first; all else
/// that may be wrong the loader reports.
std::optional<std::string> cut_short(const std::string& path);

}  // namespace tenon
