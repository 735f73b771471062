#pragma once

#include <tenon/error.hpp>
#include <tenon/io/file.hpp>

#include <utility>

namespace tenon::models {

/// The result of `call`, which makes a model of a file. Where it fails at a line of C++, the error
/// names the file instead: these lines are ours, and what is wrong is the file. An error of class
/// argument, such as shape_mismatch, then is a corrupt file: the calls are right for tensors that fit.
template <class Call>
auto placed_in(const io::File& file, Call&& call) {
  try {
    return std::forward<Call>(call)();
  } catch (const Error& error) {
    const std::string& where = error.where();
    if (where.find(".hpp:") == std::string::npos && where.find(".cpp:") == std::string::npos) throw;
    const bool is_wrong_call = error_class(error.code()) == ErrorClass::argument;
    throw Error(is_wrong_call ? Errc::corrupt : error.code(), file.path().string(),
                error.message());
  }
}

}  // namespace tenon::models
