#include <set>
#include <string>

#include <catch2/catch.hpp>

#include <tenon/error.hpp>

namespace tenon {

TEST_CASE("error: what() says code, place and facts") {
  const Error error(Errc::bad_magic, "model.gguf:0", "found FUGG, expected GGUF");
  CHECK(std::string(error.what()) == "BadMagic: model.gguf:0: found FUGG, expected GGUF");
  CHECK(error.code() == Errc::bad_magic);
  CHECK(error.where() == "model.gguf:0");
  CHECK(error.message() == "found FUGG, expected GGUF");
  CHECK(std::string(Error(Errc::busy, "", "a session runs").what()) == "Busy: a session runs");
}

TEST_CASE("error: the place may be a line of the user's source") {
  const auto here = std::source_location::current();
  const Error error(Errc::shape_mismatch, here, "f32[2] and f32[3]");
  CHECK(error.where() == "error_test.cpp:" + std::to_string(here.line()));
}

TEST_CASE("error: spellings are unique, numbers are those of device runtimes") {
  std::set<std::string_view> spellings;
#define TENON_ERRC(id, spelling_text, code_number, kind)  \
  CHECK(spelling(Errc::id) == spelling_text);             \
  CHECK(spellings.insert(spelling(Errc::id)).second);     \
  CHECK(error_class(Errc::id) == ErrorClass::kind);       \
  CHECK((number(Errc::id) == 11002 || number(Errc::id) == 11003 || \
         (number(Errc::id) >= 11010 && number(Errc::id) <= 11015)));
#include <tenon/error_codes.def>
#undef TENON_ERRC
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
