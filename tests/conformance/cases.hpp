// What every backend is compared on.
#pragma once

#include "support/op_cases.hpp"

#include <vector>

namespace tenon::testing {

/// The committed cases as they are and, of other floating types, again in f32 and f64; and some that
/// are made here.
std::vector<OpCase> all_cases();

/// The largest magnitude of the finite elements.
double largest(const HostBuffer& array);

}  // namespace tenon::testing
