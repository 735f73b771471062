#pragma once

#include <set>
#include <string>
#include <string_view>

namespace tenon::codegen_detail {

/// Gives names of a program's text to C++: identifiers, no keyword, none of capitals alone (which C's macros have), no name
/// twice, none that the code uses itself.
class Identifiers {
 public:
  /// A name as close to `wanted` as is free. It is taken from now on.
  std::string take(std::string_view wanted);

 private:
  std::set<std::string, std::less<>> taken_;
};

/// A name for the namespace of a module's code, in the global namespace.
std::string namespace_of(std::string_view module);

/// A string literal of C++; `text` is UTF-8.
std::string cpp_string(std::string_view text);

}  // namespace tenon::codegen_detail
