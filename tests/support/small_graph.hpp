// How much memory a program of a few ops takes.
#pragma once

#include <cstddef>

namespace tenon::testing {

/// A Graph's budget for some ops. The default, 16 MB whose pages are not accessed, costs nothing but under the address
/// sanitizer, which marks all of them: half the time of a test that makes thousands of graphs.
inline constexpr std::size_t small_graph_bytes = std::size_t{128} << 10;

}  // namespace tenon::testing
