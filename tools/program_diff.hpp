#pragma once

#include <tenon/program.hpp>

#include <string>
#include <vector>

namespace tenon::tool {

/// Where two programs differ in structure, as lines like those of a unified diff: ops, attributes,
/// types, constants and operands count; names of values do not, nor the order of instructions that
/// do not depend on each other. The rules are those of tenon.ir.diff, and so are the lines.
std::vector<std::string> differences(const Program& a, const Program& b);

}  // namespace tenon::tool
