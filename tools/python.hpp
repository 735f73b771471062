// Commands whose work the Python package does.
#pragma once

#include <string>
#include <vector>

namespace tenon::tool {

/// Runs `python3 -m MODULE ARGUMENTS`, or the interpreter that TENON_PYTHON names, with this program's standard streams,
/// and returns its exit status. With `json`, `--json` is an argument, too; nothing but its error, as JSON, goes to
/// standard output. Errors: unavailable where there is no such interpreter or it has no package tenon; internal where a
/// signal ended it, or, with `json`, where it failed without a word.
int run_python(const std::string& module, std::vector<std::string> arguments, bool json);

}  // namespace tenon::tool
