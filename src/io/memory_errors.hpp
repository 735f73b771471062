#pragma once

#include <tenon/error.hpp>

#include <filesystem>
#include <new>
#include <utility>

namespace tenon::io {

/// Runs `call`; memory that runs out inside becomes Errc::out_of_memory, with `path` as the place.
/// (Where not even the error finds memory, it stays std::bad_alloc.)
template <class Call>
auto with_memory_errors(const std::filesystem::path& path, Call&& call) {
  try {
    return std::forward<Call>(call)();
  } catch (const std::bad_alloc&) {
    throw Error(Errc::out_of_memory, path.string(), "not enough memory");
  }
}

}  // namespace tenon::io
