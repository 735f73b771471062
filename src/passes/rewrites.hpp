#pragma once

#include "passes/function_editor.hpp"

namespace tenon::passes {

#define TENON_REWRITE(file, pattern, replacement) \
  int rewrite_##file(Program& program, FunctionEditor& editor);
#include "passes/rewrites.def"
#undef TENON_REWRITE

}  // namespace tenon::passes
