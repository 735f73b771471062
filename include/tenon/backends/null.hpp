#pragma once

#include <tenon/backend.hpp>

namespace tenon {

/// Registers the backend "null", which refuses every step. Copy its source to start a backend.
void register_null_backend();
/// What "null" makes.
BackendPtr make_null_backend(const BackendOptions& options);

}  // namespace tenon
