#include "base/folder.hpp"

#include "base/retry_interrupted.hpp"

#include <tenon/error.hpp>

#include <cerrno>
#include <cstdint>
#include <string_view>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tenon::io {
namespace {

/// openat2(2), for which glibc has no function.
int open_beneath(int folder, const char* name) {
  open_how how{};
  how.flags = static_cast<std::uint64_t>(read_flags);
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  constexpr int attempts = 64;  // EAGAIN: something was renamed while links were followed
  int descriptor = -1;
  for (int i = 0; i < attempts; ++i) {
    descriptor = retry_interrupted(
        [&] { return static_cast<int>(::syscall(SYS_openat2, folder, name, &how, sizeof(how))); });
    if (descriptor >= 0 || errno != EAGAIN) break;
  }
  return descriptor;
}

bool is_link(int folder, const char* name) {
  struct stat status{};
  return ::fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(status.st_mode);
}

/// Part by part, each without following a link: ELOOP where one is.
Descriptor open_without_links(int folder, std::string_view name) {
  Descriptor at;
  for (;;) {
    const std::size_t slash = name.find('/');
    const std::string part(name.substr(0, slash));
    const bool is_last = slash == std::string_view::npos;
    const int flags = is_last ? read_flags : O_PATH | O_DIRECTORY | O_CLOEXEC;
    const int from = at.is_open() ? at.get() : folder;
    Descriptor next(
        retry_interrupted([&] { return ::openat(from, part.c_str(), flags | O_NOFOLLOW); }));
    // A folder's link is reported as something that is no folder.
    if (!next.is_open() && errno == ENOTDIR && is_link(from, part.c_str())) errno = ELOOP;
    if (!next.is_open()) {
      const int code = errno;  // closing may change it
      at = Descriptor();
      errno = code;
      return next;
    }
    if (is_last) return next;
    at = std::move(next);
    name.remove_prefix(slash + 1);
  }
}

void check_owner(int descriptor, const std::filesystem::path& path) {
  struct stat status{};
  if (::fstat(descriptor, &status) != 0) {
    throw Error(Errc::io_error, path.string(), std::generic_category().message(errno));
  }
  if (status.st_uid != ::geteuid() && status.st_uid != 0) {
    throw Error(Errc::io_error, path.string(),
                fmt::format("cannot be trusted: it belongs to user {}", status.st_uid));
  }
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    throw Error(Errc::io_error, path.string(),
                fmt::format("cannot be trusted: others may write it (mode {:o}); "
                            "chmod go-w makes it private",
                            status.st_mode & 07777));
  }
}

}  // namespace

Folder::Folder(const std::filesystem::path& path)
    : path_(path.empty() ? "." : path), descriptor_(retry_interrupted([&] {
        return ::open(path_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
      })) {
  if (descriptor_.is_open()) return;
  const int code = errno;
  throw Error(code == ENOENT    ? Errc::not_found
              : code == ENOTDIR ? Errc::not_regular_file
                                : Errc::io_error,
              path_.string(), std::generic_category().message(code));
}

Descriptor Folder::open_descriptor(const std::string& name, Links links) const {
  Descriptor file;
  if (links == Links::any) {
    file = Descriptor(
        retry_interrupted([&] { return ::openat(descriptor(), name.c_str(), read_flags); }));
  } else if (links == Links::beneath) {
    file = Descriptor(open_beneath(descriptor(), name.c_str()));
  }
  // No openat2: an older kernel, or a filter of system calls that does not know it.
  const bool lacks_call =
      links == Links::beneath && !file.is_open() && (errno == ENOSYS || errno == EPERM);
  if (links == Links::none || lacks_call) {
    file = open_without_links(descriptor(), name);
    if (!file.is_open() && errno == ELOOP) errno = EXDEV;
  }
  if (!file.is_open()) fail_open(name, errno);
  return file;
}

void Folder::fail_open(const std::string& name, int code) const {
  const std::string path = (path_ / name).string();
  if (code == EXDEV) {
    throw Error(Errc::path_escape, path, "a link, which may lead out of the folder");
  }
  throw Error(code == ENOENT || code == ENOTDIR ? Errc::not_found : Errc::io_error, path,
              std::generic_category().message(code));
}

std::shared_ptr<const InputFile> Folder::open(const std::string& name, Links links,
                                              Access access) const {
  const std::filesystem::path path = path_ / name;
  return InputFile::adopt(open_descriptor(name, links).release(), path, access);
}

void Folder::check_private() const { check_owner(descriptor(), path_); }

std::shared_ptr<const InputFile> Folder::open_private(const std::string& name,
                                                      Access access) const {
  check_private();
  const std::filesystem::path path = path_ / name;
  Descriptor file = open_descriptor(name, Links::none);
  check_owner(file.get(), path);
  return InputFile::adopt(file.release(), path, access);
}

void make_private_folder(const std::filesystem::path& name) {
  const std::filesystem::path path = name.has_filename() ? name : name.parent_path();  // "cache/"
  std::error_code failure;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), failure);
  if (!failure && ::mkdir(path.c_str(), S_IRWXU) != 0 && errno != EEXIST) {
    failure.assign(errno, std::generic_category());
  }
  if (failure) throw Error(Errc::io_error, path.string(), failure.message());
}

}  // namespace tenon::io
