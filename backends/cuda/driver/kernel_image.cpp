#include "driver/kernel_image.hpp"

// Files become a part of this object, with a zero behind each.
#define TENON_CUDA_EMBED(symbol, file) \
  __asm__(                             \
      ".section .rodata\n"             \
      ".balign 64\n"                   \
      ".local " #symbol "\n" #symbol   \
      ":\n"                            \
      ".incbin \"" file                \
      "\"\n"                           \
      ".byte 0\n"                      \
      ".text\n");                      \
  extern "C" const char symbol[];

TENON_CUDA_EMBED(tenon_cuda_kernels, TENON_CUDA_IMAGES "/kernels.fatbin")
TENON_CUDA_EMBED(tenon_cuda_points, TENON_CUDA_IMAGES "/points.fatbin")
#define TENON_CUDA_HEADER(id, name) \
  TENON_CUDA_EMBED(tenon_cuda_header_##id, TENON_CUDA_SOURCES "/" name)
#include "kernels/headers.def"
#undef TENON_CUDA_HEADER

namespace tenon::cuda {

std::array<const void*, 2> kernel_images() noexcept {
  return {tenon_cuda_kernels, tenon_cuda_points};
}

std::span<const KernelHeader> kernel_headers() noexcept {
  static constexpr KernelHeader headers[] = {
#define TENON_CUDA_HEADER(id, name) {name, tenon_cuda_header_##id},
#include "kernels/headers.def"
#undef TENON_CUDA_HEADER
  };
  return headers;
}

}  // namespace tenon::cuda
