#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace tenon::io {

/// How the bytes of a file are reached.
enum class Access : std::uint8_t {
  /// Pages of the file, shared with every process that maps it. Opening costs no copy. The price:
  /// another process that cuts the file short while it is mapped takes pages away, and the next
  /// access to one of them ends this process (SIGBUS). Where mapping fails, the file falls back to
  /// `read`.
  map,
  /// Every access is a read() into memory of ours: a file cut short is an Errc::io_error, whenever
  /// it happens. For files on network storage or under somebody else's hands.
  read,
  /// As `map`, but pages that are gone read as zeros: who reads asks has_lost_pages() or
  /// check_unchanged() afterwards. Installs a handler of SIGBUS for the process, once; signals
  /// about other memory go on to the handler that was there before.
  guarded,
};

struct MappingGuard;

/// A regular file opened for reading. Immutable and usable from any thread; the descriptor and the
/// mapping go with the last shared_ptr.
class InputFile {
 public:
  /// Errc::not_found, Errc::not_regular_file (a directory, pipe or device: opening never blocks),
  /// or Errc::io_error with the system's words.
  static std::shared_ptr<const InputFile> open(const std::filesystem::path& path,
                                               Access access = Access::map);
  /// Takes over a descriptor that was opened for reading; `path` is for messages. The errors of
  /// open() but not_found; the descriptor is closed then too.
  static std::shared_ptr<const InputFile> adopt(int descriptor, const std::filesystem::path& path,
                                                Access access = Access::map);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::filesystem::path& path() const noexcept { return path_; }
  /// The last component of the path: how messages name the file.
  const std::string& name() const noexcept { return name_; }
  std::uint64_t size() const noexcept { return size_; }  ///< when it was opened
  /// When it was last written before it was opened: nanoseconds since 1970.
  std::int64_t modified_ns() const noexcept { return modified_ns_; }

  bool is_mapped() const noexcept { return map_ != nullptr; }
  /// The whole file; empty when it is not mapped.
  std::span<const std::byte> mapped() const noexcept {
    return {map_, map_ == nullptr ? 0 : static_cast<std::size_t>(size_)};
  }

  /// Fills `to` with the bytes from `offset` on. Errc::truncated when they lie past size(),
  /// Errc::io_error when the file has become shorter or the device fails.
  void read(std::uint64_t offset, std::span<std::byte> to) const;

  /// Errc::io_error when the file is no longer as long as it was, or has_lost_pages(): one fstat.
  void check_unchanged() const;
  /// Whether pages of a guarded mapping were missing when they were read: zeros stand for them.
  /// Errors of the storage count too. Costs one load.
  bool has_lost_pages() const noexcept;

  enum class Advice : std::uint8_t {
    will_need,  ///< start reading these pages
    dont_need,  ///< these pages may leave memory
    sequential,
  };
  /// A hint for a range of the mapping; one that the system refuses is logged and does no harm.
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
