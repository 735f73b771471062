// Convolutions in f64: windows as columns, block by block, times the filter.
#pragma once

#include "../task.hpp"

#include <memory>

namespace tenon::cpu {

/// Of a step of Conv2d, ConvTranspose2d and Conv2dFilterBackward; all operands f64 and dense, but
/// for the x of Conv2d.
std::unique_ptr<Task> make_conv2d_f64(const Step& step, Compiler& compiler);
std::unique_ptr<Task> make_conv_transpose2d_f64(const Step& step, Compiler& compiler);
std::unique_ptr<Task> make_conv2d_filter_backward_f64(const Step& step, Compiler& compiler);

}  // namespace tenon::cpu
