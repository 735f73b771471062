#include <tenon/error.hpp>
#include <tenon/nn/attention.hpp>

#include <fmt/format.h>

namespace tenon::nn::detail {

std::int64_t part_of_rows(std::int64_t rows, std::int64_t by, const WeightsView& layer,
                          const std::source_location& where) {
  if (by > 0 && rows > 0 && rows % by == 0) return rows / by;
  throw Error(Errc::shape_mismatch, where,
              fmt::format("'{}' of {} has {} rows, which {} does not divide",
                          layer.full_name("weight"), layer.origin(), rows, by));
}

}  // namespace tenon::nn::detail
