#include "jinja_numbers.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <string>

#include <fmt/format.h>

namespace tenon::text::jinja {
namespace {

constexpr std::int64_t least_integer = std::numeric_limits<std::int64_t>::min();
constexpr double two_to_63 = 9223372036854775808.0;

[[noreturn]] void refuse_large() { refuse("a number of more than 64 bits"); }

bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }

/// The quotient that Python's // gives: towards minus infinity.
std::int64_t floor_quotient(std::int64_t left, std::int64_t right) {
  const std::int64_t quotient = left / right;
  return left % right != 0 && (left < 0) != (right < 0) ? quotient - 1 : quotient;
}

std::int64_t power_of(std::int64_t base, std::int64_t exponent) {
  if (base == 1 || exponent == 0) return 1;
  if (base == 0) return 0;
  if (base == -1) return exponent % 2 == 0 ? 1 : -1;
  std::int64_t result = 1;
  for (; exponent > 0; --exponent) {  // at most 63 times
    if (__builtin_mul_overflow(result, base, &result)) refuse_large();
  }
  return result;
}

double power_of(double base, double exponent) {
  if (base == 0 && exponent < 0) refuse("division by zero");
  const double result = std::pow(base, exponent);
  if (std::isnan(result) && !std::isnan(base) && !std::isnan(exponent)) {
    refuse("the power of a negative number that is complex");
  }
  if (std::isinf(result) && std::isfinite(base) && std::isfinite(exponent)) {
    refuse("a power that is too large");
  }
  return result;
}

Value integer_result(std::string_view sign, std::int64_t left, std::int64_t right) {
  std::int64_t result = 0;
  bool is_large = false;
  if (sign == "+") is_large = __builtin_add_overflow(left, right, &result);
  if (sign == "-") is_large = __builtin_sub_overflow(left, right, &result);
  if (sign == "*") is_large = __builtin_mul_overflow(left, right, &result);
  if (sign == "/" || sign == "//" || sign == "%") {
    if (right == 0) refuse("division by zero");
    if (sign == "/") return static_cast<double>(left) / static_cast<double>(right);
    if (sign == "%") {
      if (right == -1) return std::int64_t{0};
      const std::int64_t rest = left % right;
      return rest != 0 && (rest < 0) != (right < 0) ? rest + right : rest;
    }
    is_large = left == least_integer && right == -1;
    if (!is_large) result = floor_quotient(left, right);
  }
  if (sign == "**") {
    if (right < 0) return power_of(static_cast<double>(left), static_cast<double>(right));
    result = power_of(left, right);
  }
  if (is_large) refuse_large();
  return result;
}

/// Python's // and % of reals: exact rests, whose sign follows the divisor.
double real_quotient(double left, double right, bool wants_rest) {
  double rest = std::fmod(left, right);
  double quotient = (left - rest) / right;
  if (rest == 0) {
    rest = std::copysign(0.0, right);
  } else if ((right < 0) != (rest < 0)) {
    rest += right;
    quotient -= 1;
  }
  if (wants_rest) return rest;
  if (quotient == 0) return std::copysign(0.0, left / right);
  const double below = std::floor(quotient);
  return quotient - below > 0.5 ? below + 1 : below;
}

Value real_result(std::string_view sign, double left, double right) {
  if (sign == "+") return left + right;
  if (sign == "-") return left - right;
  if (sign == "*") return left * right;
  if (sign == "**") return power_of(left, right);
  if (right == 0) refuse("division by zero");
  if (sign == "/") return left / right;
  return real_quotient(left, right, sign == "%");
}

/// The digits without the underscores of Python's numbers, which stand between digits; none where others do.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      plain += text[i];
    } else if (i == 0 || i + 1 == text.size() || !is_ascii_digit(text[i - 1]) ||
               !is_ascii_digit(text[i + 1])) {
      return std::nullopt;
    }
  }
  if (plain.starts_with('+')) plain.erase(0, 1);  // which std::from_chars does not take
  const bool has_two_signs = text.starts_with('+') && plain.starts_with('-');
  return has_two_signs ? std::nullopt : std::optional(plain);
}

/// Of a number that is too large or too small for a double: whether it is too small.
bool is_tiny(std::string_view number) {
  const std::size_t e = std::min(number.find_first_of("eE"), number.size());
  const std::string_view digits = number.substr(0, e);
  const auto point = static_cast<std::int64_t>(std::min(digits.find('.'), digits.size()));
  const auto first =
      static_cast<std::int64_t>(std::min(digits.find_first_of("123456789"), digits.size()));
  std::string_view spelled = number.substr(std::min(e + 1, number.size()));
  if (spelled.starts_with('+')) spelled.remove_prefix(1);
  std::int64_t exponent = 0;
  const auto [end, error] =
      std::from_chars(spelled.data(), spelled.data() + spelled.size(), exponent);
  if (error == std::errc::result_out_of_range) return spelled.starts_with('-');
  return exponent < first - point;
}

std::uint64_t magnitude_of(std::int64_t number) {
  return number < 0 ? 0 - static_cast<std::uint64_t>(number) : static_cast<std::uint64_t>(number);
}

