#pragma once

#include <tenon/program.hpp>

namespace tenon {

/// Errc::unknown_op naming an op that is not registered: what is saved with it could not be read.
void require_registered_ops(const Program& program);

}  // namespace tenon
