// Commands whose work the Python package does.
#pragma once

#include <string>
#include <vector>

namespace tenon::tool {

/// Runs `python3 -m MODULE ARGUMENTS`, or the interpreter that TENON_PYTHON names, with this program's standard streams, and
/// returns its exit status; `is_quiet` drops what it prints to standard output. Errc::unavailable where there is no such interpreter or it has no package tenon.
int run_python(const std::string& module, const std::vector<std::string>& arguments, bool is_quiet);

}  // namespace tenon::tool
