#include "driver/kernel_image.hpp"

// The file becomes a part of this object.
__asm__(
    ".section .rodata\n"
    ".balign 64\n"
    ".local tenon_cuda_kernels\n"
    "tenon_cuda_kernels:\n"
    ".incbin \"" TENON_CUDA_IMAGE
    "\"\n"
    ".byte 0\n"
    ".text\n");
extern "C" const unsigned char tenon_cuda_kernels[];

namespace tenon::cuda {

const void* kernel_image() noexcept { return tenon_cuda_kernels; }

}  // namespace tenon::cuda
