// Any text as a program: findings, or a program that prints to a text which reads back as itself.
#include "fuzz/memory_file.hpp"

#include <tenon/program.hpp>

#include <string>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tenon;
  try {
    Program program = parse(std::string_view(reinterpret_cast<const char*>(data), size), "fuzz");
    const std::string text = print(program);
    if (print(parse(text, "again")) != text) testing::fail("printing and reading disagree");
    verify(program);
  } catch (const Error& error) {
    if (error.code() == Errc::internal) testing::fail("an internal error");
  }
  return 0;
}
