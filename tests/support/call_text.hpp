// Programs of one call, written with the types of its operands: "linear(f32[2, 3], f32[4, 3])".
#pragma once

#include "support/program_text.hpp"

#include <string>
#include <string_view>

namespace tenon::testing {

/// A program whose inputs are the call's operands and whose result is the call's.
inline Program program_of_call(std::string_view call) {
  const std::size_t open = call.find('(');
  std::string parameters, statement(call.substr(0, open + 1)), argument;
  int depth = 0, operands = 0;
  for (const char c : call.substr(open + 1)) {
    depth += c == '[' ? 1 : c == ']' ? -1 : 0;
    if ((c != ',' && c != ')') || depth > 0) {
      if (c != ' ' || !argument.empty()) argument.push_back(c);
      continue;
    }
    if (argument.find('=') == std::string::npos && !argument.empty()) {
      const std::string name = "x" + std::to_string(operands++);
      parameters += (operands > 1 ? ", " : "") + name + ": " + argument;
      argument = name;
    }
    statement += argument + (c == ',' ? ", " : ")");
    argument.clear();
  }
  return program_of("def forward(" + parameters + "):\n    y = " + statement + "\n    return y\n");
}

}  // namespace tenon::testing
