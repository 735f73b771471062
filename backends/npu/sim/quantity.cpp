#include "quantity.hpp"

#include <iterator>
#include <span>

#include <fmt/format.h>

namespace tenon::npu::sim {
namespace {

struct Unit {
  std::string_view name;
  std::uint64_t factor;
};
constexpr Unit byte_units[] = {
    {"GiB", std::uint64_t{1} << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}};
constexpr Unit hertz_units[] = {
    {"GHz", 1'000'000'000}, {"MHz", 1'000'000}, {"kHz", 1000}, {"Hz", 1}};
constexpr Unit rate_units[] = {
    {"GB/s", 1'000'000'000}, {"MB/s", 1'000'000}, {"kB/s", 1000}, {"B/s", 1}};
constexpr Unit time_units[] = {{"s", 1'000'000'000}, {"ms", 1'000'000}, {"us", 1000}, {"ns", 1}};

constexpr std::uint64_t largest = std::uint64_t{1} << 50;  // no quantity here comes near

/// A decimal number with at most nine digits after the point, times a unit, when that is whole.
bool parse(std::string_view text, std::span<const Unit> units, bool fractions,
           std::uint64_t& value) noexcept {
  std::uint64_t whole = 0;
  if (!take_number(text, whole)) return false;
  std::uint64_t part = 0;
  std::uint64_t scale = 1;
  if (fractions && text.starts_with('.')) {
    text.remove_prefix(1);
    const std::size_t before = text.size();
    if (!take_number(text, part) || before - text.size() > 9) return false;
    for (std::size_t i = text.size(); i < before; ++i) scale *= 10;
  }
  for (const Unit& unit : units) {
    if (text != unit.name) continue;
    if (whole > largest / unit.factor || part * unit.factor % scale != 0) return false;
    value = whole * unit.factor + part * unit.factor / scale;
    return true;
  }
  return false;
}

std::string format(std::uint64_t value, std::span<const Unit> units) {
  for (const Unit& unit : units) {
    if (value % unit.factor == 0) return fmt::format("{}{}", value / unit.factor, unit.name);
  }
  return {};
}

}  // namespace

bool take_number(std::string_view& text, std::uint64_t& value) noexcept {
  std::size_t digits = 0;
  value = 0;
  while (digits < text.size() && text[digits] >= '0' && text[digits] <= '9') {
    if (value > largest) return false;
    value = value * 10 + static_cast<std::uint64_t>(text[digits++] - '0');
  }
  text.remove_prefix(digits);
  return digits > 0;
}

bool parse_bytes(std::string_view text, std::uint64_t& bytes) noexcept {
  return parse(text, byte_units, false, bytes);
}
bool parse_frequency(std::string_view text, std::uint64_t& hertz) noexcept {
  return parse(text, hertz_units, true, hertz);
}
bool parse_bandwidth(std::string_view text, std::uint64_t& bytes_per_second) noexcept {
  return parse(text, rate_units, true, bytes_per_second);
}
bool parse_duration(std::string_view text, std::uint64_t& nanoseconds) noexcept {
  return parse(text, time_units, true, nanoseconds);
}

std::string format_bytes(std::uint64_t bytes) { return format(bytes, byte_units); }
std::string format_frequency(std::uint64_t hertz) { return format(hertz, hertz_units); }
std::string format_bandwidth(std::uint64_t rate) { return format(rate, rate_units); }
std::string format_duration(std::uint64_t nanoseconds) { return format(nanoseconds, time_units); }

}  // namespace tenon::npu::sim
