// What a stage spent in each of its steps.
#pragma once

#include "session/plan.hpp"

#include <tenon/session.hpp>

#include <chrono>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::sessions {

/// "block: linear0, linear1".
std::string title_of(std::string_view function, std::span<const std::string> values);

/// From the marks that a partition left, in the order of their first ones. A step that was merged
/// into another has its bytes and flops counted there. A stage of a single step without marks is
/// one part, of `wall`; of several, none.
std::vector<StepTime::Part> parts_of(const Stage& stage, std::span<const StepMark> marks,
                                     std::chrono::nanoseconds wall);

}  // namespace tenon::sessions
