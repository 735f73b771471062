#pragma once

#include "../task.hpp"

#include <memory>

namespace tenon::cpu {

/// The task of a Conv2dFilterBackward of dense f32 whose groups have few channels, or null.
std::unique_ptr<Task> make_plane_filter_backward(const Step& step, Compiler& compiler);

}  // namespace tenon::cpu
