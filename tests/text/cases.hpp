#pragma once

#include <tenon/text/tokenizer.hpp>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::testing {

/// One tokenizer with strings and the ids that Hugging Face's `tokenizers` gives them.
/// python/tests/text_oracle.py writes these.
struct TextCases {
  std::string name;
  text::Tokenizer tokenizer;
  text::EncodeOptions options;
  std::vector<std::string> strings;
  std::vector<std::vector<std::int32_t>> ids;
  std::vector<std::string> decoded;  ///< empty, or one per string: special tokens left out
};

/// The names in a folder's cases.json.
std::vector<std::string> text_case_names(const std::filesystem::path& folder);

TextCases read_text_cases(const std::filesystem::path& folder, std::string_view name);

/// A vocabulary in the test format: JSON with the fields of text::Vocabulary.
/// `pre` replaces its pre-tokenizer where given.
text::Vocabulary read_vocabulary(const std::filesystem::path& file,
                                 const std::optional<std::string>& pre = {});

/// What of the cases does not hold: at most `limit` differences in words, and how many there are.
struct TextDifferences {
  std::size_t count = 0;
  std::vector<std::string> described;
};
TextDifferences compare(const TextCases& cases, std::size_t limit);

}  // namespace tenon::testing
