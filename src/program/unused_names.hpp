#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>

namespace tenon {

/// Names of which no two are the same, without trying again those that are known to be taken.
class UnusedNames {
 public:
  void take(std::string_view name) { taken_.emplace(name); }

  /// `wanted`, or the first of wanted_2, wanted_3, ... that is not taken; it is then.
  std::string make(const std::string& wanted) {
    if (taken_.insert(wanted).second) return wanted;
    int& next = next_number_.try_emplace(wanted, 2).first->second;  // all below are taken
    std::string name;
    do name = fmt::format("{}_{}", wanted, next++);
    while (!taken_.insert(name).second);
    return name;
  }

 private:
  std::unordered_set<std::string> taken_;
  std::unordered_map<std::string, int> next_number_;
};

}  // namespace tenon
