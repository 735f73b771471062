#pragma once

#include "device.hpp"
#include "plan/launch.hpp"

#include <tenon/backend.hpp>

#include <memory>
#include <span>

namespace tenon::cuda {

std::unique_ptr<Partition> make_partition(std::shared_ptr<CudaDevice> device,
                                          const Lowered& program, std::span<const Step> steps);

}  // namespace tenon::cuda
