// Whether steps are still those that a partition was saved for.
#pragma once

#include <tenon/lowered.hpp>

#include <span>
#include <string>

namespace tenon::sessions {

/// XXH3-64, in hexadecimal digits, of all that steps say: ops, shapes, and where operands are.
std::string digest_of(std::span<const Step> steps, const Lowered& program);

}  // namespace tenon::sessions
