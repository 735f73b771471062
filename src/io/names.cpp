#include "names.hpp"

#include "base/utf8.hpp"

#include <tenon/error.hpp>
#include <tenon/printable.hpp>

#include <algorithm>
#include <cstdint>
#include <numeric>

#include <fmt/format.h>

namespace tenon::io {
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

}  // namespace tenon::io
