#include <tenon/error.hpp>
#include <tenon/io/load.hpp>

namespace tenon::io {

std::map<std::string, Buffer> load_buffers(const File& file, std::span<const std::string> names,
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
    buffers.emplace(name, entry->data().to_device(device));
    progress.done_bytes += entry->size_bytes;
    progress.tensor = name;
    if (options.progress) options.progress(progress);
  }
  return buffers;
}

}  // namespace tenon::io
