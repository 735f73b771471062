// The kernels, compiled for the CPU.
#include "emulation/emulated_kernels.hpp"

#include "emulation/block_runner.hpp"
#include "kernels/all.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

namespace tenon::cuda::emulation {
namespace {

using Body = void (*)(const Thread& thread, const void* args);

constexpr Body bodies[] = {
#define TENON_CUDA_KERNEL(id, Args, kind, call)          \
  [](const Thread& thread, const void* bytes) {          \
    const Args& args = *static_cast<const Args*>(bytes); \
    call;                                                \
  },
#include "kernels/entries.def"
#undef TENON_CUDA_KERNEL
};

}  // namespace

void run_kernel(Kernel kernel, const Grid& grid, const void* args) {
  const Body body = bodies[static_cast<std::size_t>(kernel)];
  const KernelFacts& facts = facts_of(kernel);
  if (grid.threads == 0 || grid.threads > 1024 || grid.blocks == 0) {
    throw Error(Errc::device_error, facts.name,
                fmt::format("a grid of {} blocks of {} threads", grid.blocks, grid.threads));
  }
  if (!facts.has_barriers) {
    for (unsigned block = 0; block < grid.blocks; ++block) {
      for (unsigned i = 0; i < grid.threads; ++i) {
        body(Thread(i, grid.threads, block, grid.blocks, nullptr), args);
      }
    }
    return;
  }
  BlockRunner runner(facts.name, grid.threads);
  const BlockRunner::Body run = [&](const Thread& thread) { body(thread, args); };
  for (unsigned block = 0; block < grid.blocks; ++block) runner.run(block, grid.blocks, run);
}

}  // namespace tenon::cuda::emulation
