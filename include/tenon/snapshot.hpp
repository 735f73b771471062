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

/// What a saved state is kept in: one file of named, checksummed sections, whatever they hold.
///
///     header    64 bytes: magic "TENONSNP", version, byte order, size of the file, place, number
///               and XXH3-64 of the table, XXH3-64 of the header; this form holds for all versions
///     sections  each from a multiple of 64 on, in the order they were added, zeros in between
///     table     per section: offset, size, XXH3-64, length of the name, and the name
///
/// Every byte of the file is covered by a checksum, or must be zero.
class SnapshotWriter {
 public:
  /// Nothing appears under `path` before commit(). Errors: those of creating a file,
  /// Errc::io_error and Errc::not_regular_file.
  explicit SnapshotWriter(const std::filesystem::path& path);
  /// A file that this user alone may read and write, in a folder that belongs to this user or the
  /// superuser and that nobody else may write in (Errc::io_error otherwise). A link that has the
  /// file's name is replaced, not followed.
  static SnapshotWriter make_private(const std::filesystem::path& path);
  ~SnapshotWriter();  ///< without commit(): leaves nothing behind
  SnapshotWriter(const SnapshotWriter&) = delete;
  SnapshotWriter& operator=(const SnapshotWriter&) = delete;

  /// A section of these bytes. `name`: 1 to 255 printable ASCII characters (Errc::bad_key), each
  /// name once (Errc::duplicate_name).
  void add(std::string_view name, std::span<const std::byte> bytes);
  void add(std::string_view name, std::string_view text);

  /// A section in pieces: begin(), write() as often as wanted, and the next begin(), add() or
  /// commit() ends it. Errc::call_order for write() outside a section, and for anything after
  /// commit().
  void begin(std::string_view name);
  void write(std::span<const std::byte> bytes);

  /// Ends the file, brings it onto the storage and puts it in its place: readers see the old file
  /// or the new one, whole.
  void commit();

 private:
  struct State;
  explicit SnapshotWriter(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

/// A snapshot opened for reading. A handle: copies share the mapping, and any thread may use it.
/// One that was moved from: Errc::call_order.
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
    /// Check every section while opening, which reads the whole file. Otherwise each is checked
    /// when it is first asked for.
    bool verify_sections = true;
    /// Only a file as SnapshotWriter::make_private() writes them, whose content nobody else can
    /// have chosen: Errc::path_escape for a link, Errc::io_error where others own or may write the
    /// file or its folder.
    bool only_private = false;
  };

  /// Checks the frame: header, table, every byte between sections. Errors name the file and the
  /// offset or the section. Errc::not_found, io_error, not_regular_file: the file itself.
  /// Errc::bad_magic: no snapshot. Errc::incompatible: another version or byte order.
  /// Errc::truncated, trailing_data: shorter or longer than the header says. Errc::corrupt,
  /// bad_offset: anything else that is not as it was written. Errc::limit_exceeded: a table beyond
  /// 64 MiB.
  static Snapshot open(const std::filesystem::path& path, const OpenOptions& options);
  static Snapshot open(const std::filesystem::path& path) { return open(path, OpenOptions{}); }

  const std::filesystem::path& path() const;
  std::span<const Section> sections() const;  ///< in the order of the file
  const Section* find(std::string_view name) const;

  /// The bytes of a section, valid as long as keeper() or any copy of this snapshot.
  /// Errc::bad_reference when there is no such section, Errc::corrupt when its bytes have changed,
  /// Errc::io_error when the mapped file has changed its length.
  std::span<const std::byte> bytes(std::string_view name) const;
  std::string_view text(std::string_view name) const;

  /// Keeps the bytes alive: what HostBuffer::mapped wants.
  std::shared_ptr<const void> keeper() const;

 private:
  struct State;
  explicit Snapshot(std::shared_ptr<const State> state) noexcept;
  detail::Held<const State, "Snapshot"> state_;
};

}  // namespace tenon
