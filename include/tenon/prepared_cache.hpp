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

/// A file that keeps what is made of a model when it is loaded, for the next process to map.
struct PreparedFile {
  std::filesystem::path path;  ///< written when there is something to keep; its folder exists
  std::string weights;         ///< of which weights; a file that says otherwise is rebuilt
  /// Where the weights come from: nothing is written once one of them has changed.
  std::vector<std::shared_ptr<const io::InputFile>> sources{};
};

/// What backends make of weights at bind time (packed layouts, uploads), shared by every plan of a
/// binding: asked for twice under one key, made once. With a file, bytes that a backend, or who
/// loads the model, gives to keep() are found again by the next process. Thread-safe.
class PreparedCache {
 public:
  using Make = std::function<std::shared_ptr<const void>()>;
  struct Bytes {
    std::span<const std::byte> bytes;
    std::shared_ptr<const void> owner;  ///< the bytes are valid as long as it
  };

  PreparedCache();
  /// A file that cannot be used (damaged, of other weights or another version of this library) is
  /// as good as none, and logged. So is one that cannot be trusted: a link, or a file or folder
  /// that belongs to another user but the superuser, or that others may write. In such a folder
  /// nothing is written either; elsewhere save() puts a file that only this user may read and
  /// write in the place of what is there, and follows no link.
  explicit PreparedCache(PreparedFile file);
  ~PreparedCache();
  PreparedCache(const PreparedCache&) = delete;
  PreparedCache& operator=(const PreparedCache&) = delete;

  std::shared_ptr<const void> get(const std::string& key, const Make& make);

  /// Whether there is a file to keep bytes in.
  bool has_file() const noexcept { return kept_ != nullptr; }

  /// What keep() was given under `key`, in this process or an earlier one: mapped pages of the file
  /// from a multiple of 64 on, checked against their checksum. Nothing where there is none, or none
  /// of this size. A key names all that the bytes depend on, the version of their layout too.
  std::optional<Bytes> kept(const std::string& key) const;
  std::optional<Bytes> kept(const std::string& key, std::size_t size_bytes) const;
  /// Has the bytes written by the next save(). Without a file, or under a key of more than 255
  /// characters or others than printable ASCII, they are not kept.
  void keep(const std::string& key, Bytes bytes);
  /// Writes the file if keep() was given something since. A file that cannot be written is logged
  /// and not tried again: the next process prepares the weights anew.
  void save();

 private:
  struct Kept;
  ForkAwareMutex mutex_{"PreparedCache"};
  std::map<std::string, std::shared_ptr<const void>> entries_;
  std::unique_ptr<Kept> kept_;  ///< null without a file
};

}  // namespace tenon
