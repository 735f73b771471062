#include "character_set.hpp"

#include "categories.hpp"
#include "unicode.hpp"

#include <algorithm>
#include <utility>

#include <utf8proc.h>

namespace tenon::text {
namespace {

// Script=Han of Unicode 15.1.
constexpr std::array han_script{
    Interval{0x2E80, 0x2E99},   Interval{0x2E9B, 0x2EF3},   Interval{0x2F00, 0x2FD5},
    Interval{0x3005, 0x3005},   Interval{0x3007, 0x3007},   Interval{0x3021, 0x3029},
    Interval{0x3038, 0x303B},   Interval{0x3400, 0x4DBF},   Interval{0x4E00, 0x9FFF},
    Interval{0xF900, 0xFA6D},   Interval{0xFA70, 0xFAD9},   Interval{0x16FE2, 0x16FE3},
    Interval{0x16FF0, 0x16FF1}, Interval{0x20000, 0x2A6DF}, Interval{0x2A700, 0x2B739},
    Interval{0x2B740, 0x2B81D}, Interval{0x2B820, 0x2CEA1}, Interval{0x2CEB0, 0x2EBE0},
    Interval{0x2EBF0, 0x2EE5D}, Interval{0x2F800, 0x2FA1D}, Interval{0x30000, 0x3134A},
    Interval{0x31350, 0x323AF},
};

bool is_in(std::uint32_t wanted, char32_t c) noexcept {
  return ((wanted >> utf8proc_category(static_cast<utf8proc_int32_t>(c))) & 1) != 0;
}

}  // namespace

bool is_word(char32_t c) noexcept {
  return is_in(categories::word_categories, c) || lies_in(categories::word_symbols, c);
}

bool is_rust_word(char32_t c) noexcept {
  return is_in(categories::word_categories, c) || lies_in(categories::rust_word_symbols, c);
}

bool is_decimal_digit(char32_t c) noexcept {
  return c < 0x80 ? c >= '0' && c <= '9' : is_in(categories::bit(UTF8PROC_CATEGORY_ND), c);
}

bool CharacterSet::Part::contains(char32_t c) const noexcept {
  bool accepts = false;
  if (categories != 0) accepts = is_in(categories, c);
  if (!accepts && (spaces || non_spaces)) accepts = has(c, trait_space) ? spaces : non_spaces;
  if (!accepts && (han || non_han)) accepts = lies_in(han_script, c) ? han : non_han;
  if (!accepts && !intervals.empty()) accepts = lies_in(intervals, c);
  return accepts != is_negated;
}

CharacterSet::CharacterSet(std::vector<Part> parts, bool is_negated)
    : parts_(std::move(parts)), is_negated_(is_negated) {
  for (Part& part : parts_) {
    std::ranges::sort(part.intervals, {}, &Interval::first);
    std::vector<Interval> merged;
    for (const Interval& interval : part.intervals) {
      if (!merged.empty() && interval.first <= merged.back().last + 1) {
        merged.back().last = std::max(merged.back().last, interval.last);
      } else {
        merged.push_back(interval);
      }
    }
    part.intervals = std::move(merged);
  }
  for (char32_t c = 0; c < 0x80; ++c) {
    if (compute(c)) ascii_[c >> 6] |= std::uint64_t{1} << (c & 63);
  }
}

bool CharacterSet::compute(char32_t c) const noexcept {
  const bool all = std::ranges::all_of(parts_, [c](const Part& part) { return part.contains(c); });
  return all != is_negated_;
}

}  // namespace tenon::text
