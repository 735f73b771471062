#include "names.hpp"

#include "base/utf8.hpp"

#include <tenon/error.hpp>
#include <tenon/printable.hpp>

#include <algorithm>
#include <cstdint>
#include <numeric>

#include <fmt/format.h>

namespace tenon::io {
namespace {

// Edit distance with adjacent cost 1, cut off at `limit`.
std::size_t edit_distance(std::string_view a, std::string_view b, std::size_t limit) {
  if (std::max(a.size(), b.size()) - std::min(a.size(), b.size()) > limit) return limit + 1;
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    std::size_t best = row[0];
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({change, row[j] + 1, row[j - 1] + 1});
      best = std::min(best, row[j]);
    }
    if (best > limit) return limit + 1;
  }
  return row[b.size()];
}

}  // namespace

bool is_utf8(std::string_view text) noexcept {
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint c = code_point_at(text, i);
    if (!c.is_valid) return false;
    i += c.length;
  }
  return true;
}

std::string quote_name(std::string_view name) {
  constexpr std::size_t shown_bytes = 120;
  if (name.size() <= shown_bytes) return fmt::format("'{}'", printable(name));
  return fmt::format("'{}...' ({} bytes)", printable(name.substr(0, shown_bytes)), name.size());
}

void check_name(std::string_view name, std::string_view kind, std::uint64_t limit,
                std::string_view where) {
  if (name.empty()) throw Error(Errc::bad_key, std::string(where), fmt::format("empty {}", kind));
  if (name.size() > limit) {
    throw Error(Errc::limit_exceeded, std::string(where),
                fmt::format("{} of {} bytes, at most {} are allowed", kind, name.size(), limit));
  }
  if (name.find('\0') != std::string_view::npos) {
    throw Error(Errc::bad_encoding, std::string(where),
                fmt::format("{} {} holds a NUL byte", kind, quote_name(name)));
  }
  if (!is_utf8(name)) {
    throw Error(Errc::bad_encoding, std::string(where),
                fmt::format("{} {} is not valid UTF-8", kind, quote_name(name)));
  }
}

void check_file_name(std::string_view name, std::string_view kind, const std::string& where) {
  const auto refuse = [&](std::string_view why) {
    throw Error(Errc::path_escape, where, fmt::format("{} {} {}", kind, quote_name(name), why));
  };
  if (name.find_first_of(std::string_view("\\\0", 2)) != std::string_view::npos) {
    refuse("holds a backslash or a NUL byte");
  }
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('/', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    if (part.empty()) refuse("is absolute, empty or has an empty part");
    if (part == "." || part == "..") refuse("has a part '.' or '..'");
    begin = end + 1;
  }
}

std::vector<std::uint32_t> sorted_positions(std::span<const std::string_view> names) {
  std::vector<std::uint32_t> positions(names.size());
  std::iota(positions.begin(), positions.end(), std::uint32_t{0});
  std::sort(positions.begin(), positions.end(), [&](std::uint32_t a, std::uint32_t b) {
    const int order = names[a].compare(names[b]);
    return order != 0 ? order < 0 : a < b;
  });
  return positions;
}

std::optional<std::pair<std::uint32_t, std::uint32_t>> find_duplicate(
    std::span<const std::string_view> names, std::span<const std::uint32_t> sorted) {
  for (std::size_t i = 1; i < sorted.size(); ++i) {
    if (names[sorted[i - 1]] == names[sorted[i]]) return std::pair{sorted[i - 1], sorted[i]};
  }
  return std::nullopt;
}

std::string suggestion(std::string_view wanted, std::span<const std::string_view> names) {
  // Bounds the work for untrusted names.
  constexpr std::size_t max_names = 20'000;
  constexpr std::size_t max_bytes = 256;
  constexpr std::size_t max_shown = 3;
  if (names.size() > max_names || wanted.size() > max_bytes) return {};
  const std::size_t limit = std::clamp<std::size_t>(wanted.size() / 4, 1, 6);
  std::vector<std::pair<std::size_t, std::string_view>> close;
  for (const std::string_view name : names) {
    const std::size_t distance = edit_distance(wanted, name, limit);
    if (distance <= limit) close.emplace_back(distance, name);
  }
  if (close.empty()) return {};
  std::ranges::sort(close);
  if (close.size() > max_shown) close.resize(max_shown);
  std::string text = "; did you mean ";
  for (std::size_t i = 0; i < close.size(); ++i) {
    text += (i == 0 ? "" : ", ") + quote_name(close[i].second);
  }
  return text + "?";
}

}  // namespace tenon::io
