#pragma once

#include "../../task.hpp"
#include "../convolution.hpp"

#include <memory>

namespace tenon::cpu::winograd {

/// The task of a convolution by Winograd's filtering; null where it does not apply or is not
/// profitable, or results have to be exact.
std::unique_ptr<Task> make_task(const Convolution& conv, Compiler& compiler);

}  // namespace tenon::cpu::winograd
