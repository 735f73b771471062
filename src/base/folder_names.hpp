#pragma once

#include <cerrno>
#include <filesystem>
#include <memory>
#include <string_view>
#include <system_error>

#include <dirent.h>

namespace tenon {

/// Calls `visit` with the name of every entry of a folder but "." and "..". What it returns says
/// why they are not all of them. (The standard library's iterator ends the process where memory
/// runs out.)
template <class Visit>
std::error_code for_each_name(const std::filesystem::path& folder, Visit&& visit) {
  const auto failure = [] { return std::error_code(errno, std::generic_category()); };
  struct Close {
    void operator()(DIR* open) const noexcept { ::closedir(open); }
  };
  const std::unique_ptr<DIR, Close> open(::opendir(folder.c_str()));
  if (open == nullptr) return failure();
  while (true) {
    errno = 0;
    const dirent* const entry = ::readdir(open.get());
    if (entry == nullptr) return errno == 0 ? std::error_code() : failure();
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") visit(name);
  }
}

}  // namespace tenon
