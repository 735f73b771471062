#pragma once

namespace tenon::cuda {

/// What nvcc made of kernels/kernels.cu, for cuModuleLoadData.
const void* kernel_image() noexcept;

}  // namespace tenon::cuda
