#pragma once

#include <optional>
#include <string>

namespace tenon {

/// Why a shared library's file is truncated, or nothing. The system's loader maps what the headers
/// declare, and would be killed (SIGBUS) by reading pages beyond the file's end; other defects are
/// reported by the loader itself.
std::optional<std::string> cut_short(const std::string& path);

}  // namespace tenon
