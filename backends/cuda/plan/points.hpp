#pragma once

#include "kernels/entries.hpp"

#include <tenon/lowered.hpp>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tenon::cuda {

/// What a pointwise step computes of an element: an op of points.def, a cast or a choice.
struct PointOp {
  Kernel kernel{};      ///< of the op alone; says which list it is in
  int op = 0;           ///< its place in that list; of a choice the bytes of an element
  std::string_view id;  ///< its name there
  bool has_parameters = false;
  std::array<float, 2> reals{};            ///< parameters of ops of real numbers
  std::array<std::int64_t, 2> integers{};  ///< the same of integers, and the limits of a cast
};

/// Why no kernel of point_entries.def computes the step, or nothing.
std::optional<std::string> find_point(const Step& step, PointOp& out);

/// Whether a step can be a part of a generated kernel (plan/fused.cpp).
bool can_be_fused(const Step& step);

}  // namespace tenon::cuda
