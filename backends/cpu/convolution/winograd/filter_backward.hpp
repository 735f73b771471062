#pragma once

#include "../../task.hpp"

#include <memory>

namespace tenon::cpu::winograd {

/// The task of a Conv2dFilterBackward in f32 by Winograd's filtering; null where it does not apply or
/// is not profitable, or results have to be exact.
std::unique_ptr<Task> make_filter_backward(const Step& step, Compiler& compiler);

}  // namespace tenon::cpu::winograd
