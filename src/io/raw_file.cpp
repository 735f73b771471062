#include "raw_file.hpp"

#include "base/folder_names.hpp"
#include "base/retry_interrupted.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

namespace tenon::io {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view new_suffix = ".new";  // whole, but its id is not in its name yet

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

void rename_file(const fs::path& from, const fs::path& to) {
  std::error_code failure;
  fs::rename(from, to, failure);
  if (failure) {
    throw Error(Errc::io_error, to.string(), "cannot be renamed: " + failure.message());
  }
}

/// The process that a temporary file is named after; 0 when the name is not of an AtomicFile of
/// `file`. Names are ".<file>.<process>-<number>.tmp".
pid_t maker_of(std::string_view name, std::string_view file) {
  constexpr std::string_view extension = ".tmp";
  const std::string start = fmt::format(".{}.", file);
  if (!name.starts_with(start) || !name.ends_with(extension)) return 0;
  name.remove_prefix(start.size());
  pid_t process = 0;
  const auto [rest, error] = std::from_chars(name.data(), name.data() + name.size(), process);
  return error == std::errc() && process > 0 && *rest == '-' ? process : 0;
}

}  // namespace

bool is_raw_id(std::string_view text) noexcept {
  return text.size() == 16 && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

void remove_old_temporaries(const fs::path& path) noexcept {
  try {
    const std::string file = path.filename().string();
    const fs::path folder = folder_of(path);
    for_each_name(folder, [&](std::string_view name) {
      const pid_t maker = maker_of(name, file);
      if (maker == 0 || ::kill(maker, 0) == 0 || errno != ESRCH) return;
      // Another machine's processes, or another container's, have numbers of their own.
      const fs::path entry = folder / name;
      std::error_code failure;
      const auto written = fs::last_write_time(entry, failure);
      if (failure) return;
      const auto age = fs::file_time_type::clock::now() - written;
      if (age > std::chrono::hours(1)) fs::remove(entry, failure);
    });
  } catch (...) {
    // Without memory for a name they stay: nobody needs them to go.
  }
}

RawFile::RawFile(fs::path path) : path_(std::move(path)) {
  std::error_code failure;
  const fs::file_status status = fs::status(path_, failure);
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    throw Error(Errc::not_regular_file, path_.string(), "exists and is not a regular file");
  }
  is_link_ = fs::is_symlink(fs::symlink_status(path_, failure));
  file_.emplace(is_link_ ? path_ : with(new_suffix));
}

RawFile::~RawFile() {
  std::error_code failure;
  if (!pending_.empty()) fs::remove(pending_, failure);  // the head did not come
}

fs::path RawFile::with(std::string_view suffix) const {
  fs::path result = path_;
  result += suffix;
  return result;
}

void RawFile::lock() {
  lock_ = Descriptor(::open(folder_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!lock_.is_open()) return;
  // Some file systems have no locks: there, saves of one pair must not be made at once.
  (void)retry_interrupted([&] { return ::flock(lock_.get(), LOCK_EX); });
}

void RawFile::commit(std::string_view id) {
  lock();
  file_->commit();
  if (is_link_) return;
  std::error_code failure;
  const fs::file_status old = fs::status(path_, failure);
  if (fs::exists(old)) fs::permissions(with(new_suffix), old.permissions(), failure);
  pending_ = with(new_suffix);
  fs::path named = with(fmt::format(".{}", id));
  rename_file(pending_, named);
  pending_ = std::move(named);
  if (lock_.is_open()) ::fsync(lock_.get());  // before anybody refers to it
}

void RawFile::settle() {
  if (!is_link_) rename_file(std::exchange(pending_, {}), path_);
  remove_leftovers();
}

void RawFile::remove_leftovers() const {
  const std::string start = fmt::format("{}.", path_.filename().string());
  const fs::path folder = folder_of(path_);
  for_each_name(folder, [&](std::string_view name) {
    if (!name.starts_with(start) || !is_raw_id(name.substr(start.size()))) return;
    std::error_code failure;
    fs::remove(folder / name, failure);
  });
  remove_old_temporaries(with(new_suffix));
}

}  // namespace tenon::io
