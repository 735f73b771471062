#include "pretokenizer.hpp"

#include "base/utf8.hpp"
#include "scanners.hpp"

#include <tenon/text/vocabulary.hpp>

#include <algorithm>
#include <array>
#include <iterator>

namespace tenon::text {
namespace {

constexpr std::array<Scanner, 1> gpt2_stages{scan::gpt2};
constexpr std::array<Scanner, 1> llama3_stages{scan::llama3};
constexpr std::array<Scanner, 1> qwen2_stages{scan::qwen2};
constexpr std::array<Scanner, 2> digits_stages{scan::number, scan::gpt2};
constexpr std::array<Scanner, 4> default_stages{scan::marked_punctuation, scan::gpt2, scan::numbers,
                                                scan::three_digits};
constexpr std::array<Scanner, 4> falcon_stages{scan::punctuation, scan::gpt2, scan::numeric_bytes,
                                               scan::three_digits};
constexpr std::array<Scanner, 6> deepseek_llm_stages{scan::newline,
                                                     scan::deepseek_letters,
                                                     scan::deepseek_punctuation,
                                                     scan::trailing_space,
                                                     scan::cjk,
                                                     scan::number};
constexpr std::array<Scanner, 5> deepseek_coder_stages{
    scan::newline, scan::spaced_letters, scan::spaced_punctuation, scan::cjk, scan::number};

struct Named {
  std::string_view name;
  Pretokenizer value;
};

// The names are those that llama.cpp's converter writes to tokenizer.ggml.pre; the splitting and
// the NFC flags are those of the families' own tokenizer.json files. Sorted by name.
constexpr std::array named_pretokenizers{
    Named{"codeshell", {digits_stages}},
    Named{"command-r", {digits_stages, true}},
    Named{"dbrx", {llama3_stages}},
    Named{"deepseek-coder", {deepseek_coder_stages}},
    Named{"deepseek-llm", {deepseek_llm_stages}},
    Named{"deepseek-r1-qwen", {qwen2_stages, true}},
    Named{"default", {default_stages}},
    Named{"exaone", {digits_stages}},
    Named{"falcon", {falcon_stages}},
    Named{"gpt-2", {gpt2_stages}},
    Named{"jina-es", {gpt2_stages}},
    Named{"llama-bpe", {llama3_stages, false, true, true}},
    Named{"llama-v3", {llama3_stages, false, true, true}},
    Named{"llama3", {llama3_stages, false, true, true}},
    Named{"mpt", {gpt2_stages, true}},
    Named{"olmo", {gpt2_stages, true}},
    Named{"phi-2", {gpt2_stages}},
    Named{"qwen2", {qwen2_stages, true}},
    Named{"refact", {digits_stages}},
    Named{"roberta-bpe", {gpt2_stages}},
    Named{"smaug-bpe", {llama3_stages}},
    Named{"smollm", {digits_stages}},
    Named{"stablelm2", {qwen2_stages, true}},
    Named{"starcoder", {digits_stages}},
};
static_assert(std::ranges::is_sorted(named_pretokenizers, {}, &Named::name));

struct SplitPattern {
  std::string_view regex;
  Scanner scanner;
};

#define TENON_SPACE_AND_REST R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"
#define TENON_CASED_CONTRACTIONS R"((?i:'s|'t|'re|'ve|'m|'ll|'d))"
#define TENON_WORDS R"(|[^\r\n\p{L}\p{N}]?\p{L}+)"

// The expressions of published files, character by character.
constexpr std::array split_patterns{
    SplitPattern{R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
                 scan::gpt2},
    SplitPattern{R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))",
                 scan::gpt2},
    SplitPattern{TENON_CASED_CONTRACTIONS TENON_WORDS R"(|\p{N}{1,3})" TENON_SPACE_AND_REST,
                 scan::llama3},
    SplitPattern{TENON_CASED_CONTRACTIONS TENON_WORDS R"(|\p{N})" TENON_SPACE_AND_REST,
                 scan::qwen2},
    SplitPattern{R"([\p{P}\$\+<=>\^~\|]+)", scan::marked_punctuation},
    SplitPattern{"[\r\n]", scan::newline},
    SplitPattern{R"([\r\n])", scan::newline},
    SplitPattern{R"(\p{N})", scan::number},
    SplitPattern{R"(\p{N}+)", scan::numbers},
    SplitPattern{"[0-9][0-9][0-9]", scan::three_digits},
    SplitPattern{R"(\s?\p{L}+)", scan::spaced_letters},
    SplitPattern{R"(\s?\p{P}+)", scan::spaced_punctuation},
    SplitPattern{R"(\s+$)", scan::trailing_space},
    SplitPattern{"[一-龥ࠀ-一가-\xED\x9F\xBF]+", scan::cjk},
    SplitPattern{"\\s?[!-/:-~！-／：-～‘-‟\xE3\x80\x80-。]+", scan::deepseek_punctuation},
};

/// Splits one piece by one scanner.
void split_piece(std::string_view text, std::size_t begin, std::size_t end, Scanner scanner,
                 std::vector<std::uint32_t>& ends) {
  // The scanner must not see past the piece: its look-ahead ends there.
  const std::string_view piece = text.substr(begin, end - begin);
  std::size_t gap = 0;
  for (std::size_t i = 0; i < piece.size();) {
    const std::size_t match_end = scanner(piece, i);
    if (match_end == i) {
      i += code_point_at(piece, i).length;
      continue;
    }
    if (gap != i) ends.push_back(static_cast<std::uint32_t>(begin + i));
    ends.push_back(static_cast<std::uint32_t>(begin + match_end));
    gap = i = match_end;
  }
  if (gap != piece.size()) ends.push_back(static_cast<std::uint32_t>(end));
}

}  // namespace

std::optional<Pretokenizer> find_pretokenizer(std::string_view name) {
  const auto* const found = std::ranges::lower_bound(named_pretokenizers, name, {}, &Named::name);
  if (found == named_pretokenizers.end() || found->name != name) return std::nullopt;
  return found->value;
}

std::vector<std::string_view> pretokenizer_names() {
  std::vector<std::string_view> names;
  names.reserve(named_pretokenizers.size());
  for (const Named& named : named_pretokenizers) names.push_back(named.name);
  return names;
}

Scanner find_split_pattern(std::string_view regex) {
  if (scan::is_deepseek_letter_pattern(regex)) return scan::deepseek_letters;
  const auto* const found = std::ranges::find(split_patterns, regex, &SplitPattern::regex);
  return found == split_patterns.end() ? nullptr : found->scanner;
}

void split(std::string_view text, SplitStages stages, std::vector<std::uint32_t>& ends,
           std::vector<std::uint32_t>& scratch) {
  const std::size_t old_size = ends.size();
  if (text.empty()) return;
  if (stages.empty()) {
    ends.push_back(static_cast<std::uint32_t>(text.size()));
    return;
  }
  split_piece(text, 0, text.size(), stages.front(), ends);
  for (const Scanner scanner : stages.subspan(1)) {
    scratch.assign(ends.begin() + static_cast<std::ptrdiff_t>(old_size), ends.end());
    ends.resize(old_size);
    std::size_t begin = 0;
    for (const std::uint32_t end : scratch) {
      split_piece(text, begin, end, scanner, ends);
      begin = end;
    }
  }
}

}  // namespace tenon::text
