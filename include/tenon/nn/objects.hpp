#pragma once

#include <tenon/nn/generator.hpp>
#include <tenon/nn/growing_cache.hpp>
#include <tenon/object.hpp>

namespace tenon::nn {

/// Makes the classes "Generator" and "KvCache" (tenon/nn/generator.hpp, growing_cache.hpp) and their
/// ops known to programs, and the CPU backend's kernels for them. Doing so again does nothing.
void register_objects();

}  // namespace tenon::nn
