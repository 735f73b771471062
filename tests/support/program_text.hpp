// Programs as tests write them: functions without the header that every text begins with.
#pragma once

#include <tenon/program.hpp>

#include <string>
#include <string_view>

namespace tenon::testing {

inline constexpr std::string_view program_header =
    "# tenon 1.0\n"
    "from __future__ import annotations\n"
    "from tenon.ir import *\n"
    "module(\"test\", opset=1)\n";

/// The program of these functions.
inline Program program_of(std::string_view functions) {
  return parse(std::string(program_header) + std::string(functions), "test.tenon");
}

/// The functions of a program called "test", as text.
inline std::string functions_of(const Program& program) {
  return print(program).substr(program_header.size());
}

}  // namespace tenon::testing
