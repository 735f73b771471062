#include "base/descriptor.hpp"
#include "base/mapping_guard.hpp"
#include "base/retry_interrupted.hpp"

#include <tenon/error.hpp>
#include <tenon/io/input_file.hpp>
#include <tenon/log.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tenon::io {
namespace {

std::string system_text(int code) { return std::generic_category().message(code); }

}  // namespace

std::shared_ptr<const InputFile> InputFile::open(const std::filesystem::path& path, Access access) {
  if (path.empty()) throw Error(Errc::not_found, "open", "the path is empty");
  const int descriptor = retry_interrupted([&] { return ::open(path.c_str(), read_flags); });
  if (descriptor < 0) {
    const int code = errno;
    const bool missing = code == ENOENT || code == ENOTDIR;
    throw Error(missing ? Errc::not_found : Errc::io_error, path.string(), system_text(code));
  }
  return adopt(descriptor, path, access);
}

std::shared_ptr<const InputFile> InputFile::adopt(int descriptor, const std::filesystem::path& path,
                                                  Access access) {
  Descriptor owner(descriptor);
  std::unique_ptr<InputFile> made(new InputFile(path, descriptor));
  owner.release();
  const std::shared_ptr<InputFile> file = std::move(made);
  struct stat status{};
  if (::fstat(descriptor, &status) != 0) {
    throw Error(Errc::io_error, file->path_.string(), system_text(errno));
  }
  if (!S_ISREG(status.st_mode)) {
    throw Error(Errc::not_regular_file, file->path_.string(),
                S_ISDIR(status.st_mode) ? "a folder, expected a file" : "not a regular file");
  }
  file->size_ = static_cast<std::uint64_t>(status.st_size);
  file->modified_ns_ = std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
  if (access != Access::read) file->map(access == Access::guarded);
  return file;
}

InputFile::InputFile(const std::filesystem::path& path, int descriptor)
    : path_(path), name_(path_.filename().string()), descriptor_(descriptor) {}

InputFile::~InputFile() {
  if (guard_ != nullptr) unguard(*guard_);
  if (map_ != nullptr) ::munmap(const_cast<std::byte*>(map_), static_cast<std::size_t>(size_));
  ::close(descriptor_);
}

void InputFile::map(bool is_guarded) {
  if (size_ == 0 || (is_guarded && !can_guard())) return;
  void* const pages =
      ::mmap(nullptr, static_cast<std::size_t>(size_), PROT_READ, MAP_SHARED, descriptor_, 0);
  if (pages != MAP_FAILED) {
    map_ = static_cast<const std::byte*>(pages);
    if (is_guarded) guard_ = &guard(mapped());
    return;
  }
  const int code = errno;
  if (!log_enabled()) return;
  try {
    log(LogLevel::warning,
        fmt::format("{}: cannot be mapped ({}), reading instead", name_, system_text(code)));
  } catch (...) {  // a message that finds no memory is not worth an error
  }
}

void InputFile::read(std::uint64_t offset, std::span<std::byte> to) const {
  if (offset > size_ || to.size() > size_ - offset) {
    throw Error(Errc::truncated, fmt::format("{}:{}", name_, offset),
                fmt::format("{} bytes asked for, the file has {}", to.size(), size_));
  }
  if (map_ != nullptr) {
    check_unchanged();
    std::copy_n(map_ + offset, to.size(), to.data());
    if (has_lost_pages()) check_unchanged();
    return;
  }
  std::size_t done = 0;
  while (done < to.size()) {
    constexpr std::size_t piece_bytes = std::size_t{1} << 30;  // the system reads at most 2 GiB
    const auto count = retry_interrupted([&] {
      return ::pread(descriptor_, to.data() + done, std::min(to.size() - done, piece_bytes),
                     static_cast<off_t>(offset + done));
    });
    if (count < 0) {
      throw Error(Errc::io_error, fmt::format("{}:{}", name_, offset + done), system_text(errno));
    }
    if (count == 0) {
      throw Error(Errc::io_error, fmt::format("{}:{}", name_, offset + done),
                  fmt::format("the file ends here; it had {} bytes when it was opened", size_));
    }
    done += static_cast<std::size_t>(count);
  }
}

bool InputFile::has_lost_pages() const noexcept {
  return guard_ != nullptr && guard_->is_lost.load(std::memory_order_acquire);
}

void InputFile::check_unchanged() const {
  if (has_lost_pages()) {
    throw Error(Errc::io_error, name_,
                "pages of the file were missing when they were read: it was cut short, or its "
                "storage fails");
  }
  struct stat status{};
  if (::fstat(descriptor_, &status) != 0) {
    throw Error(Errc::io_error, name_, system_text(errno));
  }
  if (static_cast<std::uint64_t>(status.st_size) != size_) {
    throw Error(Errc::io_error, name_,
                fmt::format("the file has {} bytes now; it had {} when it was opened",
                            status.st_size, size_));
  }
}

void InputFile::advise(std::uint64_t offset, std::uint64_t size_bytes,
                       Advice advice) const noexcept {
  if (map_ == nullptr || offset >= size_ || size_bytes == 0) return;
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t begin = offset / page * page;
  const std::uint64_t end = offset + std::min(size_bytes, size_ - offset);
  const int hint = advice == Advice::will_need   ? MADV_WILLNEED
                   : advice == Advice::dont_need ? MADV_DONTNEED
                                                 : MADV_SEQUENTIAL;
  if (::madvise(const_cast<std::byte*>(map_ + begin), static_cast<std::size_t>(end - begin),
                hint) == 0) {
    return;
  }
  const int code = errno;
  if (!log_enabled()) return;
  try {
    log(LogLevel::warning, fmt::format("{}: paging hint refused ({})", name_, system_text(code)));
  } catch (...) {  // a message that finds no memory is not worth an error
  }
}

}  // namespace tenon::io
