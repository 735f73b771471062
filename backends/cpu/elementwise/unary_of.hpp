// Activations that other kernels fuse.
#pragma once

#include "elementwise.hpp"

#include <tenon/lowered.hpp>

#include <optional>

namespace tenon::cpu {

struct UnaryCall {
  Unary function = Unary::relu;
  UnaryParameters parameters;
};

/// The attributes of an op of unary.def, by their names: the same whether it runs alone or merged.
template <class Op>
UnaryParameters parameters_of(const Op& op) {
  if constexpr (requires { op.alpha; }) {
    static_assert(Op::fields.size() == 1);
    return {static_cast<float>(op.alpha), 0};
  } else if constexpr (requires { op.min; }) {
    static_assert(Op::fields.size() == 2);
    return {static_cast<float>(op.min), static_cast<float>(op.max)};
  } else {
    static_assert(Op::fields.size() == 0, "say which attributes these are");
    return {};
  }
}

/// The function that a step applies to its only input, or nothing if it is none of those.
std::optional<UnaryCall> unary_of(const Step& step);

}  // namespace tenon::cpu
