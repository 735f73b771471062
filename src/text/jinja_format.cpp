// Texts with places for values: Python's % and str.format().
#include "jinja_functions.hpp"
#include "jinja_numbers.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include <fmt/format.h>

namespace tenon::text::jinja {
namespace {

/// One place of Python's %: flags, width, precision and kind, such as "%-08.2f".
struct Place {
  bool is_left = false, has_plus = false, has_blank = false, is_alternate = false,
       has_zeros = false;
  std::int64_t width = 0, precision = -1;  ///< negative: not given
  char kind = 's';
  std::optional<std::string> key{};  ///< of "%(key)s"
};

/// Takes digits from the front of `rest`.
std::int64_t taken_number(std::string_view& rest) {
  std::int64_t number = 0;
  while (!rest.empty() && rest.front() >= '0' && rest.front() <= '9') {
    number = number * 10 + (rest.front() - '0');
    if (number > max_width) refuse("a format with a width beyond 100000");
    rest.remove_prefix(1);
  }
  return number;
}

/// Takes the place that follows a "%" from the front of `rest`.
Place taken_place(std::string_view& rest) {
  Place place;
  if (rest.starts_with('(')) {
    const std::size_t end = rest.find(')');
    if (end == std::string_view::npos) refuse("a format with a '(' that is not closed");
    place.key = std::string(rest.substr(1, end - 1));
    rest.remove_prefix(end + 1);
  }
  const auto takes = [&](char c) {
    if (!rest.starts_with(c)) return false;
    rest.remove_prefix(1);
    return true;
  };
  while (true) {
    if (takes('-')) {
      place.is_left = true;
    } else if (takes('+')) {
      place.has_plus = true;
    } else if (takes(' ')) {
      place.has_blank = true;
    } else if (takes('#')) {
      place.is_alternate = true;
    } else if (takes('0')) {
      place.has_zeros = true;
    } else {
      break;
    }
  }
  place.width = taken_number(rest);
  if (takes('.')) place.precision = taken_number(rest);
  if (rest.empty()) refuse("a format that ends within a place");
  place.kind = rest.front();
  rest.remove_prefix(1);
  return place;
}

/// A number's sign and base, then its digits, in the width of the place.
std::string aligned(const Place& place, std::string_view prefix, std::string_view digits) {
  const std::int64_t missing =
      std::max<std::int64_t>(place.width - std::ssize(prefix) - std::ssize(digits), 0);
  const std::string fill(static_cast<std::size_t>(missing), place.has_zeros ? '0' : ' ');
  if (place.is_left) return fmt::format("{}{}{:{}}", prefix, digits, "", missing);
  return place.has_zeros ? fmt::format("{}{}{}", prefix, fill, digits)
                         : fmt::format("{}{}{}", fill, prefix, digits);
}

std::string sign_of(const Place& place, bool is_negative) {
  return is_negative ? "-" : place.has_plus ? "+" : place.has_blank ? " " : "";
}

/// %d, %x, %o and the like.
std::string integer_text(const Place& place, const Value& value) {
  const bool is_decimal = place.kind == 'd' || place.kind == 'i' || place.kind == 'u';
  std::int64_t number = 0;
  if (value.is_integer()) {
    number = value.integer();
  } else {
    const double* const real = value.as<double>();
    const std::optional<std::int64_t> whole = real == nullptr ? std::nullopt : whole_of(*real);
    if (!is_decimal || !whole) {
      refuse(fmt::format("the format '%{}' of {}", place.kind, value.type_name()));
    }
    number = *whole;
  }
  const auto magnitude =
      number < 0 ? 0 - static_cast<std::uint64_t>(number) : static_cast<std::uint64_t>(number);
  std::string digits, base;
  switch (place.kind) {
    case 'x':
      digits = fmt::format("{:x}", magnitude);
      base = "0x";
      break;
    case 'X':
      digits = fmt::format("{:X}", magnitude);
      base = "0X";
      break;
    case 'o':
      digits = fmt::format("{:o}", magnitude);
      base = "0o";
      break;
    default:
      digits = fmt::format("{}", magnitude);
  }
  const std::int64_t zeros = std::max<std::int64_t>(place.precision - std::ssize(digits), 0);
  digits.insert(0, static_cast<std::size_t>(zeros), '0');
  return aligned(place, sign_of(place, number < 0) + (place.is_alternate ? base : ""), digits);
}

/// %f, %e and %g.
std::string real_text(const Place& place, const Value& value) {
  if (!value.is_number()) {
    refuse(fmt::format("the format '%{}' of {}", place.kind, value.type_name()));
  }
  constexpr std::int64_t usual_precision = 6;
  const double number = value.number();
  const std::string pattern =
      fmt::format("{{:{}.{{}}{}}}", place.is_alternate ? "#" : "", place.kind);
  std::string digits = fmt::format(fmt::runtime(pattern), std::fabs(number),
                                   place.precision < 0 ? usual_precision : place.precision);
  // fmt has a digit behind the point of a number of one digit, and Python none.
  const bool has_one_digit = (place.kind == 'g' || place.kind == 'G') && place.is_alternate &&
                             place.precision >= 0 && place.precision <= 1;
  if (has_one_digit && digits.ends_with(".0")) digits.pop_back();
  return aligned(place, sign_of(place, std::signbit(number) && !std::isnan(number)), digits);
}

/// %c: a character, or the number of one.
Text character_text(const Value& value) {
  if (const Text* const text = value.text();
      text != nullptr && count_characters(text->bytes) == 1) {
    return *text;
  }
  constexpr std::int64_t last = 0x10FFFF;
  if (!value.is_integer() || value.integer() < 0 || value.integer() > last) {
    refuse(fmt::format("the format '%c' of {}", value.type_name()));
  }
  Text made;
  append_utf8(made.bytes, static_cast<char32_t>(value.integer()));
  return made;
}

void append_place(Text& out, const Place& place, const Value& value) {
  switch (place.kind) {
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o':
      return append(out, integer_text(place, value));
    case 'f':
    case 'F':
    case 'e':
    case 'E':
    case 'g':
    case 'G':
      return append(out, real_text(place, value));
    case 's':
    case 'r':
    case 'c':
      break;
    default:
      refuse(fmt::format("the format '%{}'", place.kind));
  }
  Text text;
  if (place.kind == 'c') {
    text = character_text(value);
  } else if (place.kind == 's') {
    text = to_text(value);
  } else {
    std::string shown;
    append_repr(shown, value);
    text = marked(std::move(shown), has_content(value));
  }
  if (place.precision >= 0 && place.kind != 'c') {
    const std::vector<std::size_t> places = character_places(text.bytes);
    const auto kept = std::min(static_cast<std::size_t>(place.precision), places.size() - 1);
    text = part_of(text, 0, places[kept]);
  }
  append(out, padded(text, place.width, " ", place.is_left ? right_side : left_side));
}

}  // namespace

Text percent_format(const Text& text, const Value& value) {
  const bool is_tuple = value.list() != nullptr && value.list()->is_tuple;
  const std::vector<Value> values = is_tuple ? value.list()->items : std::vector<Value>{value};
  std::size_t next = 0;
  bool has_keys = false;
  Text out;
  for (std::size_t i = 0; i < text.bytes.size();) {
    if (text.bytes[i] != '%') {
      const std::size_t end = std::min(text.bytes.find('%', i), text.bytes.size());
      append(out, part_of(text, i, end));
      i = end;
      continue;
    }
    std::string_view rest = std::string_view(text.bytes).substr(i + 1);
    if (rest.starts_with('%')) {
      append(out, "%");
      i += 2;
      continue;
    }
    const Place place = taken_place(rest);
    i = text.bytes.size() - rest.size();
    if (place.key) {
      const Value* const found = value.dict() == nullptr ? nullptr : value.dict()->find(*place.key);
      if (found == nullptr) refuse(fmt::format("a format without a value for '{}'", *place.key));
      has_keys = true;
      append_place(out, place, *found);
    } else {
      if (next == values.size() || has_keys) refuse("fewer values than a format has places");
      append_place(out, place, values[next++]);
    }
  }
  const bool may_be_unused =
      value.is_undefined() || value.dict() != nullptr || (value.list() != nullptr && !is_tuple);
  if (next < values.size() && !may_be_unused) refuse("more values than a format has places");
  return out;
}

Value formatted(const Text& text, const Arguments& a) {
  Text out;
  std::size_t next = 0;
  bool is_numbered = false;
  for (std::size_t i = 0; i < text.bytes.size();) {
    const std::string_view rest = std::string_view(text.bytes).substr(i);
    if (rest.starts_with("{{") || rest.starts_with("}}")) {
      append(out, part_of(text, i, i + 1));
      i += 2;
    } else if (rest.front() == '{') {
      const std::size_t end = rest.find('}');
      if (end == std::string_view::npos) refuse("format() with a '{' that is not closed");
      const std::string_view field = rest.substr(1, end - 1);
      if (field.find_first_of(":!.[") != std::string_view::npos) {
        refuse(fmt::format("format() of '{}'", field));
      }
      const bool is_number =
          std::ranges::all_of(field, [](char c) { return c >= '0' && c <= '9'; }) &&
          field.size() < 6;
      std::size_t index = std::numeric_limits<std::size_t>::max();
      if (is_number) {
        is_numbered = is_numbered || !field.empty();
        if (is_numbered && (field.empty() || next > 0)) refuse("format() with both {} and {0}");
        index = field.empty() ? next++ : static_cast<std::size_t>(*read_integer(field));
      }
      const Value* const value = argument(a, index, field);
      if (value == nullptr) refuse(fmt::format("format() without a value for '{}'", field));
      append(out, to_text(*value));
      i += end + 1;
    } else {
      const std::size_t end = std::min(rest.find_first_of("{}", 1), rest.size());
      append(out, part_of(text, i, i + end));
      i += end;
    }
  }
  return out;
}

}  // namespace tenon::text::jinja
