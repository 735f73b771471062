// What a check found, as sentences.
#pragma once

#include <cstddef>
#include <exception>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tenon::testkit {

class Findings {
 public:
  /// `section` of a page, for all that is found from now on.
  void begin(std::string_view section) { section_ = section; }

  template <class... Facts>
  void add(fmt::format_string<Facts...> format, Facts&&... facts) {
    all_.push_back(
        fmt::format("{} ({})", fmt::format(format, std::forward<Facts>(facts)...), section_));
  }
  /// A finding unless both are the same number.
  template <class Value>
  bool expect(std::string_view what, Value found, Value expected) {
    if (found == expected) return true;
    if constexpr (std::is_same_v<Value, std::string_view>) {
      add("{} is {}, expected {}", what, found, expected);
    } else {
      add("{} is {:#x}, expected {:#x}", what, found, expected);
    }
    return false;
  }
  /// What `check` throws is a finding.
  template <class Check>
  void guarded(std::string_view what, const Check& check) {
    try {
      check();
    } catch (const std::exception& error) {
      add("{} threw: {}", what, error.what());
    }
  }

  std::size_t count() const noexcept { return all_.size(); }
  std::vector<std::string> take() { return std::move(all_); }

 private:
  std::string section_;
  std::vector<std::string> all_;
};

}  // namespace tenon::testkit
