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
struct PreparedCache::Kept {
  explicit Kept(PreparedFile from)
      : path(std::move(from.path)),
        weights(fmt::format("tenon {}\n{}", version(), from.weights)),
        sources(std::move(from.sources)) {
    read();
  }

  void read() {
    file.reset();
    try {
      auto opened = Snapshot::open(path, {.verify_sections = false, .only_private = true});
      if (opened.text(weights_section) == weights) {
        file.emplace(std::move(opened));
      } else {
        log(LogLevel::info, path.string() + ": of other weights, or another version: rebuilt");
      }
    } catch (const Error& error) {
      if (error.code() != Errc::not_found) log(LogLevel::warning, error.what());
    }
  }

  std::optional<std::span<const std::byte>> find(const std::string& section) const {
    if (!file || file->find(section) == nullptr) return std::nullopt;
    try {
      return file->bytes(section);
    } catch (const Error& error) {
      log(LogLevel::warning, error.what());
      return std::nullopt;
    }
  }

  void write() const {
    for (const auto& source : sources) source->check_unchanged();
    SnapshotWriter writer = SnapshotWriter::make_private(path);
    writer.add(weights_section, weights);
    for (const auto& [section, bytes] : fresh) writer.add(section, bytes.bytes);
    if (file) {
      for (const Snapshot::Section& section : file->sections()) {
        if (section.name == weights_section || fresh.contains(section.name)) continue;
        if (const auto bytes = find(section.name)) writer.add(section.name, *bytes);
      }
    }
    writer.commit();
  }

  ForkAwareMutex mutex{"PreparedCache"};
  std::filesystem::path path;
  std::string weights;
  std::vector<std::shared_ptr<const io::InputFile>> sources;
  std::optional<Snapshot> file;
  std::map<std::string, Bytes> fresh;  // by section; not in the file yet
  bool failed = false;
};

PreparedCache::PreparedCache(PreparedFile file) : kept_(std::make_unique<Kept>(std::move(file))) {}
PreparedCache::PreparedCache() = default;
PreparedCache::~PreparedCache() = default;

std::shared_ptr<const void> PreparedCache::get(const std::string& key, const Make& make) {
  const std::scoped_lock lock(mutex_);
  auto& entry = entries_[key];
  if (!entry) entry = make();
  return entry;
}

std::optional<PreparedCache::Bytes> PreparedCache::kept(const std::string& key) const {
  if (!kept_) return std::nullopt;
  const std::scoped_lock lock(kept_->mutex);
  const std::string section = section_of(key);
  if (const auto fresh = kept_->fresh.find(section); fresh != kept_->fresh.end()) {
    return fresh->second;
  }
  if (const auto bytes = kept_->find(section)) return Bytes{*bytes, kept_->file->keeper()};
  return std::nullopt;
}

std::optional<PreparedCache::Bytes> PreparedCache::kept(const std::string& key,
                                                        std::size_t size_bytes) const {
  auto found = kept(key);
  return found && found->bytes.size() == size_bytes ? found : std::nullopt;
}

void PreparedCache::keep(const std::string& key, Bytes bytes) {
  const std::string section = section_of(key);
  if (!kept_ || !snapshot::is_name(section)) return;
  const std::scoped_lock lock(kept_->mutex);
  if (!kept_->failed) kept_->fresh.insert_or_assign(section, std::move(bytes));
}

void PreparedCache::save() {
  if (!kept_) return;
  const std::scoped_lock lock(kept_->mutex);
  if (kept_->fresh.empty()) return;
  try {
    kept_->write();
    kept_->fresh.clear();
    kept_->read();
  } catch (const Error& error) {
    log(LogLevel::warning, error.what());
    kept_->failed = true;
    kept_->fresh.clear();
  }
}

}  // namespace tenon