/// The digits of a whole number, rounded to a multiple of 10 to the power of `zeros`; `has_more`: the number is a little
/// larger than its digits say.
std::string rounded_digits(std::string digits, std::size_t zeros, bool has_more) {
  if (zeros > digits.size()) return "0";
  const std::size_t kept = digits.size() - zeros;
  const std::string rest = digits.substr(kept), half = "5" + std::string(zeros - 1, '0');
  const bool is_odd = kept > 0 && (digits[kept - 1] - '0') % 2 != 0;
  std::ranges::fill(digits.begin() + static_cast<std::ptrdiff_t>(kept), digits.end(), '0');
  digits.insert(digits.begin(), '0');  // for what is carried
  if (rest > half || (rest == half && (has_more || is_odd))) {
    std::size_t i = kept;
    for (; digits[i] == '9'; --i) digits[i] = '0';
    ++digits[i];
  }
  return digits;
}

}  // namespace

std::partial_ordering compare_numbers(const Value& one, const Value& other) {
  if (one.is_integer() && other.is_integer()) return one.integer() <=> other.integer();
  if (!one.is_integer() && !other.is_integer()) return one.number() <=> other.number();
  if (!one.is_integer()) return 0 <=> compare_numbers(other, one);
  const double real = other.number();
  if (std::isnan(real)) return std::partial_ordering::unordered;
  const std::optional<std::int64_t> whole = whole_of(real);
  if (!whole) return 0.0 <=> real;
  if (one.integer() != *whole) return one.integer() <=> *whole;
  return std::trunc(real) <=> real;
}

Value number_result(std::string_view sign, const Value& left, const Value& right) {
  if (left.is_integer() && right.is_integer()) {
    return integer_result(sign, left.integer(), right.integer());
  }
  return real_result(sign, left.number(), right.number());
}

std::optional<double> read_real(std::string_view text) {
  const std::optional<std::string> plain = without_underscores(text);
  if (!plain || plain->empty() || plain->find('(') != std::string::npos) return std::nullopt;
  double number = 0;
  const char* const end = plain->data() + plain->size();
  const auto [stop, error] = std::from_chars(plain->data(), end, number);
  if (stop != end) return std::nullopt;
  if (error == std::errc()) return number;
  if (error != std::errc::result_out_of_range) return std::nullopt;
  number = is_tiny(*plain) ? 0 : std::numeric_limits<double>::infinity();
  return plain->starts_with('-') ? -number : number;
}

std::optional<std::int64_t> read_integer(std::string_view text) {
  const std::optional<std::string> plain = without_underscores(text);
  if (!plain || plain->empty()) return std::nullopt;
  std::int64_t number = 0;
  const char* const end = plain->data() + plain->size();
  const auto [stop, error] = std::from_chars(plain->data(), end, number);
  if (stop != end) return std::nullopt;
  if (error == std::errc::result_out_of_range) refuse_large();
  return error == std::errc() ? std::optional(number) : std::nullopt;
}

std::optional<std::int64_t> whole_of(double number) {
  if (!(number >= -two_to_63 && number < two_to_63)) return std::nullopt;
  return static_cast<std::int64_t>(number);
}

Value rounded(const Value& number, std::int64_t digits) {
  constexpr std::int64_t most = 323,
                         fewest =
                             -308;  // what doubles have; beyond, nothing or all is rounded away
  if (number.is_integer()) {
    const std::int64_t integer = number.integer();
    if (digits >= 0) return integer;
    if (digits < fewest) return std::int64_t{0};
    const std::string whole = rounded_digits(fmt::format("{}", magnitude_of(integer)),
                                             static_cast<std::size_t>(-digits), false);
    return *read_integer((integer < 0 ? "-" : "") + whole);
  }
  const double real = number.number();
  if (!std::isfinite(real) || digits > most) return real;
  if (digits < fewest) return 0.0 * real;
  const double magnitude = std::fabs(real);
  const std::string text =
      digits >= 0
          ? fmt::format("{:.{}f}", magnitude, digits)
          : rounded_digits(fmt::format("{:.0f}", std::trunc(magnitude)),
                           static_cast<std::size_t>(-digits), std::trunc(magnitude) != magnitude);
  const double result = *read_real(text);
  if (std::isinf(result)) refuse("a number that is too large when rounded");
  return std::copysign(result, real);
}

double rounded_to_side(const Value& number, std::int64_t digits, bool is_up) {
  constexpr std::int64_t most = 308;  // powers of ten among doubles
  if (number.is_integer() && digits >= 0) return number.number();
  if (digits > most) refuse("round to more digits than a number has");
  const double scale = digits < 0 ? std::pow(10.0, static_cast<double>(digits))
                                  : *read_real(fmt::format("1e{}", digits));
  if (scale == 0) refuse("division by zero");
  const double scaled = number.number() * scale;
  if (!std::isfinite(scaled)) refuse("round of a number that is too large");
  const double whole = is_up ? std::ceil(scaled) : std::floor(scaled);
  return (whole == 0 ? 0.0 : whole) /
         scale;  // without the sign of -0.0, which Python's integer has not
}

}  // namespace tenon::text::jinja
