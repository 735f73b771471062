// Any text as a program: findings, or a program that prints to a text which reads back as itself.
#include "fuzz/memory_file.hpp"
#include "fuzz/targets.hpp"

#include <tenon/program.hpp>

#include <string>
#include <string_view>

namespace tenon::testing {

void fuzz_program(Bytes bytes) {
  try {
    Program program = parse(as_text(bytes), "fuzz");
    const std::string text = print(program);
    if (print(parse(text, "again")) != text) fail("printing and reading disagree");
    verify(program);
  } catch (const Error& error) {
    if (error.code() == Errc::internal) fail("an internal error");
  }
}

}  // namespace tenon::testing
