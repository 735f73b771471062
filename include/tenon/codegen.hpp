#pragma once

#include <tenon/program.hpp>

#include <string>

namespace tenon {

struct CodegenOptions {
  /// The file of the program's text, to which #line directives map the code back; empty: none.
  std::string text_file{};
  /// The file that is written, for the lines that come from no text.
  std::string output_file{};
  /// Whether main() follows: a program that reads its inputs from a file and writes its results.
  bool with_main = false;
};

/// C++ source that computes what the program computes: a class `Model` with a member function for
/// each function of the program and a line for each instruction, which calls Eager::run(). It needs
/// <tenon/eager.hpp> and the library, but no text, parser or plan, and is meant to be read and
/// edited (docs/codegen.md).
///
/// Errors: those of verify(); Errc::unsupported, at the line, for an op that the library does not
/// define, whose struct has no known name, and for a program with folded constants, which are in no
/// file.
std::string codegen(const Program& program, const CodegenOptions& options = {});

}  // namespace tenon
