#pragma once

#include <tenon/error.hpp>

#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace tenon {

/// Runs `call`, and turns failures to allocate memory or to start a thread into Errc::out_of_memory
/// at `where`. (std::bad_alloc is passed on where there is no memory even for the Error.)
template <class Call>
auto with_memory_errors(std::string_view where, Call&& call) {
  try {
    return std::forward<Call>(call)();
  } catch (const std::bad_alloc&) {
    throw Error(Errc::out_of_memory, std::string(where), "not enough memory");
  } catch (const std::system_error& error) {
    if (error.code() == std::errc::resource_unavailable_try_again ||
        error.code() == std::errc::not_enough_memory) {
      throw Error(Errc::out_of_memory, std::string(where), "not enough memory or threads");
    }
    throw;
  }
}

}  // namespace tenon
