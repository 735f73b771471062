#pragma once

#include "base/descriptor.hpp"
#include "base/folder.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

namespace tenon::io {

/// Writes a file that appears under its name whole or not at all: a temporary file beside it is
/// filled, flushed to the device and renamed. Destroyed before commit(), it leaves nothing behind.
class AtomicFile {
 public:
  /// A link stays a link: its target is replaced, and keeps its mode. Errc::not_regular_file when
  /// `path` exists and is no regular file; Errc::bad_argument for an empty path; Errc::io_error.
  explicit AtomicFile(const std::filesystem::path& path);
  /// A file that this user alone may read and write, in a folder that passes check_private(). What
  /// has the name is replaced: of a link the link itself. Errors of check_private();
  /// Errc::io_error.
  static AtomicFile make_private(const std::filesystem::path& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Errc::io_error here, in rewrite() and in commit(): the file is lost, and every further call
  /// fails, too.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  template <class T>
  void write_number(T number) {
    write(std::as_bytes(std::span(&number, 1)));
  }
  void write_zeros(std::size_t count);
  /// Replaces bytes that were written before: [offset, offset + size) must lie below size().
  void rewrite(std::uint64_t offset, std::span<const std::byte> bytes);
  /// Bytes written so far.
  std::uint64_t size() const noexcept { return size_; }

  /// Flushes and renames; call once, after everything is written.
  void commit();

 private:
  struct Place {
    Folder folder;
    std::string name;
    mode_t new_mode;                       ///< less the process's umask
    std::optional<mode_t> kept_mode = {};  ///< of the file that stands there
  };
  static Place place_of(const std::filesystem::path& path);
  explicit AtomicFile(Place place);
  void flush();
  void write_all(std::span<const std::byte> bytes);
  [[noreturn]] void fail(std::string_view step);
  void require_whole() const;

  Place place_;
  std::string temporary_;  ///< in the folder
  Descriptor descriptor_;
  std::uint64_t size_ = 0;
  bool failed_ = false;
  std::vector<std::byte> pending_;  // small writes are gathered
};

}  // namespace tenon::io
