// Activations that other kernels apply in the same go.
#pragma once

#include "elementwise.hpp"

#include <tenon/lowered.hpp>

#include <optional>

namespace tenon::cpu {

struct UnaryCall {
  Unary function = Unary::relu;
  UnaryParameters parameters;
};

/// The function that a step applies to its only input, or nothing if it is none of those.
std::optional<UnaryCall> unary_of(const Step& step);

}  // namespace tenon::cpu
