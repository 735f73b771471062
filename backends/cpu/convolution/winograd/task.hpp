#pragma once

#include "../../task.hpp"
#include "../convolution.hpp"

#include <memory>

namespace tenon::cpu::winograd {

/// The task of a convolution that goes this way; null for one that does not: its sizes do not fit
/// or would gain nothing, its filter is no constant, or results are to be exact.
std::unique_ptr<Task> make_task(const Convolution& conv, Compiler& compiler);

}  // namespace tenon::cpu::winograd
