#include "pipeline_json.hpp"

#include "base/base64.hpp"
#include "base/utf8.hpp"
#include "scanners.hpp"

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

namespace tenon::text {
namespace {

/// \w of Rust's expressions, which the pre-tokenizer Whitespace goes by: unlike Oniguruma's, with
/// joiners and without the numbers of Latin-1.
constexpr std::string_view word_characters =
    R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{200C}\x{200D}\x{24B6}-\x{24E9}\x{1F130}-\x{1F149})"
    R"(\x{1F150}-\x{1F169}\x{1F170}-\x{1F189})";

/// An expression that matches a text and nothing else.
std::string literal(std::string_view text) {
  std::string regex;
  for (const char c : text) {
    if (std::string_view("\\^$.|?*+()[]{}").find(c) != std::string_view::npos) {
      regex.push_back('\\');
    }
    regex.push_back(c);
  }
  return regex;
}

NormalizerStep step_of(NormalizerStep::Kind kind) {
  NormalizerStep step;
  step.kind = kind;
  return step;
}

}  // namespace

Pipeline PipelineReader::read(const json& root, Recipe& recipe) {
  for (const json* const part : parts(optional(root, "normalizer"), "normalizers")) {
    pipeline_.normalizers.push_back(normalizer(*part));
  }
  for (const json* const part : parts(optional(root, "pre_tokenizer"), "pretokenizers")) {
    add_pretokenizer(*part);
  }
  const auto decoders = parts(optional(root, "decoder"), "decoders");
  for (const json* const part : decoders) add_decoder(*part, recipe);
  if (decoders.empty()) pipeline_.decoders.push_back({DecodeStep::Kind::joined_by_space, {}, {}});
  return std::move(pipeline_);
}

NormalizerStep PipelineReader::normalizer(const json& part) const {
  using Kind = NormalizerStep::Kind;
  constexpr std::array plain{
      std::pair{"NFC", Kind::nfc},
      std::pair{"NFD", Kind::nfd},
      std::pair{"NFKC", Kind::nfkc},
      std::pair{"NFKD", Kind::nfkd},
      std::pair{"Lowercase", Kind::lowercase},
      std::pair{"StripAccents", Kind::strip_accents},
      std::pair{"Nmt", Kind::nmt},
      std::pair{"ByteLevel", Kind::alphabet},
  };
  const std::string& type = text(part, "type");
  for (const auto& [name, kind] : plain) {
    if (type == name) return step_of(kind);
  }
  NormalizerStep step;
  if (type == "Strip") {
    step.kind = Kind::strip;
    step.left = flag(part, "strip_left", true);
    step.right = flag(part, "strip_right", true);
  } else if (type == "Prepend") {
    step.kind = Kind::prepend;
    step.to = text(part, "prepend");
  } else if (type == "Replace") {
    step.kind = Kind::replace;
    step.to = text(part, "content");
    std::vector<Stage> stages = pattern(part);
    if (stages.size() != 1) unsupported("replacing digits by the place where they stand");
    step.pattern = std::move(stages.front());
  } else if (type == "Precompiled") {
    step.kind = Kind::precompiled;
    const auto table = from_base64(text(part, "precompiled_charsmap"));
    if (!table) malformed("\"precompiled_charsmap\" is no base64");
    step.map = std::make_shared<CharacterMap>(*table);
  } else if (type == "BertNormalizer") {
    step.kind = Kind::bert;
    step.bert.clean_text = flag(part, "clean_text", true);
    step.bert.split_chinese = flag(part, "handle_chinese_chars", true);
    step.bert.lowercase = flag(part, "lowercase", true);
    if (!optional(part, "strip_accents").is_null()) {
      step.bert.strip_accents = flag(part, "strip_accents", true);
    }
  } else {
    unsupported(fmt::format("normalizer {}", type.substr(0, 40)));
  }
  return step;
}

void PipelineReader::add_pretokenizer(const json& part) {
  const std::string& type = text(part, "type");
  if (type == "ByteLevel") {
    if (flag(part, "add_prefix_space", true)) {
      WordStep step;
      step.kind = WordStep::Kind::prefix_space;
      pipeline_.steps.push_back(std::move(step));
    }
    if (flag(part, "use_regex", true)) add_stage(scan::gpt2, SplitBehavior::isolated);
    WordStep step;
    step.kind = WordStep::Kind::alphabet;
    pipeline_.steps.push_back(std::move(step));
  } else if (type == "Metaspace") {
    add_metaspace(part);
  } else if (type == "Split") {
    add_split(part);
  } else if (type == "Whitespace") {
    add_stages(split_stages(fmt::format("[{0}]+|[^\\s{0}]+", word_characters)),
               SplitBehavior::removed, true);
  } else if (type == "WhitespaceSplit") {
    add_stages(split_stages(R"(\s)"), SplitBehavior::removed);
  } else if (type == "BertPreTokenizer") {
    add_stages(split_stages(R"(\s)"), SplitBehavior::removed);
    add_stage(scan::punctuation_mark, SplitBehavior::isolated);
  } else if (type == "Punctuation") {
    add_stage(scan::punctuation_mark, behavior(part, "Isolated"));
  } else if (type == "Digits") {
    add_stage(scan::number, flag(part, "individual_digits", false) ? SplitBehavior::isolated
                                                                   : SplitBehavior::contiguous);
  } else if (type == "CharDelimiterSplit") {
    add_stages(split_stages(literal(text(part, "delimiter"))), SplitBehavior::removed);
  } else if (type == "FixedLength") {
    const std::uint32_t length = id(required(part, "length"), "length");
    if (length == 0) malformed("words of no character");
    add_stages(split_stages(fmt::format(R"([\s\S]{{1,{}}})", length)), SplitBehavior::isolated);
  } else {
    unsupported(fmt::format("pre-tokenizer {}", type.substr(0, 40)));
  }
}

