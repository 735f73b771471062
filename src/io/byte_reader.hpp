#pragma once

#include <tenon/error.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace tenon::io {

static_assert(std::endian::native == std::endian::little, "the file formats are little-endian");

/// Thrown when a header continues beyond the bytes that have been read so far; never leaves open().
struct HeaderContinues {};

/// A cursor over the beginning of an untrusted file. Every read is checked against the bytes
/// available, the file's size and the limit of headers.
class ByteReader {
 public:
  /// `bytes`: the file, or as much of its beginning as has been read.
  ByteReader(std::span<const std::byte> bytes, std::uint64_t file_size, std::uint64_t header_limit,
             std::string_view file_name)
      : bytes_(bytes), file_size_(file_size), header_limit_(header_limit), file_name_(file_name) {}

  std::uint64_t position() const noexcept { return position_; }
  std::uint64_t file_size() const noexcept { return file_size_; }
  /// Bytes of the file from here on.
  std::uint64_t remaining() const noexcept { return file_size_ - position_; }

  /// What is being read, for messages: "value of 'general.name'".
  void set_context(std::string_view kind, std::string_view name) noexcept {
    kind_ = kind;
    name_ = name;
  }

  const std::byte* take(std::uint64_t count) {
    if (count > bytes_.size() - position_ || position_ + count > header_limit_) refuse(count);
    const std::byte* const begin = bytes_.data() + position_;
    position_ += count;
    return begin;
  }

  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof(T)), sizeof(T));
    return value;
  }

  /// A string: a length of 64 bits, then that many bytes.
  std::string_view text() {
    const auto length = number<std::uint64_t>();
    return {reinterpret_cast<const char*>(take(length)), static_cast<std::size_t>(length)};
  }

  /// Throws Errc::truncated unless `count` items of at least `min_bytes` each fit into the rest.
  void check_room(std::uint64_t count, std::uint64_t min_bytes) const {
    if (count > remaining() / min_bytes) {
      fail(Errc::truncated, fmt::format("{} {} announced, the file ends after {} bytes", count,
                                        context(), file_size_));
    }
  }

  std::string where() const { return where_at(position_); }
  std::string where_at(std::uint64_t position) const {
    return fmt::format("{}:{}", file_name_, position);
  }
  [[noreturn]] void fail(Errc code, std::string message) const {
    throw Error(code, where(), std::move(message));
  }

 private:
  std::string context() const { return std::string(kind_) + std::string(name_); }

  [[noreturn]] void refuse(std::uint64_t count) const {
    if (count > remaining()) {
      fail(Errc::truncated, fmt::format("{} needs {} bytes here, the file ends after {}", context(),
                                        count, file_size_));
    }
    if (count > header_limit_ || position_ > header_limit_ - count) {
      fail(Errc::limit_exceeded, fmt::format("{} goes beyond the {} bytes allowed for a header",
                                             context(), header_limit_));
    }
    throw HeaderContinues{};
  }

  std::span<const std::byte> bytes_;
  std::uint64_t position_ = 0;
  std::uint64_t file_size_;
  std::uint64_t header_limit_;
  std::string_view file_name_;
  std::string_view kind_ = "header";
  std::string_view name_;
};

}  // namespace tenon::io
