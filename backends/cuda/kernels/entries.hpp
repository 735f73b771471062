#pragma once

#include <cstddef>

namespace tenon::cuda {

/// The kernels of entries.def.
enum class Kernel {
#define TENON_CUDA_KERNEL(id, Args, kind, call) id,
#include "kernels/entries.def"
#undef TENON_CUDA_KERNEL
};

inline constexpr std::size_t kernel_count = 0
#define TENON_CUDA_KERNEL(id, Args, kind, call) +1
#include "kernels/entries.def"
#undef TENON_CUDA_KERNEL
    ;

struct KernelFacts {
  const char* name;
  std::size_t args_bytes;
  bool has_barriers;
};
const KernelFacts& facts_of(Kernel kernel) noexcept;

}  // namespace tenon::cuda
