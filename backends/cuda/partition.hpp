#pragma once

#include "device.hpp"
#include "plan/launch.hpp"

#include <tenon/backend.hpp>

#include <memory>
#include <span>

namespace tenon::cuda {

/// `is_exact`: BackendOptions::exact.
std::unique_ptr<Partition> make_partition(std::shared_ptr<CudaDevice> device,
                                          const Lowered& program, std::span<const Step> steps,
                                          bool is_exact);

}  // namespace tenon::cuda
