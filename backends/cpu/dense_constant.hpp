#pragma once

#include "prepared.hpp"

#include <memory>

namespace tenon::cpu {

/// Has a view of a constant copied as a dense HostBuffer, for Compiler::prepare.
std::shared_ptr<const Recipe> dense_constant();

}  // namespace tenon::cpu
