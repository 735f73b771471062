#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::io {

/// Writes a file that appears under its name whole or not at all: a temporary file beside it is
/// filled, flushed to the device and renamed. Destroyed before commit(), it leaves nothing behind.
class AtomicFile {
 public:
  /// Errc::not_regular_file when `path` exists and is no regular file; Errc::io_error.
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

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
  void flush();
  void write_all(std::span<const std::byte> bytes);
  [[noreturn]] void fail(std::string_view step) const;

  std::filesystem::path path_;
  std::filesystem::path folder_;
  std::string temporary_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
  std::vector<std::byte> pending_;  // small writes are gathered
};

}  // namespace tenon::io
