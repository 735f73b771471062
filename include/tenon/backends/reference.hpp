#pragma once

#include <tenon/backend.hpp>

namespace tenon {

/// Registers the backend "reference", which runs any op through its reference kernel: the meaning
/// that others are measured against. Call once or more often, from any thread.
void register_reference_backend();
/// What "reference" makes.
BackendPtr make_reference_backend(const BackendOptions& options);

}  // namespace tenon
