#pragma once

#include <tenon/error.hpp>
#include <tenon/io/file.hpp>

#include <utility>

namespace tenon::models {

/// What `call` gives. Errc::io_error where pages of the file were lost by then: whatever else went
/// wrong may come from the zeros that stood in their place.
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
