#pragma once

#include <tenon/error.hpp>

#include <new>
#include <string>
#include <string_view>
#include <utility>

namespace tenon {

/// Runs `call`; memory that runs out inside becomes Errc::out_of_memory, with `where` as the place.
/// (Where not even the error finds memory, it stays std::bad_alloc.)
template <class Call>
auto with_memory_errors(std::string_view where, Call&& call) {
  try {
    return std::forward<Call>(call)();
  } catch (const std::bad_alloc&) {
    throw Error(Errc::out_of_memory, std::string(where), "not enough memory");
  }
}

}  // namespace tenon
