#include "sequence_match.hpp"

#include <algorithm>
#include <unordered_map>

namespace tenon::tool {
namespace {

struct Block {
  std::size_t a, b, size;
};

class Matcher {
 public:
  Matcher(const std::vector<int>& a, const std::vector<int>& b)
      : a_(a), before_(b.size() + 1), now_(b.size() + 1) {
    for (std::size_t i = 0; i < b.size(); ++i) places_[b[i]].push_back(i);
  }

  /// The blocks of equal elements, in order.
  std::vector<Block> blocks() {
    std::vector<Block> found;
    struct Rest {
      std::size_t begin_a, end_a, begin_b, end_b;
    };
    std::vector<Rest> rests{{0, a_.size(), 0, before_.size() - 1}};
    while (!rests.empty()) {
      const Rest rest = rests.back();
      rests.pop_back();
      const Block block = longest(rest.begin_a, rest.end_a, rest.begin_b, rest.end_b);
      if (block.size == 0) continue;
      found.push_back(block);
      rests.push_back({rest.begin_a, block.a, rest.begin_b, block.b});
      rests.push_back({block.a + block.size, rest.end_a, block.b + block.size, rest.end_b});
    }
    std::ranges::sort(found, {}, &Block::a);
    return found;
  }

 private:
  Block longest(std::size_t begin_a, std::size_t end_a, std::size_t begin_b, std::size_t end_b) {
    Block best{begin_a, begin_b, 0};
    std::vector<std::size_t> touched, touched_before;
    // now_[j + 1]: how many elements before and at (i, j) are equal.
    for (std::size_t i = begin_a; i < end_a; ++i) {
      touched.clear();
      if (const auto places = places_.find(a_[i]); places != places_.end()) {
        for (const std::size_t j : places->second) {
          if (j < begin_b || j >= end_b) continue;
          const std::size_t size = before_[j] + 1;
          now_[j + 1] = size;
          touched.push_back(j + 1);
          if (size > best.size) best = {i + 1 - size, j + 1 - size, size};
        }
      }
      for (const std::size_t j : touched_before) before_[j] = 0;
      std::swap(before_, now_);
      std::swap(touched, touched_before);
    }
    for (const std::size_t j : touched_before) before_[j] = 0;
    return best;
  }

  const std::vector<int>& a_;
  std::unordered_map<int, std::vector<std::size_t>> places_;  // of each element in b
  std::vector<std::size_t> before_, now_;                     // zeros between calls
};

}  // namespace

std::vector<MatchedRange> match(const std::vector<int>& a, const std::vector<int>& b) {
  std::vector<Block> blocks = Matcher(a, b).blocks();
  blocks.push_back({a.size(), b.size(), 0});
  std::vector<MatchedRange> ranges;
  std::size_t i = 0, j = 0;
  for (const Block& block : blocks) {
    if (i < block.a || j < block.b) ranges.push_back({false, i, block.a, j, block.b});
    i = block.a + block.size;
    j = block.b + block.size;
    if (block.size > 0) {
      if (!ranges.empty() && ranges.back().is_equal) {
        ranges.back().end_a = i;
        ranges.back().end_b = j;
      } else {
        ranges.push_back({true, block.a, i, block.b, j});
      }
    }
  }
  return ranges;
}

}  // namespace tenon::tool
