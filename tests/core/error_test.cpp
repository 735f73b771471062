#include <tenon/error.hpp>

#include <set>
#include <string>
#include <string_view>

#include <catch2/catch.hpp>

namespace tenon {

TEST_CASE("error: what() says code, place and facts") {
  const Error error(Errc::bad_magic, "model.gguf:0", "found FUGG, expected GGUF");
  CHECK(std::string(error.what()) == "BadMagic: model.gguf:0: found FUGG, expected GGUF");
  CHECK(error.code() == Errc::bad_magic);
  CHECK(error.where() == "model.gguf:0");
  CHECK(error.message() == "found FUGG, expected GGUF");
  CHECK(std::string(Error(Errc::busy, "", "a session runs").what()) == "Busy: a session runs");
  CHECK(std::string(Error(Errc::device_unavailable, "tpu:", "no device").what()) ==
        "DeviceUnavailable: tpu: no device");
}

TEST_CASE("error: the place may be a line of the user's source") {
  const auto here = std::source_location::current();
  const Error error(Errc::shape_mismatch, here, "f32[2] and f32[3]");
  CHECK(error.where() == "error_test.cpp:" + std::to_string(here.line()));
}

TEST_CASE("error: every code has its own spelling, a class, and a number of device runtimes") {
  struct Code {
    Errc code;
    std::string_view text;
    ErrorClass kind;
  };
  const Code codes[] = {
#define TENON_ERRC(id, text, code_number, kind) {Errc::id, text, ErrorClass::kind},
#include <tenon/error_codes.def>
#undef TENON_ERRC
  };
  std::set<std::string_view> spellings;
  for (const Code& code : codes) {
    INFO(code.text);
    CHECK(spelling(code.code) == code.text);
    CHECK(spellings.insert(code.text).second);
    CHECK(error_class(code.code) == code.kind);
    const int n = number(code.code);
    CHECK((n == 11002 || n == 11003 || (n >= 11010 && n <= 11015)));
  }
}

TEST_CASE("error: whose problem it is decides a program's exit status") {
  CHECK(exit_status(Errc::shape_mismatch) == 2);
  CHECK(exit_status(Errc::truncated) == 3);
  CHECK(exit_status(Errc::device_unavailable) == 4);
  CHECK(exit_status(Errc::out_of_memory) == 5);
  CHECK(exit_status(Errc::timeout) == 6);
  CHECK(exit_status(Errc::internal) == 1);
}

}  // namespace tenon
