#pragma once

#include "base/descriptor.hpp"

#include <tenon/io/input_file.hpp>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

namespace tenon::io {

/// Which links of a name are followed when a file of a folder is opened.
enum class Links : std::uint8_t {
  none,     ///< any link is Errc::path_escape
  beneath,  ///< relative ones that stay in the folder; others are Errc::path_escape
  any,
};

/// A folder opened once. Its files are reached through its descriptor, and what is checked is what
/// was opened: nobody can put something else in place between a check and the use.
class Folder {
 public:
  /// The working folder for an empty path. Errc::not_found, Errc::not_regular_file (no folder),
  /// Errc::io_error.
  explicit Folder(const std::filesystem::path& path);

  const std::filesystem::path& path() const noexcept { return path_; }
  int descriptor() const noexcept { return descriptor_.get(); }  ///< for openat and its kind alone

  /// Opens a file of the folder or below for reading: `name` as check_file_name() lets it pass.
  /// Errc::path_escape as `links` says; without openat2 (Linux before 5.6) `beneath` refuses every
  /// link. Else the errors of InputFile::open.
  std::shared_ptr<const InputFile> open(const std::string& name, Links links,
                                        Access access = Access::map) const;

  /// Errc::io_error unless this user or the superuser owns the folder, and nobody else may write
  /// in it.
  void check_private() const;

  /// Opens a file that nobody else can have put there or changed: no link, and owner and mode as
  /// check_private() wants them of the folder, which it looks at too.
  std::shared_ptr<const InputFile> open_private(const std::string& name,
                                                Access access = Access::map) const;

 private:
  Descriptor open_descriptor(const std::string& name, Links links) const;
  [[noreturn]] void fail_open(const std::string& name, int code) const;

  std::filesystem::path path_;
  Descriptor descriptor_;
};

/// Makes a folder that only this user can enter, and those above it; leaves one that exists as it
/// is. Errc::io_error.
void make_private_folder(const std::filesystem::path& name);

}  // namespace tenon::io
