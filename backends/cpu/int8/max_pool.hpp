#pragma once

#include "../task.hpp"

#include <tenon/lowered.hpp>

#include <memory>

namespace tenon::cpu {

/// A MaxPool2d of codes: image and output are u8 and have the same scale.
std::unique_ptr<Task> make_int8_max_pool(const Step& step);

}  // namespace tenon::cpu
