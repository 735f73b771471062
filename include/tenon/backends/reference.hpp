#pragma once

#include <tenon/backend.hpp>

namespace tenon {

/// Registers the backend "reference", which runs every op with its reference kernel: the definition
/// of correct results for other backends. Idempotent and thread-safe.
void register_reference_backend();
/// Makes a "reference" backend.
BackendPtr make_reference_backend(const BackendOptions& options);

}  // namespace tenon
