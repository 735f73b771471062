// What a page shows of C++ is what a test runs.
#pragma once

#include "io/temp_folder.hpp"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon::testing {

inline std::string without_spaces(const std::string& text) {
  std::string result;
  std::copy_if(text.begin(), text.end(), std::back_inserter(result),
               [](unsigned char c) { return std::isspace(c) == 0; });
  return result;
}

/// The fenced blocks of C++ on a page, without white space.
inline std::vector<std::string> shown_code(const std::string& page) {
  const std::string text = read_bytes(page);
  std::vector<std::string> blocks;
  const std::string fence = "```";
  for (std::size_t at = text.find(fence + "cpp\n"); at != std::string::npos;
       at = text.find(fence + "cpp\n", at)) {
    const std::size_t begin = at + fence.size() + 4;
    at = text.find(fence, begin);
    blocks.push_back(without_spaces(text.substr(begin, at - begin)));
  }
  return blocks;
}

/// Every block of the page stands in the source, but for white space.
inline void check_shown_code(const std::string& page, const std::string& source,
                             std::size_t count) {
  const std::string run = without_spaces(read_bytes(source));
  const std::vector<std::string> blocks = shown_code(page);
  CHECK(blocks.size() == count);
  for (const std::string& block : blocks) {
    INFO(page << ": " << block);
    CHECK(run.find(block) != std::string::npos);
  }
}

}  // namespace tenon::testing
