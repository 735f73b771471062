#pragma once

#include <tenon/error.hpp>
#include <tenon/io/file.hpp>

#include <utility>

namespace tenon::models {

/// The result of `call`. Throws Errc::io_error when pages of the file were lost by then, instead of
/// other errors, which may be caused by the zeros that were read.
template <class Call>
auto with_page_checks(const io::File& file, Call&& call) {
  try {
    auto result = std::forward<Call>(call)();
    file.check_pages();
    return result;
  } catch (const Error&) {
    file.check_pages();
    throw;
  }
}

}  // namespace tenon::models
