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
/// binding: made once per key. With a file, bytes given to keep() are found again by the next
/// process. Thread-safe.
class PreparedCache {
 public:
  using Make = std::function<std::shared_ptr<const void>()>;
  struct Bytes {
    std::span<const std::byte> bytes;
    std::shared_ptr<const void> owner;  ///< the bytes are valid as long as it
  };

  PreparedCache();
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
  bool has_file() const noexcept { return kept_ != nullptr; }

  /// The bytes that keep() was given under `key`, in this process or an earlier one: mapped pages
  /// of the file, aligned to 64 bytes, with a valid checksum. Nothing where there are none, or,
  /// with `size_bytes`, none of that size. A key must name everything that the bytes depend on,
  /// including the version of their layout.
  std::optional<Bytes> kept(const std::string& key) const;
  std::optional<Bytes> kept(const std::string& key, std::size_t size_bytes) const;
  /// Keeps bytes, to be written by the next save(). Ignored without a file, and for a key that is
  /// longer than 255 characters or not printable ASCII.
  void keep(const std::string& key, Bytes bytes);
  /// Writes the file if keep() was called since the last save(). A failure is logged, and writing
  /// is not tried again: the next process then prepares the weights itself.
  void save();

 private:
  struct Kept;
  ForkAwareMutex mutex_{"PreparedCache"};
  std::map<std::string, std::shared_ptr<const void>> entries_;
  std::unique_ptr<Kept> kept_;  ///< null without a file
};

}  // namespace tenon
