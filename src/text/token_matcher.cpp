#include "token_matcher.hpp"

#include "base/utf8.hpp"
#include "character_set.hpp"
#include "unicode.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <string_view>
#include <tuple>
#include <utility>

#include <fmt/format.h>

namespace tenon::text {
namespace {

unsigned byte_at(std::string_view text, std::size_t i) {
  return static_cast<unsigned char>(text[i]);
}

/// Where the character that ends at `end` begins.
std::size_t character_start(std::string_view text, std::size_t end) {
  std::size_t start = end - 1;
  while (start > 0 && end - start < 4 && continues_character(text[start])) --start;
  return start;
}

bool stands_alone(std::string_view text, std::size_t begin, std::size_t end) {
  const bool joined_before =
      begin != 0 && is_rust_word(code_point_at(text, character_start(text, begin)).value);
  const bool joined_after = end != text.size() && is_rust_word(code_point_at(text, end).value);
  return !joined_before && !joined_after;
}

std::size_t strip_left(std::string_view text, std::size_t begin, std::size_t limit) {
  while (begin > limit) {
    const std::size_t start = character_start(text, begin);
    if (start < limit || !has(code_point_at(text, start).value, trait_space)) break;
    begin = start;
  }
  return begin;
}

std::size_t strip_right(std::string_view text, std::size_t end) {
  while (end < text.size()) {
    const CodePoint c = code_point_at(text, end);
    if (!has(c.value, trait_space)) break;
    end += c.length;
  }
  return end;
}

}  // namespace

TokenMatcher::TokenMatcher(std::vector<MatchedToken> tokens) : tokens_(std::move(tokens)) {
  std::erase_if(tokens_, [](const MatchedToken& token) { return token.text.empty(); });
  for (const MatchedToken& token : tokens_) {
    if (token.text.size() <= longest_token) continue;
    throw Error(Errc::limit_exceeded, "tokenizer",
                fmt::format("token {} has {} bytes; those that are matched whole have at most {}",
                            token.options.id, token.text.size(), longest_token));
  }
  // Of those that become equal when they are normalised, one counts: special ones come first.
  std::ranges::sort(tokens_, {}, [](const MatchedToken& token) {
    return std::tuple(std::string_view(token.text), !token.is_control, token.options.id);
  });
  const auto repeated = std::ranges::unique(tokens_, {}, &MatchedToken::text);
  tokens_.erase(repeated.begin(), repeated.end());
  for (const MatchedToken& token : tokens_) ++first_with_byte_[byte_at(token.text, 0) + 1];
  for (std::size_t b = 1; b < first_with_byte_.size(); ++b) {
    first_with_byte_[b] += first_with_byte_[b - 1];
  }
}

const MatchedToken* TokenMatcher::longest_at(std::string_view text, std::size_t position) const {
  const unsigned first = byte_at(text, position);
  auto low = tokens_.begin() + first_with_byte_[first];
  auto high = tokens_.begin() + first_with_byte_[first + 1];
  const MatchedToken* longest = nullptr;
  for (std::size_t depth = 1; low != high; ++depth) {
    // All of [low, high) begin with the `depth` bytes read; the shortest of them comes first.
    if (low->text.size() == depth) longest = &*low++;
    if (position + depth == text.size()) break;
    if (high - low == 1) return text.substr(position).starts_with(low->text) ? &*low : longest;
    const unsigned next = byte_at(text, position + depth);
    const auto key = [depth](const MatchedToken& token) { return byte_at(token.text, depth); };
    const auto narrowed = std::ranges::equal_range(low, high, next, {}, key);
    low = narrowed.begin();
    high = narrowed.end();
  }
  return longest;
}

std::vector<Fragment> TokenMatcher::cut(std::string_view text, const ControlPolicy& control) const {
  std::vector<Fragment> fragments;
  std::size_t done = 0;
  auto plain = control.plain.begin();
  for (std::size_t i = 0; i < text.size();) {
    const MatchedToken* const token = longest_at(text, i);
    if (token == nullptr) {
      ++i;
      continue;
    }
    std::size_t begin = i;
    std::size_t end = i + token->text.size();
    i = end;
    if (token->is_control) {
      while (plain != control.plain.end() && plain->end <= begin) ++plain;
      const bool touches_plain = plain != control.plain.end() && plain->begin < end;
      if (!control.allowed || touches_plain) continue;
    }
    if (token->options.single_word && !stands_alone(text, begin, end)) continue;
    if (token->options.strip_left) begin = std::max(strip_left(text, begin, done), done);
    if (token->options.strip_right) end = strip_right(text, end);
    if (begin >= end) continue;  // all of it is what one before has stripped
    if (done < begin) fragments.push_back({-1, done, begin});
    fragments.push_back({static_cast<std::int32_t>(token->options.id), begin, end});
    done = end;
  }
  if (done < text.size()) fragments.push_back({-1, done, text.size()});
  return fragments;
}

}  // namespace tenon::text
