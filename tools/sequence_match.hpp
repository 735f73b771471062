#pragma once

#include <cstddef>
#include <vector>

namespace tenon::tool {

/// A part of two sequences: a[begin_a, end_a) and b[begin_b, end_b), which are equal or not.
struct MatchedRange {
  bool is_equal;
  std::size_t begin_a, end_a, begin_b, end_b;
};

/// Splits two sequences into parts that are equal and parts that are not, in order. The longest equal
/// part comes first, the earliest of several; then, likewise, the longest ones before and after it.
std::vector<MatchedRange> match(const std::vector<int>& a, const std::vector<int>& b);

}  // namespace tenon::tool
