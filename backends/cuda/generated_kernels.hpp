#pragma once

#include "driver/driver.hpp"
#include "plan/launch.hpp"

#include <tenon/prepared_cache.hpp>

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tenon::cuda {

/// Loaded kernels, with the driver that they need.
using LoadedKernels = std::vector<std::shared_ptr<const GeneratedKernel>>;

/// Compiles texts, each once for all plans of a binding; images are kept in `prepared` under the
/// text and what else they depend on. Errc::internal, with what the compiler says.
/// Kept images of an untrusted file are not run.
LoadedKernels load_generated(const DriverPtr& driver, std::span<const GeneratedText> texts,
                             PreparedCache& prepared);

/// What a text's image is kept under.
std::string kept_key(const KernelCompiler& compiler, const GeneratedText& generated);

}  // namespace tenon::cuda
