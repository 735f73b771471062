#include "normalizer.hpp"

#include "base/utf8.hpp"
#include "byte_alphabet.hpp"
#include "growth_limit.hpp"
#include "unicode.hpp"
#include "unicode_ages.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include <utf8proc.h>

namespace tenon::text {
namespace {

/// The blocks whose characters BERT splits. The gap before 0x2B920 is a mistake in Hugging Face's
/// code, reproduced for equal results.
constexpr std::array chinese{
    Interval{0x3400, 0x4DBF},   Interval{0x4E00, 0x9FFF},   Interval{0xF900, 0xFAFF},
    Interval{0x20000, 0x2A6DF}, Interval{0x2A700, 0x2B81F}, Interval{0x2B920, 0x2CEAF},
    Interval{0x2F800, 0x2FA1F},
};

bool is_removed(char32_t c) {
  if (c == '\t' || c == '\n' || c == '\r') return false;
  return c == 0 || c == 0xFFFD || (has(c, trait_other) && !lies_in(newer_format, c));
}

bool is_accent(char32_t c) {
  // U+1734 became a spacing mark after Unicode 8.
  return c == 0x1734 || (has(c, trait_nonspacing) && !lies_in(newer_nonspacing, c));
}

/// The text's characters without control characters and with spaces around Chinese ones.
std::vector<char32_t> cleaned(const BertOptions& options, std::string_view text) {
  std::vector<char32_t> out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint c = code_point_at(text, i);
    i += c.length;
    char32_t value = c.value;
    if (options.clean_text) {
      if (is_removed(value)) continue;
      if (has(value, trait_space)) value = ' ';
    }
    if (options.split_chinese && lies_in(chinese, value)) {
      out.insert(out.end(), {U' ', value, U' '});
    } else {
      out.push_back(value);
    }
  }
  return out;
}

/// Calls `put(character, out)` for each character; ill-formed bytes go to the result as they are.
template <typename Put>
std::string map_characters(std::string_view text, Put&& put) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint c = code_point_at(text, i);
    if (c.is_valid) {
      put(c.value, out);
    } else {
      out.append(text.substr(i, c.length));
    }
    i += c.length;
  }
  return out;
}

std::string to_lower(std::string_view text) {
  std::vector<char32_t> lower;
  return map_characters(text, [&](char32_t c, std::string& out) {
    lower.clear();
    append_lowercase(lower, c);
    for (const char32_t l : lower) append_utf8(out, l);
  });
}

/// \p{M} of Unicode 9.
bool is_mark(char32_t c) {
  return c == 0x1CF2 || c == 0x1CF3 || (has(c, trait_mark) && !lies_in(newer_marks, c));
}

std::string without_marks(std::string_view text) {
  return map_characters(text, [](char32_t c, std::string& out) {
    if (!is_mark(c)) append_utf8(out, c);
  });
}

std::string trimmed(std::string_view text, bool left, bool right) {
  std::size_t begin = 0;
  std::size_t end = text.size();
  while (left && begin < end && has(code_point_at(text, begin).value, trait_space)) {
    begin += code_point_at(text, begin).length;
  }
  while (right && begin < end) {
    const std::size_t last = character_before(text, end);
    if (!has(code_point_at(text, last).value, trait_space)) break;
    end = last;
  }
  return std::string(text.substr(begin, end - begin));
}

std::string replaced(std::string_view text, const Stage& pattern, std::string_view to,
                     const GrowthLimit& limit) {
  std::string out;
  out.reserve(text.size());
  std::size_t done = 0;
  ExpressionMatcher::Scratch scratch;
  for_each_match(text, pattern, scratch, [&](std::size_t begin, std::size_t end) {
    out.append(text.substr(done, begin - done)).append(to);
    limit.check(out.size());
    done = end;
  });
  return out.append(text.substr(done));
}

