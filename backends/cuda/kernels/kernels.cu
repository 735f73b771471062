// The kernels as nvcc compiles them: one module, functions named as in entries.def.
#include "kernels/all.hpp"

namespace tenon::cuda {

#define TENON_CUDA_KERNEL(id, Args, kind, call)                              \
  extern "C" __global__ void tenon_##id(const __grid_constant__ Args args) { \
    const Thread thread;                                                     \
    call;                                                                    \
  }
#include "kernels/entries.def"
#undef TENON_CUDA_KERNEL

}  // namespace tenon::cuda
