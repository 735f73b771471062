#pragma once

#include <tenon/error.hpp>

#include <string>
#include <string_view>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon::testing {

/// Checks that `call` throws tenon::Error with this code; returns its what().
template <class Call>
std::string expect_error(Errc code, Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    INFO(error.what());
    CHECK(spelling(error.code()) == spelling(code));
    return error.what();
  }
  FAIL_CHECK("no error, expected " << spelling(code));
  return {};
}

/// Whether the text has this part; a check that fails prints both.
inline bool contains(const std::string& text, std::string_view part) {
  const bool found = text.find(part) != std::string::npos;
  if (!found) {
    UNSCOPED_INFO(text << "\n  should hold: " << part);
  }
  return found;
}

/// Checks that the text has each of these parts.
inline void check_contains(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) CHECK(contains(text, part));
}

}  // namespace tenon::testing
