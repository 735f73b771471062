#include "atomic_file.hpp"

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
void flush_folder(const std::filesystem::path& folder) noexcept {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  ::fsync(descriptor);
  ::close(descriptor);
}

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path path) : path_(std::move(path)) {
  struct stat status{};
  const bool exists = ::stat(path_.c_str(), &status) == 0;
  if (exists && !S_ISREG(status.st_mode)) {
    throw Error(Errc::not_regular_file, path_.string(), "exists and is not a regular file");
  }
  // A link stays a link: its target is replaced.
  std::error_code failure;
  if (exists) {
    if (auto real = std::filesystem::canonical(path_, failure); !failure) path_ = std::move(real);
  }
  folder_ = path_.has_parent_path() ? path_.parent_path() : std::filesystem::path(".");
  constexpr int attempts = 100;
  for (int i = 0; i < attempts && descriptor_ < 0; ++i) {
    temporary_ = (folder_ / fmt::format(".{}.{}-{}.tmp", path_.filename().string(), ::getpid(),
                                        files_made.fetch_add(1)))
                     .string();
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, default_mode);
    if (descriptor_ < 0 && errno != EEXIST && errno != EINTR) break;
  }
  if (descriptor_ < 0) fail("cannot be created");
  if (exists) (void)::fchmod(descriptor_, status.st_mode & 07777);  // a refusal keeps the default
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  size_ += bytes.size();
  if (pending_.size() + bytes.size() > gather_bytes) flush();
  if (bytes.size() > gather_bytes) {
    write_all(bytes);
  } else {
    pending_.insert(pending_.end(), bytes.begin(), bytes.end());
  }
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
  flush();
  while (!bytes.empty()) {
    const auto count =
        ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
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
    const auto count = ::write(descriptor_, bytes.data(), std::min(bytes.size(), piece_bytes));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("cannot be written");
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

void AtomicFile::commit() {
  flush();
  int result = ::fsync(descriptor_);
  while (result != 0 && errno == EINTR) result = ::fsync(descriptor_);
  if (result != 0) fail("cannot be flushed to the device");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("cannot be renamed");
  ::close(std::exchange(descriptor_, -1));
  flush_folder(folder_);  // from the rename on nothing may fail: the new file is there
}

void AtomicFile::fail(std::string_view step) const {
  const int code = errno;
  throw Error(Errc::io_error, path_.string(),
              fmt::format("{}: {}", step, std::generic_category().message(code)));
}

}  // namespace tenon::io
