#pragma once

#include <tenon/error.hpp>
#include <tenon/io/file.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tenon::testing {

/// A file in memory with these bytes, as long as this lives.
class MemoryPath {
 public:
  explicit MemoryPath(std::string_view bytes);
  ~MemoryPath();
  MemoryPath(const MemoryPath&) = delete;
  MemoryPath& operator=(const MemoryPath&) = delete;
  const std::string& path() const noexcept { return path_; }

 private:
  int descriptor_;
  std::string path_;
};

/// The path of a file that this process may write, in memory where the system offers that.
std::string scratch_file(std::string_view name);

/// A file in memory with these bytes, opened through either kind of access.
std::shared_ptr<const io::InputFile> memory_file(std::span<const std::uint8_t> bytes,
                                                 io::Access access);

/// Accesses every byte that metadata and tensors declare.
std::uint64_t sum_of(const io::Metadata& metadata, std::span<const io::TensorEntry> tensors);

/// What a target found: an exception that none of them catches.
[[noreturn]] void fail(const char* why);

inline std::string_view as_text(std::span<const std::uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Feeds `bytes` to `parse(file) -> sum` through both kinds of access: each must end in a value or
/// a tenon::Error, and both in the same one.
template <class Parse>
void compare_access(std::span<const std::uint8_t> bytes, Parse&& parse) {
  struct Outcome {
    std::uint64_t sum = 0;
    std::optional<Errc> code;
    bool operator==(const Outcome&) const = default;
  };
  const auto run = [&](io::Access access) -> Outcome {
    try {
      return {parse(memory_file(bytes, access)), {}};
    } catch (const Error& error) {
      if (error.code() == Errc::internal) fail("an internal error");
      return {0, error.code()};
    }
  };
  // Reading copies into blocks of exact size: what lies behind their end is poisoned.
  if (run(io::Access::read) != run(io::Access::map)) fail("mapping and reading disagree");
}

}  // namespace tenon::testing
