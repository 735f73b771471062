#pragma once

#include "driver/driver.hpp"

#include <cstddef>
#include <memory>
#include <span>

namespace tenon::cuda::emulation {

/// A shared library with a function `tenon_fused` (kernels/fused.hpp). Errc::corrupt.
std::shared_ptr<const GeneratedKernel> load_kernel(std::span<const std::byte> image,
                                                   std::size_t args_bytes);
/// `args`: the kernel's words.
void run_kernel(const GeneratedKernel& kernel, const Grid& grid, const void* args);

}  // namespace tenon::cuda::emulation