void PipelineReader::add_stages(std::vector<Stage> stages, SplitBehavior behavior,
                                bool is_inverted) {
  if (stages.size() != 1 && (behavior != SplitBehavior::isolated || is_inverted)) {
    unsupported("digits by the place where they stand, other than isolated");
  }
  for (Stage& stage : stages) {
    WordStep step;
    step.pattern = std::move(stage);
    step.behavior = behavior;
    step.is_inverted = is_inverted;
    pipeline_.steps.push_back(std::move(step));
  }
}

void PipelineReader::add_stage(Scanner scanner, SplitBehavior behavior) {
  add_stages({{scanner, nullptr}}, behavior);
}

void PipelineReader::add_split(const json& part) {
  add_stages(pattern(part), behavior(part, nullptr), flag(part, "invert", false));
}

void PipelineReader::add_metaspace(const json& part) {
  WordStep step;
  step.kind = WordStep::Kind::spaces;
  step.mark = text(part, "replacement");
  if (step.mark.empty() || code_point_at(step.mark, 0).length != step.mark.size()) {
    malformed("a replacement that is not one character");
  }
  step.prefix = prefix(part);
  const std::string mark = step.mark;
  pipeline_.steps.push_back(std::move(step));
  if (flag(part, "split", true)) {
    add_stages(split_stages(literal(mark)), SplitBehavior::merged_with_next);
  }
}

SpacePrefix PipelineReader::prefix(const json& part) const {
  const json& scheme = optional(part, "prepend_scheme");
  if (scheme.is_null()) {
    return flag(part, "add_prefix_space", true) ? SpacePrefix::unless_space : SpacePrefix::never;
  }
  if (says(scheme, "always")) return SpacePrefix::unless_space;
  if (says(scheme, "first")) return SpacePrefix::first_unless_space;
  if (!says(scheme, "never")) malformed("an unknown prepend_scheme");
  return SpacePrefix::never;
}

std::vector<Stage> PipelineReader::pattern(const json& part) const {
  const json& pattern = required(part, "pattern");
  if (!optional(pattern, "String").is_null()) {
    const std::string& wanted = text(pattern, "String");
    if (wanted.empty()) unsupported("matches of no character");
    return split_stages(literal(wanted));
  }
  return split_stages(text(pattern, "Regex"));
}

SplitBehavior PipelineReader::behavior(const json& part, const char* fallback) const {
  constexpr std::array names{
      std::pair{"Isolated", SplitBehavior::isolated},
      std::pair{"Removed", SplitBehavior::removed},
      std::pair{"MergedWithPrevious", SplitBehavior::merged_with_previous},
      std::pair{"MergedWithNext", SplitBehavior::merged_with_next},
      std::pair{"Contiguous", SplitBehavior::contiguous},
  };
  const bool is_unset = fallback != nullptr && optional(part, "behavior").is_null();
  const std::string name = is_unset ? std::string(fallback) : text(part, "behavior");
  for (const auto& [known, value] : names) {
    if (name == known) return value;
  }
  unsupported(fmt::format("splitting with behavior {}", name.substr(0, 40)));
}

void PipelineReader::add_decoder(const json& part, Recipe& recipe) {
  using Kind = DecodeStep::Kind;
  const std::string& type = text(part, "type");
  auto& steps = pipeline_.decoders;
  if (type == "ByteLevel") {
    steps.push_back({Kind::alphabet, {}, {}});
  } else if (type == "ByteFallback") {
    steps.push_back({Kind::byte_fallback, {}, {}});
  } else if (type == "Fuse") {
    is_fused_ = true;
  } else if (type == "Strip") {
    add_strip(part, recipe);
  } else if (type == "Replace") {
    if (is_fused_) unsupported("decoder Replace after Fuse");
    const json& from = required(part, "pattern");
    if (optional(from, "String").is_null()) unsupported("decoder Replace by an expression");
    steps.push_back({Kind::replace, text(from, "String"), text(part, "content")});
  } else if (type == "Metaspace") {
    steps.push_back(
        {Kind::replace, text(part, "replacement"), " ", prefix(part) != SpacePrefix::never});
  } else if (type == "WordPiece") {
    steps.push_back({Kind::wordpiece, text(part, "prefix"), {}});
    recipe.cleans_up_decoded = flag(part, "cleanup", true);
  } else {
    unsupported(fmt::format("decoder {}", type.substr(0, 40)));
  }
}

/// At the ends of the whole text, where Fuse came before.
void PipelineReader::add_strip(const json& part, Recipe& recipe) const {
  const std::uint32_t start = id(required(part, "start"), "start");
  const std::uint32_t stop = id(required(part, "stop"), "stop");
  if (start == 0 && stop == 0) return;
  if (!is_fused_ || text(part, "content") != " " || start != 1 || stop != 0) {
    unsupported("decoder Strip of other than one space where the text begins");
  }
  recipe.strips_decoded_space = true;
}

}  // namespace tenon::text
