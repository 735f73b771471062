#include "snapshot/snapshot_format.hpp"

#include <tenon/error.hpp>
#include <tenon/io/input_file.hpp>
#include <tenon/log.hpp>
#include <tenon/prepared_cache.hpp>
#include <tenon/snapshot.hpp>
#include <tenon/version.hpp>

#include <mutex>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tenon {
namespace {

constexpr std::string_view weights_section = "weights";
// Prefix of each key, so that none can be mistaken for another section.
constexpr std::string_view key_prefix = "of ";

std::string section_of(const std::string& key) { return std::string(key_prefix) + key; }

}  // namespace

/// A snapshot: one section that identifies the weights, and one for each key.
class PreparedCache::File {
 public:
  explicit File(PreparedFile from)
      : path_(std::move(from.path)),
        weights_(fmt::format("tenon {}\n{}", version(), from.weights)),
        sources_(std::move(from.sources)) {
    read();
  }

  std::optional<Bytes> find(const std::string& section) const {
    if (!snapshot_ || snapshot_->find(section) == nullptr) return std::nullopt;
    try {
      return Bytes{snapshot_->bytes(section), snapshot_->keeper()};
    } catch (const Error& error) {
      log(LogLevel::warning, error.what());
      return std::nullopt;
    }
  }

  /// Writes what is in `fresh`, by section, and what is in the file already.
  void write(const std::map<std::string, Bytes>& fresh) {
    for (const auto& source : sources_) source->check_unchanged();
    SnapshotWriter writer = SnapshotWriter::make_private(path_);
    writer.add(weights_section, weights_);
    for (const auto& [section, bytes] : fresh) writer.add(section, bytes.bytes);
    if (snapshot_) {
      for (const Snapshot::Section& section : snapshot_->sections()) {
        if (section.name == weights_section || fresh.contains(section.name)) continue;
        if (const auto found = find(section.name)) writer.add(section.name, found->bytes);
      }
    }
    writer.commit();
    read();
  }

 private:
  void read() {
    snapshot_.reset();
    try {
      auto opened = Snapshot::open(path_, {.verify_sections = false, .only_private = true});
      if (opened.text(weights_section) == weights_) {
        snapshot_.emplace(std::move(opened));
      } else {
        log(LogLevel::info, path_.string() + ": of other weights, or another version: rebuilt");
      }
    } catch (const Error& error) {
      if (error.code() != Errc::not_found) log(LogLevel::warning, error.what());
    }
  }

  std::filesystem::path path_;
  std::string weights_;
  std::vector<std::shared_ptr<const io::InputFile>> sources_;
  std::optional<Snapshot> snapshot_;
};

PreparedCache::PreparedCache() = default;
PreparedCache::PreparedCache(std::map<std::string, Bytes> kept) : kept_(std::move(kept)) {}
PreparedCache::PreparedCache(PreparedFile file) : file_(std::make_unique<File>(std::move(file))) {}
PreparedCache::~PreparedCache() = default;

std::shared_ptr<const void> PreparedCache::get(const std::string& key, const Make& make) {
  const std::scoped_lock lock(mutex_);
  auto& entry = entries_[key];
  if (!entry) entry = make();
  return entry;
}

std::optional<PreparedCache::Bytes> PreparedCache::kept(const std::string& key) const {
  const std::scoped_lock lock(kept_mutex_);
  if (const auto found = kept_.find(key); found != kept_.end()) return found->second;
  return file_ ? file_->find(section_of(key)) : std::nullopt;
}

std::optional<PreparedCache::Bytes> PreparedCache::kept(const std::string& key,
                                                        std::size_t size_bytes) const {
  auto found = kept(key);
  return found && found->bytes.size() == size_bytes ? found : std::nullopt;
}

void PreparedCache::keep(const std::string& key, Bytes bytes) {
  const std::scoped_lock lock(kept_mutex_);
  kept_.insert_or_assign(key, std::move(bytes));
  is_saved_ = false;
}

void PreparedCache::save() {
  if (!file_) return;
  const std::scoped_lock lock(kept_mutex_);
  if (is_saved_ || has_failed_) return;
  std::map<std::string, Bytes> fresh;
  for (const auto& [key, bytes] : kept_) {
    std::string section = section_of(key);
    if (snapshot::is_name(section)) fresh.emplace(std::move(section), bytes);
  }
  try {
    if (!fresh.empty()) file_->write(fresh);
    is_saved_ = true;
    // The bytes are in the file now.
    std::erase_if(kept_,
                  [&](const auto& entry) { return fresh.contains(section_of(entry.first)); });
  } catch (const Error& error) {
    log(LogLevel::warning, error.what());
    has_failed_ = true;
  }
}

}  // namespace tenon
