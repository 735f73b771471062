// What an Exe keeps of its weights on disk.
#include "base/folder.hpp"

#include <tenon/error.hpp>
#include <tenon/exe.hpp>
#include <tenon/log.hpp>

#include <memory>
#include <new>
#include <utility>

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tenon::detail {
namespace {

/// Names, types and values.
std::string digest_of(const std::map<std::string, Buffer>& weights) {
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  const std::unique_ptr<XXH3_state_t, Free> state(XXH3_createState());
  if (state == nullptr) throw std::bad_alloc();
  XXH3_128bits_reset(state.get());
  for (const auto& [name, weight] : weights) {
    const std::string header = fmt::format("{} {}\n", name, to_string(weight.shape()));
    if (is_object(weight.shape().dtype())) continue;  // nothing is packed of objects
    const HostBuffer values = weight.to_host();
    XXH3_128bits_update(state.get(), header.data(), header.size());
    XXH3_128bits_update(state.get(), values.bytes(),
                        static_cast<std::size_t>(values.shape().bytes()));
  }
  const XXH128_hash_t digest = XXH3_128bits_digest(state.get());
  return fmt::format("{:016x}{:016x}", digest.high64, digest.low64);
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
  std::string digest = digest_of(weights);
  return std::make_shared<PreparedCache>(
      PreparedFile{folder / (digest + ".packed"), std::move(digest)});
}

}  // namespace tenon::detail
