#pragma once

#include <cstddef>
#include <string_view>

/// Hand-written matchers of the regular expressions by which byte-level BPE models split text.
/// The comment of each has the expression, with the semantics of Oniguruma.
namespace tenon::text::scan {

/// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
std::size_t gpt2(std::string_view text, std::size_t position);

/// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|
/// \s*[\r\n]+|\s+(?!\S)|\s+
std::size_t llama3(std::string_view text, std::size_t position);

/// As llama3, but \p{N} one by one.
std::size_t qwen2(std::string_view text, std::size_t position);

std::size_t newline(std::string_view text, std::size_t position);           ///< [\r\n]
std::size_t number(std::string_view text, std::size_t position);            ///< \p{N}
std::size_t numbers(std::string_view text, std::size_t position);           ///< \p{N}+
std::size_t three_digits(std::string_view text, std::size_t position);      ///< [0-9][0-9][0-9]
std::size_t punctuation_mark(std::string_view text, std::size_t position);  ///< is_punctuation()
std::size_t punctuation(std::string_view text, std::size_t position);  ///< runs of is_punctuation()
std::size_t marked_punctuation(std::string_view text, std::size_t position);  ///< [\p{P}$+<=>^~|]+
std::size_t spaced_letters(std::string_view text, std::size_t position);      ///< \s?\p{L}+
std::size_t spaced_punctuation(std::string_view text, std::size_t position);  ///< \s?\p{P}+
std::size_t cjk(std::string_view text, std::size_t position);  ///< [一-龥ࠀ-一가-퟿]+
std::size_t trailing_space(std::string_view text, std::size_t position);  ///< \s+$

/// \s?[...]+ over DeepSeek's list of cased letters (Latin, Greek, Cyrillic, Armenian and others).
std::size_t deepseek_letters(std::string_view text, std::size_t position);

/// Whether a regular expression is the one of deepseek_letters, in whatever order it lists them.
bool is_deepseek_letter_pattern(std::string_view regex);

/// \s?[!-/:-~！-／：-～‘-‟　-。]+
std::size_t deepseek_punctuation(std::string_view text, std::size_t position);

std::size_t digits_before_edge(std::string_view text, std::size_t position);  ///< \d+\b

/// The pieces of a text that is cut before every multiple of three digits that end a run of them:
/// of \p{N} and of \d. The last one takes a text as digits_before_edge() has cut it, and cuts the
/// runs that that found.
std::size_t threes_of_numbers(std::string_view text, std::size_t position);
std::size_t threes_of_digits(std::string_view text, std::size_t position);
std::size_t threes_of_run(std::string_view text, std::size_t position);

/// Runs of bytes that look numeric once each byte is written as a character of the byte alphabet
/// (0-9 and ² ³ ¹ ¼ ½ ¾), and the runs between them. Falcon splits so, even inside characters,
/// because its digit rule comes after the alphabet.
std::size_t numeric_bytes(std::string_view text, std::size_t position);

}  // namespace tenon::text::scan
