// A pass over the steps of a partition: element-wise steps in a row as one, in blocks of L1.
#pragma once

#include "lower/point_groups.hpp"

#include <memory>
#include <span>
#include <vector>

namespace tenon::cpu {

using lowering::PointGroup;

/// group_points() of the steps that are computed in blocks. `own` are the steps to change; see
/// for_each_body.
std::vector<std::unique_ptr<const PointGroup>> fuse_points(const Lowered& program,
                                                           std::span<const Step> steps,
                                                           std::vector<Step>& own);

}  // namespace tenon::cpu
