#pragma once

#include <tenon/backend.hpp>

namespace tenon {

/// Registers the backend "null", which refuses every step. A template for new backends.
void register_null_backend();
/// Makes a "null" backend.
BackendPtr make_null_backend(const BackendOptions& options);

}  // namespace tenon