/// The rules of the data of machine translation, sentencepiece's "nmt".
std::string clean_nmt(std::string_view text) {
  return map_characters(text, [](char32_t c, std::string& out) {
    if ((c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F ||
        c == 0x9F) {
      return;
    }
    const bool is_space = c == '\t' || c == '\n' || c == '\f' || c == '\r' || c == 0x1680 ||
                          (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 ||
                          c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
    append_utf8(out, is_space ? U' ' : c);
  });
}

/// Hugging Face looks up whole graphemes of less than 6 bytes, then characters, and replaces each
/// by what its shortest beginning in the table becomes.
std::string apply_by_grapheme(const CharacterMap& map, std::string_view text,
                              const GrowthLimit& limit) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    utf8proc_int32_t state = 0;
    CodePoint previous = code_point_at(text, i);
    std::size_t end = i + previous.length;
    while (end < text.size()) {
      const CodePoint next = code_point_at(text, end);
      if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(previous.value),
                                           static_cast<utf8proc_int32_t>(next.value), &state)) {
        break;
      }
      previous = next;
      end += next.length;
    }
    const std::string_view grapheme = text.substr(i, end - i);
    i = end;
    limit.check(out.size());
    if (grapheme.size() < 6) {
      if (const auto match = map.shortest(grapheme); match.length != 0) {
        out.append(match.replacement);
        continue;
      }
    }
    for (std::size_t at = 0; at < grapheme.size();) {
      const std::string_view part = grapheme.substr(at, code_point_at(grapheme, at).length);
      const auto match = map.shortest(part);
      out.append(match.length != 0 ? match.replacement : part);
      limit.check(out.size());
      at += part.size();
    }
  }
  return out;
}

/// SentencePiece replaces the longest entry at each place.
std::string apply_longest(const CharacterMap& map, std::string_view text,
                          const GrowthLimit& limit) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const auto match = map.longest(text.substr(i));
    if (match.length != 0) {
      out.append(match.replacement);
      limit.check(out.size());
      i += match.length;
    } else {
      const std::size_t length = code_point_at(text, i).length;
      out.append(text.substr(i, length));
      i += length;
    }
  }
  return out;
}

std::string with_single_spaces(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    if (c != ' ' || (!out.empty() && out.back() != ' ')) out.push_back(c);
  }
  if (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

std::string apply(const NormalizerStep& step, std::string text, const GrowthLimit& limit) {
  using enum NormalizerStep::Kind;
  switch (step.kind) {
    case nfc:
      return compose(text);
    case nfd:
      return normal_form(text, {.compatibility = false, .composes = false});
    case nfkc:
      return normal_form(text, {.compatibility = true, .composes = true});
    case nfkd:
      return normal_form(text, {.compatibility = true, .composes = false});
    case lowercase:
      return to_lower(text);
    case strip_accents:
      return without_marks(text);
    case strip:
      return trimmed(text, step.left, step.right);
    case prepend:
      return text.empty() ? text : step.to + text;
    case replace:
      return replaced(text, step.pattern, step.to, limit);
    case nmt:
      return clean_nmt(text);
    case precompiled:
      return apply_by_grapheme(*step.map, text, limit);
    case sentencepiece:
      return apply_longest(*step.map, text, limit);
    case join_spaces:
      return with_single_spaces(text);
    case bert:
      return normalize_bert(step.bert, text);
    case alphabet: {
      std::string out;
      append_in_alphabet(out, text);
      return out;
    }
  }
  return text;
}

}  // namespace

std::string normalize_bert(const BertOptions& options, std::string_view text) {
  std::vector<char32_t> characters = cleaned(options, text);
  if (options.strip_accents.value_or(options.lowercase)) {
    decompose(characters);
    std::erase_if(characters, is_accent);
  }
  std::string out;
  out.reserve(text.size());
  std::vector<char32_t> lower;
  for (const char32_t c : characters) {
    if (!options.lowercase) {
      append_utf8(out, c);
      continue;
    }
    lower.clear();
    append_lowercase(lower, c);
    for (const char32_t l : lower) append_utf8(out, l);
  }
  return out;
}

std::string normalize(std::span<const NormalizerStep> steps, std::string text) {
  const GrowthLimit limit(text.size());
  for (const NormalizerStep& step : steps) {
    text = apply(step, std::move(text), limit);
    limit.check(text.size());
  }
  return text;
}

}  // namespace tenon::text
