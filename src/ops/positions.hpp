// Positions of a batch in its keys or in its cache: one for all rows, or one for each.
#pragma once

#include <tenon/error.hpp>
#include <tenon/host_view.hpp>
#include <tenon/op.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <fmt/format.h>

namespace tenon {

/// Row by row. Errc::out_of_range, with the row where each has its own, unless `steps` positions
/// from there on are within [0, capacity).
inline std::vector<std::int64_t> read_positions(std::string_view op, const HostView& position,
                                                std::int64_t rows, std::int64_t steps,
                                                std::int64_t capacity) {
  const bool is_own = position.shape.rank() == 1;
  std::vector<std::int64_t> result(static_cast<std::size_t>(rows));
  for (std::int64_t b = 0; b < (is_own ? rows : 1); ++b) {
    const std::int64_t past =
        load_as_int64(DType::i32, position.data + (is_own ? b * position.strides[0] : 0));
    if (past < 0 || past + steps > capacity) {
      fail(Errc::out_of_range, op,
           fmt::format("{}positions [{}, {}) outside [0, {})",
                       is_own ? fmt::format("row {}: ", b) : "", past, past + steps, capacity));
    }
    if (is_own) {
      result[static_cast<std::size_t>(b)] = past;
    } else {
      result.assign(result.size(), past);
    }
  }
  return result;
}

}  // namespace tenon
