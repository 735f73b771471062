#pragma once

#include <tenon/error.hpp>

#include <string>

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

}  // namespace tenon::testing
