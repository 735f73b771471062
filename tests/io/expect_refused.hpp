#pragma once

#include "support/cpu_timer.hpp"
#include "support/expect_error.hpp"
#include "support/memory_watch.hpp"
#include "temp_folder.hpp"

#include <tenon/error.hpp>
#include <tenon/io/file.hpp>

#include <string>
#include <string_view>

#include <catch2/catch.hpp>

namespace tenon::testing {

inline constexpr io::Access every_access[] = {io::Access::map, io::Access::guarded,
                                              io::Access::read};

/// How many tensors a file has that is not refused.
inline std::size_t tensor_count(const std::filesystem::path& path,
                                const io::OpenOptions& options = {}) {
  const io::File file = io::open(path, options);
  return file.tensors().size();
}

/// Checks that opening `path` fails with `code` however its bytes are reached: the same words each
/// time, in bounded memory and time, with no memory or descriptor left behind. Returns the words.
inline std::string expect_refused(Errc code, const std::filesystem::path& path,
                                  io::OpenOptions options = {}) {
  constexpr std::ptrdiff_t slack_bytes = std::ptrdiff_t{16} << 20;
  constexpr std::uintmax_t small_file = std::uintmax_t{1} << 20;
  std::string first_words;
  for (const io::Access access : every_access) {
    options.access = access;
    INFO((access == io::Access::map ? "mapped" : "read"));
    const std::string words = expect_error(code, [&] { io::open(path, options); });
    if (first_words.empty()) first_words = words;
    CHECK(words == first_words);

    std::error_code missing;
    const std::uintmax_t size = std::filesystem::file_size(path, missing);
    const std::size_t descriptors = open_descriptors();
    const CpuTimer timer;
    const MemoryWatch watch;
    try {
      io::open(path, options);
    } catch (const Error&) {
    }
    const std::ptrdiff_t live = watch.live_bytes();
    const std::ptrdiff_t peak = watch.peak_bytes();
    CHECK(live == 0);
    CHECK(open_descriptors() == descriptors);
    if (!missing && size <= small_file) {
      CHECK(peak <= static_cast<std::ptrdiff_t>(size) + slack_bytes);
      CHECK(timer.seconds() < endless_seconds);
    }
  }
  return first_words;
}

/// As above, for a file of these bytes.
inline std::string expect_refused(Errc code, std::string_view bytes, std::string_view name,
                                  const io::OpenOptions& options = {}) {
  const TempFolder folder;
  return expect_refused(code, folder.write(name, bytes), options);
}

inline std::string refused_gguf(Errc code, std::string_view bytes,
                                const io::OpenOptions& options = {}) {
  return expect_refused(code, bytes, "model.gguf", options);
}

inline std::string refused_safetensors(Errc code, std::string_view bytes,
                                       const io::OpenOptions& options = {}) {
  return expect_refused(code, bytes, "model.safetensors", options);
}

/// Opens a file of these bytes through both kinds of access and hands it to `check`.
template <class Check>
void accepted(std::string_view bytes, std::string_view name, Check&& check,
              io::OpenOptions options = {}) {
  const TempFolder folder;
  const auto path = folder.write(name, bytes);
  for (const io::Access access : every_access) {
    INFO((access == io::Access::map ? "mapped" : "read"));
    options.access = access;
    check(io::open(path, options));
  }
}

}  // namespace tenon::testing
