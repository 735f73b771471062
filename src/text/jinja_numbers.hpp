// Numbers of Jinja's values, as Python has them. None of this follows the locale.
#pragma once

#include "jinja_value.hpp"

#include <compare>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tenon::text::jinja {

/// Exactly, also of an integer and a real.
std::partial_ordering compare_numbers(const Value& one, const Value& other);

/// +, -, *, /, //, % and ** of two numbers. Errors: template_error for a division by zero, an integer of more than
/// 64 bits, and where Python would overflow or give a complex number.
Value number_result(std::string_view sign, const Value& left, const Value& right);

/// As Python's float() reads a text, without blanks around it and in digits of ASCII; none of what is no number.
std::optional<double> read_real(std::string_view text);
/// As Python's int() does. Errors: template_error for one of more than 64 bits.
std::optional<std::int64_t> read_integer(std::string_view text);
/// Without what is behind the point; none beyond 64 bits and of what is no finite number.
std::optional<std::int64_t> whole_of(double number);

/// Python's round(): to the nearest multiple of 10 to the power of -`digits`, of two the even one; an integer's is an
/// integer. Errors: template_error for one of more than 64 bits.
Value rounded(const Value& number, std::int64_t digits);
/// As Jinja's round filter has it: the next multiple above or below, a real. Errors: template_error where Python
/// would overflow or divide by zero.
double rounded_to_side(const Value& number, std::int64_t digits, bool is_up);

}  // namespace tenon::text::jinja
