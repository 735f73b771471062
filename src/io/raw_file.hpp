// The second file of a pair that is saved as one: docs/network-json.md, "Saving".
#pragma once

#include "base/atomic_file.hpp"
#include "base/descriptor.hpp"

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace tenon::io {

/// Writes the file of a pair that the other one, the head, refers to by an id. It gets its place
/// after the head has got its own: until then it stands beside it as "<file>.<id>", where readers
/// of the new head look first, and readers of the old head do not look.
class RawFile {
 public:
  /// Errors as for AtomicFile.
  explicit RawFile(std::filesystem::path path);
  ~RawFile();
  RawFile(const RawFile&) = delete;
  RawFile& operator=(const RawFile&) = delete;

  AtomicFile& file() { return *file_; }
  /// The whole file is on the device under its id. One pair at a time from here on, in this folder.
  void commit(std::string_view id);
  /// The head is in place: the file takes its own. What saves that were killed have left goes.
  void settle();

 private:
  std::filesystem::path with(std::string_view suffix) const;
  void lock();
  void remove_leftovers() const;

  std::filesystem::path path_;
  bool is_link_;  ///< whose target is replaced, at once
  std::optional<AtomicFile> file_;
  std::filesystem::path pending_;
  Descriptor lock_;
};

/// Removes the temporary files that AtomicFiles of `path` have left: those of processes that have
/// ended, untouched for an hour.
void remove_old_temporaries(const std::filesystem::path& path) noexcept;

/// 16 lower-case hexadecimal digits.
bool is_raw_id(std::string_view text) noexcept;

}  // namespace tenon::io
