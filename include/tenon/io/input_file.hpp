#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace tenon::io {

/// How the bytes of a file are accessed.
enum class Access : std::uint8_t {
  /// The file is mapped, without a copy; pages are shared with other processes that map it. When
  /// another process truncates the file meanwhile, the next access to a lost page kills this
  /// process (SIGBUS). Falls back to `read` where mapping fails.
  map,
  /// Every access copies by read(). A truncated file gives Errc::io_error at any time. For files on
  /// network storage, or that others may change.
  read,
  /// As `map`, but lost pages read as zeros: call has_lost_pages() or check_unchanged() after
  /// reading. Installs a process-wide SIGBUS handler, once; signals about other memory are passed
  /// on to the previous handler.
  guarded,
};

struct MappingGuard;

/// A regular file opened for reading. Immutable and thread-safe. The last shared_ptr closes the
/// descriptor and the mapping.
class InputFile {
 public:
  /// Opens a file; never blocks. Errc::not_found; Errc::not_regular_file for a directory, pipe or
  /// device; Errc::io_error with the system's message.
  static std::shared_ptr<const InputFile> open(const std::filesystem::path& path,
                                               Access access = Access::map);
  /// Takes ownership of a descriptor that was opened for reading, also when it throws; `path` is
  /// for messages. The errors of open(), except not_found.
  static std::shared_ptr<const InputFile> adopt(int descriptor, const std::filesystem::path& path,
                                                Access access = Access::map);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::filesystem::path& path() const noexcept { return path_; }
  /// The last component of the path, by which messages name the file.
  const std::string& name() const noexcept { return name_; }
  std::uint64_t size() const noexcept { return size_; }  ///< when it was opened
  /// Time of the last modification, when the file was opened: nanoseconds since 1970.
  std::int64_t modified_ns() const noexcept { return modified_ns_; }

  bool is_mapped() const noexcept { return map_ != nullptr; }
  /// The whole file; empty when it is not mapped.
  std::span<const std::byte> mapped() const noexcept {
    return {map_, map_ == nullptr ? 0 : static_cast<std::size_t>(size_)};
  }

  /// Fills `to` with the bytes from `offset` on. Errc::truncated when they exceed size(),
  /// Errc::io_error when the file has become shorter or the device fails.
  void read(std::uint64_t offset, std::span<std::byte> to) const;

  /// Throws Errc::io_error when the file's length has changed, or has_lost_pages(). Costs one
  /// fstat().
  void check_unchanged() const;
  /// Whether pages of a guarded mapping were missing, or could not be loaded from storage, when
  /// they were read; zeros were read instead. Costs one load.
  bool has_lost_pages() const noexcept;

  enum class Advice : std::uint8_t {
    will_need,  ///< start reading these pages
    dont_need,  ///< these pages may leave memory
    sequential,
  };
  /// A hint for a range of the mapping. If the system refuses it, that is logged and has no effect.
  void advise(std::uint64_t offset, std::uint64_t size_bytes, Advice advice) const noexcept;

 private:
  InputFile(const std::filesystem::path& path, int descriptor);
  void map(bool is_guarded);

  std::filesystem::path path_;
  std::string name_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
  std::int64_t modified_ns_ = 0;
  const std::byte* map_ = nullptr;
  MappingGuard* guard_ = nullptr;  ///< of a guarded mapping
};

}  // namespace tenon::io
