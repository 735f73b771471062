#include "base/folder.hpp"

#include <tenon/error.hpp>
#include <tenon/io/load.hpp>
#include <tenon/memory_errors.hpp>

#include <system_error>

#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tenon::io {
namespace {

constexpr std::uint64_t small_bytes = std::uint64_t{64} << 10;

HostBuffer loaded(const TensorEntry& entry) {
  if (entry.size_bytes > small_bytes) return entry.data();
  HostBuffer copy = HostBuffer::uninitialized(entry.shape);
  entry.read({copy.view().data, entry.size_bytes});
  return copy;
}

std::map<std::string, Buffer> load_all(const File& file, std::span<const std::string> names,
                                       const DevicePtr& device, const LoadOptions& options) {
  LoadProgress progress;
  std::map<std::string, const TensorEntry*> entries;
  for (const std::string& name : names) {
    if (name.empty()) continue;
    const auto [entry, added] = entries.emplace(name, &file.at(name));
    if (added) progress.total_bytes += entry->second->size_bytes;
  }
  std::map<std::string, Buffer> buffers;
  for (const auto& [name, entry] : entries) {
    if (options.stop.stop_requested()) {
      throw Error(Errc::cancelled, file.path().filename().string(),
                  "loading was cancelled before '" + name + "'");
    }
    buffers.emplace(name, loaded(*entry).to_device(device));
    progress.done_bytes += entry->size_bytes;
    progress.tensor = name;
    if (options.progress) options.progress(progress);
  }
  return buffers;
}

}  // namespace

PreparedFile prepared_file(const std::filesystem::path& folder, const File& model) {
  make_private_folder(folder);
  Folder(folder).check_private();
  std::error_code failure;
  const auto absolute = std::filesystem::canonical(model.path(), failure);
  const std::string path = failure ? model.path().string() : absolute.string();
  std::string weights = path;
  for (const auto& shard : model.shards()) {
    weights += fmt::format("\n{} {} {}", shard->name(), shard->size(), shard->modified_ns());
  }
  return {folder / fmt::format("{}-{:016x}.packed", model.path().filename().string(),
                               XXH3_64bits(path.data(), path.size())),
          std::move(weights),
          {model.shards().begin(), model.shards().end()}};
}

std::map<std::string, Buffer> load_buffers(const File& file, std::span<const std::string> names,
                                           const DevicePtr& device, const LoadOptions& options) {
  return with_memory_errors("load_buffers", [&] { return load_all(file, names, device, options); });
}

std::map<std::string, Buffer> load_buffers(const File& file, const DevicePtr& device,
                                           const LoadOptions& options) {
  std::vector<std::string> names;
  for (const TensorEntry& entry : file.tensors()) names.push_back(entry.name);
  return load_buffers(file, names, device, options);
}

}  // namespace tenon::io
