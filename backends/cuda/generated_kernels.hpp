#pragma once

#include "driver/driver.hpp"
#include "plan/launch.hpp"

#include <tenon/prepared_cache.hpp>

#include <memory>
#include <span>
#include <vector>

namespace tenon::cuda {

/// Loaded kernels, with the driver that they need.
using LoadedKernels = std::vector<std::shared_ptr<const GeneratedKernel>>;

/// Compiles texts, each once for all plans of a binding; images are kept in `prepared` under the
/// text and what else they depend on. Errc::internal, with what the compiler says.
LoadedKernels load_generated(const DriverPtr& driver, std::span<const GeneratedText> texts,
                             PreparedCache& prepared);

}  // namespace tenon::cuda
