#include "base/suggestion.hpp"

#include <tenon/printable.hpp>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tenon {
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
    text += (i == 0 ? "" : ", ") + fmt::format("'{}'", printable(close[i].second));
  }
  return text + "?";
}

}  // namespace tenon
