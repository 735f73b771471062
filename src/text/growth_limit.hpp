#pragma once

#include <tenon/error.hpp>

#include <algorithm>
#include <cstddef>

#include <fmt/format.h>

namespace tenon::text {

/// How long the steps of a tokenizer's file may make a text: each of them may lengthen it several times, so that a
/// few would fill the memory.
class GrowthLimit {
 public:
  explicit GrowthLimit(std::size_t bytes) : most_(std::min(most_of_all, 1024 + 64 * bytes)) {}

  /// Errors: limit_exceeded.
  void check(std::size_t bytes) const {
    if (bytes <= most_) return;
    throw Error(Errc::limit_exceeded, "tokenizer",
                fmt::format("the steps of the tokenizer make more than {} bytes of a text", most_));
  }

 private:
  static constexpr std::size_t most_of_all = std::size_t{1} << 30;  // offsets have 32 bits

  std::size_t most_;
};

}  // namespace tenon::text
