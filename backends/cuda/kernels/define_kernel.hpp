// How nvcc is given a kernel of entries.def.
#pragma once

#define TENON_CUDA_BOUNDS_plain
#define TENON_CUDA_BOUNDS_barriers
#define TENON_CUDA_BOUNDS_crowded __launch_bounds__(128, 4)
#define TENON_CUDA_BOUNDS_large __launch_bounds__(1024)
#define TENON_CUDA_BOUNDS_waiting
#define TENON_CUDA_BOUNDS_late
#define TENON_CUDA_WAIT_plain wait_for_earlier()
#define TENON_CUDA_WAIT_barriers wait_for_earlier()
#define TENON_CUDA_WAIT_crowded
#define TENON_CUDA_WAIT_large
#define TENON_CUDA_WAIT_waiting
#define TENON_CUDA_WAIT_late
#define TENON_CUDA_BEGIN_plain let_next_begin()
#define TENON_CUDA_BEGIN_barriers let_next_begin()
#define TENON_CUDA_BEGIN_crowded let_next_begin()
#define TENON_CUDA_BEGIN_large let_next_begin()
#define TENON_CUDA_BEGIN_waiting let_next_begin()
#define TENON_CUDA_BEGIN_late
#define TENON_CUDA_KERNEL(id, Args, kind, call)                   \
  extern "C" __global__ void TENON_CUDA_BOUNDS_##kind tenon_##id( \
      const __grid_constant__ Args args) {                        \
    const Thread thread;                                          \
    TENON_CUDA_BEGIN_##kind;                                      \
    TENON_CUDA_WAIT_##kind;                                       \
    call;                                                         \
  }
