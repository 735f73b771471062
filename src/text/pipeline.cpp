#include "pipeline.hpp"

#include "byte_alphabet.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace tenon::text {
namespace {

/// The matches of a step in a word and what lies between them.
void find_parts(const WordStep& step, std::string_view word, CutScratch& scratch) {
  auto& parts = scratch.parts;
  parts.clear();
  std::uint32_t done = 0;
  for_each_match(word, step.pattern, scratch.matcher, [&](std::size_t begin, std::size_t end) {
    const auto from = static_cast<std::uint32_t>(begin);
    if (done != from) parts.push_back({done, from, step.is_inverted});
    done = static_cast<std::uint32_t>(end);
    parts.push_back({from, done, !step.is_inverted});
  });
  if (done != word.size()) {
    parts.push_back({done, static_cast<std::uint32_t>(word.size()), step.is_inverted});
  }
}

void split_word(const WordStep& step, std::string_view word, std::uint32_t offset,
                CutScratch& scratch) {
  find_parts(step, word, scratch);
  auto& parts = scratch.parts;
  // Joins a part with the one before it where `joins(is the one before a match, is this one)`.
  const auto collect = [&parts](auto joins) {
    std::size_t kept = 0;
    bool was_match = false;
    for (const CutScratch::Part part : parts) {
      if (kept != 0 && joins(was_match, part.is_match)) {
        parts[kept - 1].end = part.end;
      } else {
        parts[kept++] = part;
      }
      was_match = part.is_match;
    }
    parts.resize(kept);
  };
  switch (step.behavior) {
    case SplitBehavior::isolated:
      break;
    case SplitBehavior::removed:
      std::erase_if(parts, [](const CutScratch::Part& part) { return part.is_match; });
      break;
    case SplitBehavior::contiguous:
      collect([](bool before, bool now) { return before == now; });
      break;
    case SplitBehavior::merged_with_previous:
      collect([](bool before, bool now) { return now && !before; });
      break;
    case SplitBehavior::merged_with_next:
      // A match that another follows stays alone.
      collect([](bool before, bool now) { return before && !now; });
      break;
  }
  for (const CutScratch::Part& part : parts) {
    scratch.ranges.push_back({offset + part.begin, offset + part.end});
  }
}

/// Rewrites every word: `rewrite(word, at, out)` appends to `out`.
template <typename Rewrite>
void rewrite_words(Words& words, CutScratch& scratch, Rewrite&& rewrite) {
  std::string text;
  text.reserve(words.text.size() + words.text.size() / 4 + 8);
  scratch.ranges.clear();
  for (std::size_t i = 0; i < words.ranges.size(); ++i) {
    const auto begin = static_cast<std::uint32_t>(text.size());
    rewrite(words[i], words.ranges[i].begin == 0, text);
    words.limit.check(text.size());
    scratch.ranges.push_back({begin, static_cast<std::uint32_t>(text.size())});
  }
  words.text = std::move(text);
  words.ranges.swap(scratch.ranges);
}

}  // namespace

void cut(Words& words, const WordStep& step, bool is_first, CutScratch& scratch) {
  switch (step.kind) {
    case WordStep::Kind::split:
      scratch.ranges.clear();
      for (std::size_t i = 0; i < words.ranges.size(); ++i) {
        split_word(step, words[i], words.ranges[i].begin, scratch);
      }
      words.ranges.swap(scratch.ranges);
      break;
    case WordStep::Kind::spaces:
      rewrite_words(words, scratch, [&](std::string_view word, bool starts, std::string& out) {
        const bool has_mark = word.starts_with(' ') || word.starts_with(step.mark);
        const bool adds =
            step.prefix == SpacePrefix::always ||
            (step.prefix == SpacePrefix::unless_space && !has_mark) ||
            (step.prefix == SpacePrefix::first_unless_space && !has_mark && starts && is_first);
        if (adds && !word.empty()) out.append(step.mark);
        for (std::size_t i = 0; i < word.size();) {
          const std::size_t space = std::min(word.find(' ', i), word.size());
          out.append(word, i, space - i);
          if (space < word.size()) out.append(step.mark);
          i = space + 1;
        }
      });
      break;
    case WordStep::Kind::prefix_space:
      rewrite_words(words, scratch, [](std::string_view word, bool /*starts*/, std::string& out) {
        if (!word.starts_with(' ')) out.push_back(' ');
        out.append(word);
      });
      break;
    case WordStep::Kind::alphabet:
      rewrite_words(words, scratch, [](std::string_view word, bool /*starts*/, std::string& out) {
        append_in_alphabet(out, word);
      });
      break;
  }
}

}  // namespace tenon::text
