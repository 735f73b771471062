#include "dry.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>

namespace tenon::nn {
namespace {

using Tokens = std::span<const std::int32_t>;
using Breakers = std::vector<std::vector<std::int32_t>>;

/// The breakers that begin with a token; they are sorted.
std::span<const std::vector<std::int32_t>> beginning_with(const Breakers& breakers,
                                                          std::int32_t token) {
  const auto range = std::ranges::equal_range(
      breakers, token, {},
      [](const std::vector<std::int32_t>& breaker) { return breaker.front(); });
  return {range.begin(), range.end()};
}

/// How many tokens stand behind the last breaker. Of those that begin at one place the longest counts.
std::size_t length_behind(const Breakers& breakers, Tokens window) {
  for (std::size_t begin = window.size(); begin-- > 0;) {
    const Tokens rest = window.subspan(begin);
    std::optional<std::size_t> longest;
    for (const auto& breaker : beginning_with(breakers, rest.front())) {
      if (breaker.size() > rest.size() || !std::ranges::equal(breaker, rest.first(breaker.size())))
        continue;
      longest = std::max(longest.value_or(0), breaker.size());
    }
    if (longest) return rest.size() - *longest;
  }
  return window.size();
}

/// At each place of the window but 0: how many tokens that end there are those that the window ends with. The Z algorithm
/// (Gusfield, Algorithms on Strings, Trees, and Sequences, 1997, section 1.4) of the reversed window: place k counts from
/// its end.
std::vector<std::size_t> repeated(Tokens window) {
  const std::size_t size = window.size();
  const auto back = [&](std::size_t k) { return window[size - 1 - k]; };
  std::vector<std::size_t> lengths(size, 0);
  std::size_t begin = 0, end = 0;  // of the match that reaches farthest back
  for (std::size_t k = 1; k < size; ++k) {
    std::size_t& length = lengths[k];
    if (k < end) length = std::min(lengths[k - begin], end - k);
    while (k + length < size && back(length) == back(k + length)) ++length;
    if (k + length > end) {
      begin = k;
      end = k + length;
    }
  }
  return lengths;
}

}  // namespace

std::vector<Continuation> continuations(const SamplerOptions& options, Tokens history) {
  const Tokens window =
      history.last(std::min(history.size(), static_cast<std::size_t>(options.dry_window)));
  const auto allowed = static_cast<std::size_t>(options.dry_allowed_length);
  if (window.size() <= allowed) return {};
  const std::size_t limit = length_behind(options.dry_breakers, window);
  if (limit < allowed) return {};

  std::vector<Continuation> found;
  const std::vector<std::size_t> lengths = repeated(window);
  for (std::size_t k = 1; k < window.size(); ++k) {
    const std::size_t length = std::min(lengths[k], limit);
    if (length < allowed) continue;
    found.push_back({window[window.size() - k], static_cast<std::int64_t>(length)});
  }
  std::ranges::sort(found, [](const Continuation& a, const Continuation& b) {
    return a.token != b.token ? a.token < b.token : a.length > b.length;
  });
  const auto same = std::ranges::unique(found, {}, &Continuation::token);
  found.erase(same.begin(), same.end());
  std::erase_if(found, [&](const Continuation& one) {
    return std::ranges::any_of(beginning_with(options.dry_breakers, one.token),
                               [](const auto& breaker) { return breaker.size() == 1; });
  });
  return found;
}

}  // namespace tenon::nn
