#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace tenon::cuda {

/// What nvcc made of kernels/kernels.cu and points.cu, for cuModuleLoadData.
std::array<const void*, 2> kernel_images() noexcept;

/// A header of kernels/ that generated texts include, by the name under which they do.
struct KernelHeader {
  std::string_view name;
  const char* text;
};
std::span<const KernelHeader> kernel_headers() noexcept;

}  // namespace tenon::cuda
