// Checks a folder of cases that python/tests/text_oracle.py wrote: text_compare FOLDER [NAME ...]

#include "text/cases.hpp"

#include <chrono>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include <fmt/format.h>

int main(int argc, char** argv) try {
  if (argc < 2) {
    fmt::print(stderr, "usage: {} FOLDER [NAME ...]\n", argv[0]);
    return 2;
  }
  std::vector<std::string> names(argv + 2, argv + argc);
  if (names.empty()) names = tenon::testing::text_case_names(argv[1]);
  bool all_equal = true;
  for (const std::string& name : names) {
    const auto cases = tenon::testing::read_text_cases(argv[1], name);
    const auto start = std::chrono::steady_clock::now();
    const auto found = tenon::testing::compare(cases, 5);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    for (const std::string& difference : found.described) fmt::print("{}\n", difference);
    fmt::print("{:24} {:7} strings, {:6} differ, {:.2f} s\n", name, cases.strings.size(),
               found.count, seconds.count());
    std::fflush(stdout);
    all_equal = all_equal && found.count == 0 && !cases.strings.empty();
  }
  return all_equal && !names.empty() ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
