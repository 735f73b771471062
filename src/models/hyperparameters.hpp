#pragma once

#include <tenon/error.hpp>
#include <tenon/io/file.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>

namespace tenon::models {

// Far above all existing models, far below an overflow.
inline constexpr std::int64_t max_layers = 512;
inline constexpr std::int64_t max_width = 1 << 20;
inline constexpr std::int64_t max_heads = 1 << 14;
inline constexpr std::int64_t max_experts = 1 << 16;
inline constexpr std::int64_t max_context = std::int64_t{1} << 31;

/// Reads a file's "<prefix>.<key>" values and refuses those out of range.
class Hyperparameters {
 public:
  Hyperparameters(const io::File& file, std::string prefix)
      : metadata_(file.metadata()), file_(file.path().string()), prefix_(std::move(prefix)) {}

  std::int64_t integer(std::string_view key, std::int64_t low, std::int64_t high) const {
    return checked(key, metadata_.get<std::int64_t>(full(key)), low, high);
  }
  std::int64_t integer_or(std::string_view key, std::int64_t fallback, std::int64_t low,
                          std::int64_t high) const {
    return checked(key, metadata_.get_or<std::int64_t>(full(key), fallback), low, high);
  }
  double real_or(std::string_view key, double fallback, double low, double high) const {
    const double value = metadata_.get_or<double>(full(key), fallback);
    if (!(value >= low && value <= high))
      refuse(key, fmt::format("{}", value), fmt::format("{} to {}", low, high));
    return value;
  }
  bool boolean(std::string_view key) const { return metadata_.get<bool>(full(key)); }
  /// Nothing where there is another value than a list of booleans.
  std::optional<std::vector<std::uint8_t>> booleans(std::string_view key) const {
    const io::MetaValue* const value = metadata_.find(full(key));
    if (value == nullptr || !std::holds_alternative<io::MetaArray>(*value)) return std::nullopt;
    return metadata_.get<std::vector<std::uint8_t>>(full(key));
  }
  /// The same of integers.
  std::optional<std::vector<std::int32_t>> integers(std::string_view key) const {
    const io::MetaValue* const value = metadata_.find(full(key));
    if (value == nullptr || !std::holds_alternative<io::MetaArray>(*value)) return std::nullopt;
    return metadata_.get<std::vector<std::int32_t>>(full(key));
  }
  /// The same of numbers.
  std::optional<std::vector<float>> reals(std::string_view key) const {
    const io::MetaValue* const value = metadata_.find(full(key));
    if (value == nullptr || !std::holds_alternative<io::MetaArray>(*value)) return std::nullopt;
    return metadata_.get<std::vector<float>>(full(key));
  }
  bool boolean_or(std::string_view key, bool fallback) const {
    return metadata_.get_or<bool>(full(key), fallback);
  }
  std::string text_or(std::string_view key, std::string fallback) const {
    return metadata_.get_or<std::string>(full(key), std::move(fallback));
  }
  bool contains(std::string_view key) const { return metadata_.contains(full(key)); }

  /// One number for all layers, or a list with one for each, of which files may have more.
  std::vector<std::int64_t> integers_of_layers(std::string_view key, std::int64_t layers,
                                               std::int64_t low, std::int64_t high) const {
    const auto listed = integers(key);
    if (!listed) return std::vector(static_cast<std::size_t>(layers), integer(key, low, high));
    std::vector<std::int64_t> numbers(listed->begin(), listed->end());
    if (std::ssize(numbers) < layers || std::ranges::min(numbers) < low ||
        std::ranges::max(numbers) > high) {
      refuse_list(key, fmt::format("number from {} to {}", low, high));
    }
    numbers.resize(static_cast<std::size_t>(layers));
    return numbers;
  }
  std::vector<double> reals_of_layers(std::string_view key, std::int64_t layers,
                                      double fallback) const {
    const auto listed = reals(key);
    if (!listed) {
      return std::vector(static_cast<std::size_t>(layers), real_or(key, fallback, -1e3, 1e3));
    }
    std::vector<double> numbers(listed->begin(), listed->end());
    const bool is_finite =
        std::ranges::all_of(numbers, [](double number) { return std::isfinite(number); });
    if (std::ssize(numbers) < layers || !is_finite) refuse_list(key, "number");
    return numbers;
  }

  /// Refuses a key with a value that changes what is computed, in ways that are not computed here.
  void require_real(std::string_view key, double allowed) const {
    require(key, real_or(key, allowed, -1e30, 1e30), allowed);
  }
  void require_integer(std::string_view key, std::int64_t allowed) const {
    require(key, integer_or(key, allowed, 0, max_width), allowed);
  }

  [[noreturn]] void refuse(std::string_view key, const std::string& value,
                           const std::string& allowed) const {
    throw Error(Errc::bad_hyperparameter, file_,
                fmt::format("{} is {}, allowed: {}", full(key), value, allowed));
  }

  const std::string& file() const noexcept { return file_; }
  std::string full(std::string_view key) const { return fmt::format("{}.{}", prefix_, key); }

 private:
  template <class T>
  void require(std::string_view key, T value, T allowed) const {
    if (value == allowed) return;
    throw Error(Errc::unsupported, file_, fmt::format("{} is {}", full(key), value));
  }
  [[noreturn]] void refuse_list(std::string_view key, std::string_view what) const {
    throw Error(Errc::unsupported, file_,
                fmt::format("{} has no {} for each layer", full(key), what));
  }
  std::int64_t checked(std::string_view key, std::int64_t value, std::int64_t low,
                       std::int64_t high) const {
    if (value < low || value > high)
      refuse(key, std::to_string(value), fmt::format("{} to {}", low, high));
    return value;
  }

  const io::Metadata& metadata_;
  std::string file_;
  std::string prefix_;
};

}  // namespace tenon::models
