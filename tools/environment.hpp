#pragma once

#include <string>
#include <vector>

namespace tenon::tool {

/// A sentence on each environment variable TENON_* that nothing reads.
std::vector<std::string> unread_variables();

}  // namespace tenon::tool
