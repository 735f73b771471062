#include "emulation/loaded_kernel.hpp"

#include "base/descriptor.hpp"
#include "emulation/thread.hpp"

#include <tenon/error.hpp>

#include <memory>
#include <string>

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

namespace tenon::cuda::emulation {
namespace {

class LoadedKernel final : public GeneratedKernel {
 public:
  using Function = void (*)(const Thread& thread, const void* args);

  LoadedKernel(std::span<const std::byte> image, std::size_t args_bytes)
      : GeneratedKernel(args_bytes), file_(memfd_create("tenon_fused", MFD_CLOEXEC)) {
    const auto size = static_cast<ssize_t>(image.size());
    if (!file_.is_open() || write(file_.get(), image.data(), image.size()) != size) {
      throw Error(Errc::out_of_memory, "cuda:emulated", "no memory for a generated kernel");
    }
    const std::string path = fmt::format("/proc/self/fd/{}", file_.get());
    library_.reset(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL));
    if (library_ != nullptr) {
      function_ = reinterpret_cast<Function>(dlsym(library_.get(), "tenon_fused"));
    }
    if (function_ == nullptr) throw Error(Errc::corrupt, "cuda:emulated", "no image of a kernel");
  }

  Function function() const noexcept { return function_; }

 private:
  struct Close {
    void operator()(void* library) const noexcept { dlclose(library); }
  };
  Descriptor file_;  ///< open as long as the library is: its path tells libraries apart
  std::unique_ptr<void, Close> library_;
  Function function_ = nullptr;
};

}  // namespace

std::shared_ptr<const GeneratedKernel> load_kernel(std::span<const std::byte> image,
                                                   std::size_t args_bytes) {
  return std::make_shared<const LoadedKernel>(image, args_bytes);
}

void run_kernel(const GeneratedKernel& kernel, const Grid& grid, const void* args) {
  const auto run = static_cast<const LoadedKernel&>(kernel).function();
  for (unsigned block = 0; block < grid.blocks; ++block) {
    for (unsigned i = 0; i < grid.threads; ++i) {
      run(Thread(i, grid.threads, block, grid.blocks, nullptr), args);
    }
  }
}

}  // namespace tenon::cuda::emulation
