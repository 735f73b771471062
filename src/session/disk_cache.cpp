// What an Exe keeps of its weights on disk.
#include "base/digest.hpp"
#include "base/folder.hpp"

#include <tenon/error.hpp>
#include <tenon/exe.hpp>
#include <tenon/log.hpp>

#include <memory>
#include <utility>

#include <fmt/format.h>

namespace tenon::detail {
namespace {

/// Of names, types and values.
std::string digest_of_weights(const std::map<std::string, Buffer>& weights) {
  Digest digest;
  for (const auto& [name, weight] : weights) {
    if (is_object(weight.shape().dtype())) continue;  // nothing is packed of objects
    digest.add(fmt::format("{} {}", name, to_string(weight.shape())));
    const HostBuffer values = weight.to_host();
    digest.add(values.bytes(), static_cast<std::size_t>(values.shape().bytes()));
  }
  return digest.text();
}

}  // namespace

std::shared_ptr<PreparedCache> disk_cache(const std::filesystem::path& folder,
                                          const std::map<std::string, Buffer>& weights) {
  if (folder.empty()) return nullptr;
  try {
    io::make_private_folder(folder);
  } catch (const Error& error) {
    log(LogLevel::warning, error.what());
    return nullptr;
  }
  std::string digest = digest_of_weights(weights);
  return std::make_shared<PreparedCache>(
      PreparedFile{folder / (digest + ".packed"), std::move(digest)});
}

}  // namespace tenon::detail
