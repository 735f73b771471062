#pragma once

#include <tenon/held.hpp>
#include <tenon/io/input_file.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace tenon {

/// Writes a snapshot: one file of named, checksummed sections with any content.
///
///     header    64 bytes: magic "TENONSNP", version, byte order, size of the file; offset, number
///               of entries and XXH3-64 of the table; XXH3-64 of the header. The same in all
///               versions
///     sections  each aligned to 64 bytes, in the order they were added, with zeros in between
///     table     per section: offset, size, XXH3-64, length of the name, and the name
///
/// Every byte of the file is covered by a checksum, or must be zero.
class SnapshotWriter {
 public:
  /// There is no file at `path` before commit(). Errors: those of creating a file (Errc::io_error,
  /// Errc::not_regular_file).
  explicit SnapshotWriter(const std::filesystem::path& path);
  /// A file that only this user may read and write, in a folder that belongs to this user or the
  /// superuser and that nobody else may write to (Errc::io_error otherwise). A symbolic link at
  /// `path` is replaced, not followed.
  static SnapshotWriter make_private(const std::filesystem::path& path);
  ~SnapshotWriter();  ///< without commit(): removes the temporary file
  SnapshotWriter(const SnapshotWriter&) = delete;
  SnapshotWriter& operator=(const SnapshotWriter&) = delete;

  /// Adds a section. `name` has 1 to 255 printable ASCII characters (Errc::bad_key) and is unique
  /// (Errc::duplicate_name).
  void add(std::string_view name, std::span<const std::byte> bytes);
  void add(std::string_view name, std::string_view text);

  /// Adds a section in pieces: begin(), then any number of write(); the next begin(), add() or
  /// commit() ends it. Errc::call_order for write() outside a section, and for every call after
  /// commit().
  void begin(std::string_view name);
  void write(std::span<const std::byte> bytes);

  /// Completes the file, flushes it to storage and renames it to `path`: readers see the complete
  /// old file or the complete new one.
  void commit();

 private:
  struct State;
  explicit SnapshotWriter(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

/// A snapshot opened for reading. A handle: copies share the mapping. Thread-safe. Use of a
/// moved-from one throws Errc::call_order.
class Snapshot {
 public:
  struct Section {
    std::string name;
    std::uint64_t offset;  ///< in the file; a multiple of 64
    std::uint64_t size_bytes;
    std::uint64_t xxh3;
  };

  struct OpenOptions {
    io::Access access = io::Access::map;
    /// Verify the checksums of all sections while opening, which reads the whole file. Otherwise
    /// each section is verified by the first call of bytes().
    bool verify_sections = true;
    /// Accept only a file as SnapshotWriter::make_private() writes it, which nobody else can have
    /// written: Errc::path_escape for a symbolic link, Errc::io_error where others own or may write
    /// the file or its folder.
    bool only_private = false;
  };

  /// Opens a file and checks header, table and the bytes between sections. Errors name the file and
  /// the offset or the section:
  ///
  ///   not_found, io_error, not_regular_file    the file itself
  ///   bad_magic                                not a snapshot
  ///   incompatible                             another version or byte order
  ///   truncated, trailing_data                 shorter or longer than the header says
  ///   corrupt, bad_offset                      any other change
  ///   limit_exceeded                           a table larger than 64 MiB
  static Snapshot open(const std::filesystem::path& path, const OpenOptions& options);
  static Snapshot open(const std::filesystem::path& path) { return open(path, OpenOptions{}); }

  const std::filesystem::path& path() const;
  std::span<const Section> sections() const;  ///< in the order of the file
  const Section* find(std::string_view name) const;

  /// The bytes of a section, valid as long as keeper() or any copy of this snapshot.
  /// Errc::bad_reference when there is no such section, Errc::corrupt when its checksum is wrong,
  /// Errc::io_error when the length of the mapped file has changed.
  std::span<const std::byte> bytes(std::string_view name) const;
  std::string_view text(std::string_view name) const;

  /// Keeps the bytes alive; the keeper for HostBuffer::mapped().
  std::shared_ptr<const void> keeper() const;

 private:
  struct State;
  explicit Snapshot(std::shared_ptr<const State> state) noexcept;
  detail::Held<const State, "Snapshot"> state_;
};

}  // namespace tenon
