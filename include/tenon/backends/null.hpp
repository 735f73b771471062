#pragma once

namespace tenon {

/// Registers the backend "null", which refuses every step. Copy its source to start a backend.
void register_null_backend();

}  // namespace tenon
