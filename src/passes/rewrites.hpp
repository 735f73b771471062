#pragma once

#include <tenon/optimize.hpp>

namespace tenon::passes {

#define TENON_REWRITE(file, pattern, replacement) \
  int rewrite_##file(Program& program, Function& function);
#include "passes/rewrites.def"
#undef TENON_REWRITE

}  // namespace tenon::passes
