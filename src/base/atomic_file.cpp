#include "base/atomic_file.hpp"

#include "base/retry_interrupted.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tenon::io {
namespace {

constexpr std::size_t gather_bytes = std::size_t{1} << 16;
constexpr mode_t default_mode = 0666;  // less the process's umask

std::atomic<std::uint64_t> files_made{0};

// Waits until a renamed entry of the folder is on the device. Some file systems have no such thing.
void flush_folder(const Folder& folder) noexcept {
  const Descriptor entries(::openat(folder.descriptor(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (entries.is_open()) ::fsync(entries.get());
}

Folder folder_of(const std::filesystem::path& path) {
  try {
    return Folder(path.parent_path());
  } catch (const Error& error) {
    throw Error(Errc::io_error, path.string(), "cannot be created: " + error.message());
  }
}

}  // namespace

AtomicFile::Place AtomicFile::place_of(const std::filesystem::path& path) {
  if (path.empty())
    throw Error(Errc::bad_argument, "save", "the path of the file to write is empty");
  std::error_code failure;
  const auto real = std::filesystem::canonical(path, failure);
  const std::filesystem::path& target = failure ? path : real;
  Place place{folder_of(target), target.filename().string(), default_mode};
  struct stat status{};
  if (::fstatat(place.folder.descriptor(), place.name.c_str(), &status, 0) == 0) {
    if (!S_ISREG(status.st_mode)) {
      throw Error(Errc::not_regular_file, path.string(), "exists and is not a regular file");
    }
    place.kept_mode = status.st_mode & 07777;
  }
  return place;
}

AtomicFile::AtomicFile(const std::filesystem::path& path) : AtomicFile(place_of(path)) {}

AtomicFile AtomicFile::make_private(const std::filesystem::path& path) {
  Place place{folder_of(path), path.filename().string(), S_IRUSR | S_IWUSR};
  place.folder.check_private();
  return AtomicFile(std::move(place));
}

AtomicFile::AtomicFile(Place place) : place_(std::move(place)) {
  const int folder = place_.folder.descriptor();
  constexpr int attempts = 100;
  for (int i = 0; i < attempts && !descriptor_.is_open(); ++i) {
    temporary_ = fmt::format(".{}.{}-{}.tmp", place_.name, ::getpid(), files_made.fetch_add(1));
    descriptor_ = Descriptor(::openat(folder, temporary_.c_str(),
                                      O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, place_.new_mode));
    if (!descriptor_.is_open() && errno != EEXIST && errno != EINTR) break;
  }
  if (!descriptor_.is_open()) fail("cannot be created");
  // A refusal keeps the mode of a new file.
  if (place_.kept_mode) (void)::fchmod(descriptor_.get(), *place_.kept_mode);
}

AtomicFile::~AtomicFile() {
  if (!descriptor_.is_open()) return;
  ::unlinkat(place_.folder.descriptor(), temporary_.c_str(), 0);
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  require_whole();
  failed_ = true;  // until all bytes are there: there may be no memory to gather them
  size_ += bytes.size();
  if (pending_.size() + bytes.size() > gather_bytes) flush();
  if (bytes.size() > gather_bytes) {
    write_all(bytes);
  } else {
    pending_.insert(pending_.end(), bytes.begin(), bytes.end());
  }
  failed_ = false;
}

void AtomicFile::write_zeros(std::size_t count) {
  static constexpr std::byte zeros[4096]{};
  while (count > 0) {
    const std::size_t piece = std::min(count, sizeof(zeros));
    write(std::span(zeros, piece));
    count -= piece;
  }
}

void AtomicFile::rewrite(std::uint64_t offset, std::span<const std::byte> bytes) {
  require_whole();
  flush();
  while (!bytes.empty()) {
    const auto count = retry_interrupted([&] {
      return ::pwrite(descriptor_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    });
    if (count < 0) fail("cannot be written");
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
}

void AtomicFile::flush() {
  write_all(pending_);
  pending_.clear();
}

void AtomicFile::write_all(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    constexpr std::size_t piece_bytes = std::size_t{1} << 30;  // the system writes at most 2 GiB
    const auto count = retry_interrupted([&] {
      return ::write(descriptor_.get(), bytes.data(), std::min(bytes.size(), piece_bytes));
    });
    if (count < 0) fail("cannot be written");
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

void AtomicFile::commit() {
  require_whole();
  flush();
  if (retry_interrupted([&] { return ::fsync(descriptor_.get()); }) != 0) {
    fail("cannot be flushed to the device");
  }
  const int folder = place_.folder.descriptor();
  if (::renameat(folder, temporary_.c_str(), folder, place_.name.c_str()) != 0) {
    fail("cannot be renamed");
  }
  descriptor_ = Descriptor();
  flush_folder(place_.folder);  // from the rename on nothing may fail: the new file is there
}

void AtomicFile::require_whole() const {
  if (!failed_) return;
  throw Error(Errc::io_error, (place_.folder.path() / place_.name).string(),
              "could not be written before: a part of it is missing");
}

void AtomicFile::fail(std::string_view step) {
  const int code = errno;
  failed_ = true;
  throw Error(Errc::io_error, (place_.folder.path() / place_.name).string(),
              fmt::format("{}: {}", step, std::generic_category().message(code)));
}

}  // namespace tenon::io
