#pragma once

#include <string>
#include <vector>

namespace tenon::tool {

/// A sentence about each environment variable TENON_* that is not read by anything.
std::vector<std::string> unread_variables();

}  // namespace tenon::tool
