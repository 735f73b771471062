#pragma once

#include <tenon/fork_aware_mutex.hpp>

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tenon {

namespace io {
class InputFile;
}

/// A file that keeps the prepared weights of a model, so that the next process maps them.
struct PreparedFile {
  std::filesystem::path path;  ///< written when there is something to keep; its folder must exist
  std::string weights;         ///< identifies the weights; a file of other weights is rebuilt
  /// The files of the weights: nothing is written once one of them has changed.
  std::vector<std::shared_ptr<const io::InputFile>> sources{};
};

/// Results of preparing weights at bind time (packed layouts, uploads), shared by all plans of a
/// binding: made once per key. Bytes given to keep() go into a session's snapshot, and with a file
/// are found again by the next process. Thread-safe.
class PreparedCache {
 public:
  using Make = std::function<std::shared_ptr<const void>()>;
  struct Bytes {
    std::span<const std::byte> bytes;
    std::shared_ptr<const void> owner;  ///< the bytes are valid as long as it
    /// Nobody but this user or the superuser can have written them: code among them may be run.
    bool is_trusted = true;
  };

  PreparedCache();
  /// Begins with bytes that keep() was given elsewhere.
  explicit PreparedCache(std::map<std::string, Bytes> kept);
  /// Ignores, and logs, a file that is damaged, or of other weights or another version of this
  /// library; and one that cannot be trusted: a symbolic link, or a file or folder that belongs to
  /// another user (except the superuser) or that others may write. Nothing is written to such a
  /// folder. Otherwise save() replaces whatever is at the path, without following links, by a file
  /// that only this user may read and write.
  explicit PreparedCache(PreparedFile file);
  ~PreparedCache();
  PreparedCache(const PreparedCache&) = delete;
  PreparedCache& operator=(const PreparedCache&) = delete;

  std::shared_ptr<const void> get(const std::string& key, const Make& make);

  /// Whether there is a file.
  bool has_file() const noexcept { return file_ != nullptr; }

  /// The bytes that keep() was given under `key`. Those of an earlier process are mapped pages of a
  /// file, aligned to 64 bytes, with a valid checksum; nobody vouches for their contents. Nothing
  /// where there are none, or, with `size_bytes`, none of that size. A key must name everything
  /// that the bytes depend on, including the version of their layout.
  std::optional<Bytes> kept(const std::string& key) const;
  std::optional<Bytes> kept(const std::string& key, std::size_t size_bytes) const;
  /// Keeps bytes; with a file, the next save() writes them, unless the key is longer than 255
  /// characters or not printable ASCII.
  void keep(const std::string& key, Bytes bytes);
  /// Writes the file if keep() was called since the last save(). A failure is logged, and writing
  /// is not tried again: the next process then prepares the weights itself.
  void save();

 private:
  class File;
  ForkAwareMutex mutex_{"PreparedCache"};
  std::map<std::string, std::shared_ptr<const void>> entries_;
  mutable ForkAwareMutex kept_mutex_{"PreparedCache"};
  std::map<std::string, Bytes> kept_;  // by key; with a file, those that it does not have yet
  bool is_saved_ = true;               // there is nothing to write
  bool has_failed_ = false;            // to write the file
  std::unique_ptr<File> file_;         // null where there is none
};

}  // namespace tenon
