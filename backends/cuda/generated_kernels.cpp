#include "generated_kernels.hpp"

#include <tenon/error.hpp>

#include <cstddef>
#include <string>
#include <utility>

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tenon::cuda {
namespace {

std::shared_ptr<const GeneratedKernel> load_kept(Driver& driver, const std::string& key,
                                                 std::size_t args_bytes,
                                                 const PreparedCache& prepared) {
  const auto kept = prepared.kept(key);
  if (!kept || !kept->is_trusted) return nullptr;
  try {
    return driver.load(kept->bytes, args_bytes);
  } catch (const Error& error) {
    if (error.code() != Errc::corrupt) throw;
    return nullptr;
  }
}

std::shared_ptr<const GeneratedKernel> load_one(Driver& driver, const std::string& key,
                                                const GeneratedText& generated,
                                                PreparedCache& prepared) {
  if (auto kept = load_kept(driver, key, generated.args_bytes, prepared)) return kept;
  const auto image = std::make_shared<const std::vector<std::byte>>(
      driver.kernel_compiler().compiler->compile(generated.text));
  auto loaded = driver.load(*image, generated.args_bytes);
  prepared.keep(key, {*image, image});
  return loaded;
}

/// The driver goes last.
struct Owned {
  DriverPtr driver;
  std::shared_ptr<const GeneratedKernel> kernel;
};

}  // namespace

std::string kept_key(const KernelCompiler& compiler, const GeneratedText& generated) {
  const std::string& text = generated.text;
  const XXH128_hash_t digest = XXH3_128bits(text.data(), text.size());
  return fmt::format("cuda kernel {:016x}{:016x} {}", digest.high64, digest.low64,
                     compiler.identity());
}

LoadedKernels load_generated(const DriverPtr& driver, std::span<const GeneratedText> texts,
                             PreparedCache& prepared) {
  LoadedKernels loaded;
  for (const GeneratedText& generated : texts) {
    const std::string key = kept_key(*driver->kernel_compiler().compiler, generated);
    const std::string of_driver = fmt::format("{} {}", static_cast<const void*>(driver.get()), key);
    const auto owned = prepared.get(of_driver, [&] {
      return std::make_shared<const Owned>(
          Owned{driver, load_one(*driver, key, generated, prepared)});
    });
    const auto& kernel = static_cast<const Owned*>(owned.get())->kernel;
    loaded.emplace_back(owned, kernel.get());
  }
  return loaded;
}

}  // namespace tenon::cuda
