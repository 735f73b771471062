// Products of matrices whose elements are f64 or integers.
#pragma once

#include "../task.hpp"

#include <memory>

namespace tenon::cpu {

/// Of a matmul whose operands are matrices of such a type, at any strides.
std::unique_ptr<Task> make_typed_matmul(const Step& step, Compiler& compiler);

}  // namespace tenon::cpu
