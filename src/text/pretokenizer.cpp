#include "pretokenizer.hpp"

#include "base/utf8.hpp"
#include "scanners.hpp"

#include <tenon/text/vocabulary.hpp>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

namespace tenon::text {
namespace {

#define TENON_CONTRACTIONS R"((?i:'s|'t|'re|'ve|'m|'ll|'d))"
#define TENON_SPACES R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"
#define TENON_REST R"(| ?[^\s\p{L}\p{N}]+[\r\n]*)"
#define TENON_WORDS R"(|[^\r\n\p{L}\p{N}]?\p{L}+)"
#define TENON_UPPER R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define TENON_LOWER R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"

// The expressions, as the families' tokenizer.json files or, failing those, llama.cpp spell them.
constexpr std::string_view gpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view llama3 =
    TENON_CONTRACTIONS TENON_WORDS R"(|\p{N}{1,3})" TENON_REST TENON_SPACES;
constexpr std::string_view qwen2 =
    TENON_CONTRACTIONS TENON_WORDS R"(|\p{N})" TENON_REST TENON_SPACES;
constexpr std::string_view marked_punctuation = R"([\p{P}\$\+<=>\^~\|]+)";
constexpr std::string_view newline = "[\r\n]";
constexpr std::string_view lines = R"([^\n]+|[\n]+)";
constexpr std::string_view number = R"(\p{N})";
constexpr std::string_view numbers = R"(\p{N}+)";
constexpr std::string_view three_numbers = R"(\p{N}{1,3})";
constexpr std::string_view three_digits = "[0-9][0-9][0-9]";
constexpr std::string_view digits_by_three = R"(\d{1,3}(?=(?:\d{3})*\b))";
constexpr std::string_view before_threes = R"((?=(\d{3})+(?!\d)))";
constexpr std::string_view spaced_letters = R"(\s?\p{L}+)";
constexpr std::string_view spaced_punctuation = R"(\s?\p{P}+)";
constexpr std::string_view trailing_space = R"(\s+$)";
constexpr std::string_view cjk = "[一-龥ࠀ-一가-\xED\x9F\xBF]+";
constexpr std::string_view kana_and_han = "[一-龥\u3040-ゟ゠-ヿ]+";
constexpr std::string_view deepseek_punctuation = "\\s?[!-/:-~！-／：-～‘-‟\xE3\x80\x80-。]+";
// DeepSeek-V3's: words take their marks, and a word may begin with punctuation.
constexpr std::string_view deepseek3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+)"
    R"(|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*)" TENON_SPACES;
constexpr std::string_view spark =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+)"
    R"(|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+)";
// GPT-4o's and those like it: words are cut where a capital follows a small letter.
#define TENON_CASED_WORDS(suffix)                                \
  R"([^\r\n\p{L}\p{N}]?)" TENON_UPPER "*" TENON_LOWER "+" suffix \
  R"(|[^\r\n\p{L}\p{N}]?)" TENON_UPPER "+" TENON_LOWER "*" suffix
#define TENON_SLASHED_REST R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*)"
constexpr std::string_view gpt4o =
    TENON_CASED_WORDS(TENON_CONTRACTIONS "?") R"(|\p{N}{1,3})" TENON_SLASHED_REST TENON_SPACES;
constexpr std::string_view youtu =
    TENON_CASED_WORDS(TENON_CONTRACTIONS "?") R"(|\p{N})" TENON_SLASHED_REST TENON_SPACES;
constexpr std::string_view tekken =
    TENON_CASED_WORDS("") R"(|\p{N})" TENON_SLASHED_REST TENON_SPACES;
constexpr std::string_view youtu_scripts =
    "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥\u3040-ゟ゠-ヿ]+";
#define TENON_MARKED R"((?=[\p{L}\p{M}]))"
constexpr std::string_view granite =
    R"([^\r\n\p{L}\p{N}]?()" TENON_MARKED R"(([^a-z]))*()" TENON_MARKED
    R"(([^A-Z]))+)" TENON_CONTRACTIONS R"(?|[^\r\n\p{L}\p{N}]?()" TENON_MARKED
    R"(([^a-z]))+()" TENON_MARKED R"(([^A-Z]))*)" TENON_CONTRACTIONS
    R"(?|\p{N}{1,3})" TENON_SLASHED_REST TENON_SPACES;
#define TENON_NO_HAN "&&[^\\p{Han}]]"
#define TENON_KIMI_UPPER R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M})" TENON_NO_HAN
#define TENON_KIMI_LOWER R"([\p{Ll}\p{Lm}\p{Lo}\p{M})" TENON_NO_HAN
constexpr std::string_view kimi =
    R"([\p{Han}]+|[^\r\n\p{L}\p{N}]?)" TENON_KIMI_UPPER "*" TENON_KIMI_LOWER "+" TENON_CONTRACTIONS
    R"(?|[^\r\n\p{L}\p{N}]?)" TENON_KIMI_UPPER "+" TENON_KIMI_LOWER "*" TENON_CONTRACTIONS
    R"(?|\p{N}{1,3})" TENON_REST TENON_SPACES;
constexpr std::string_view qwen35 = TENON_CONTRACTIONS
    R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)" TENON_SPACES;
constexpr std::string_view jais2 = TENON_CONTRACTIONS TENON_WORDS
    R"(|\p{N}{1,3})" TENON_REST
    R"(|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S))"
    R"(|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1})";
constexpr std::string_view bloom = R"( ?[^(\s|.,!?…。，、।۔،)]+)";
constexpr std::string_view bailing =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n])"
    R"(|\s+(?!\S)|\s+)";
constexpr std::string_view seed_coder =
    TENON_CONTRACTIONS TENON_WORDS R"(|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+)" TENON_SPACES;
// Turkish suffixes stay with their apostrophe.
constexpr std::string_view ufakzeka = R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N})" TENON_REST TENON_SPACES;
constexpr std::string_view asian_scripts =
    "[一-鿿㐀-䶿豈-\uFAFF\u3040-ゟ゠-ヿ･-ﾟ⼀-\u2FDFเ-\u0E7F\u0E80-\u0EFFក-\u17FFက-႟ꩠ-ꩿꧠ-\uA9FF가-"
    "\uD7AFᄀ-ᇿ]+";
constexpr std::string_view exaone_moe =
    TENON_CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N})"
                       R"(| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr std::string_view minicpm5 =
    TENON_CONTRACTIONS TENON_WORDS R"(|\p{N}+)" TENON_REST TENON_SPACES;

/// An expression, or a scanner without one.
struct Step {
  std::string_view regex;
  Scanner scanner = nullptr;
};

constexpr std::array gpt2_steps{Step{gpt2}};
constexpr std::array llama3_steps{Step{llama3}};
constexpr std::array qwen2_steps{Step{qwen2}};
constexpr std::array qwen35_steps{Step{qwen35}};
constexpr std::array digits_steps{Step{number}, Step{gpt2}};
constexpr std::array default_steps{Step{marked_punctuation}, Step{gpt2}, Step{numbers},
                                   Step{three_digits}};
constexpr std::array falcon_steps{Step{{}, scan::punctuation}, Step{gpt2},
                                  Step{{}, scan::numeric_bytes}, Step{three_digits}};
constexpr std::array deepseek_llm_steps{Step{newline},
                                        Step{{}, scan::deepseek_letters},
                                        Step{deepseek_punctuation},
                                        Step{trailing_space},
                                        Step{cjk},
                                        Step{number}};
constexpr std::array deepseek_coder_steps{Step{newline}, Step{spaced_letters},
                                          Step{spaced_punctuation}, Step{cjk}, Step{number}};
constexpr std::array deepseek3_steps{Step{three_numbers}, Step{kana_and_han}, Step{deepseek3}};
constexpr std::array spark_steps{Step{three_numbers}, Step{kana_and_han}, Step{spark},
                                 Step{number}};
constexpr std::array gpt4o_steps{Step{gpt4o}};
constexpr std::array youtu_steps{Step{youtu_scripts}, Step{youtu}};
constexpr std::array tekken_steps{Step{tekken}};
constexpr std::array granite_steps{Step{granite}};
constexpr std::array kimi_steps{Step{kimi}};
constexpr std::array jais2_steps{Step{jais2}};
constexpr std::array bloom_steps{Step{bloom}};
constexpr std::array viking_steps{Step{bloom}, Step{number}};
constexpr std::array bailing_steps{Step{bailing}};
constexpr std::array seed_coder_steps{Step{seed_coder}};
constexpr std::array ufakzeka_steps{Step{ufakzeka}};
constexpr std::array afmoe_steps{Step{numbers}, Step{{}, scan::threes_of_numbers},
                                 Step{asian_scripts}, Step{deepseek3}};
constexpr std::array laguna_steps{Step{lines}, Step{qwen2}};
constexpr std::array exaone_moe_steps{Step{exaone_moe}};
constexpr std::array minicpm5_steps{Step{three_numbers}, Step{minicpm5}};
constexpr std::array tiny_aya_steps{Step{digits_by_three}, Step{gpt4o}};
constexpr std::array superbpe_steps{Step{numbers}, Step{before_threes}};
constexpr std::array chameleon_steps{
    Step{"<sentinel:[0-9]+>"},       Step{"(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z"},
    Step{R"(([\t\n]|    |  ))"},     Step{number},
    Step{R"([\p{P}!-/:-@\[-`{-~])"}, Step{gpt2}};
constexpr std::array word_steps{Step{R"(\S+)"}};

struct Flags {
  bool composes = false;
  bool ignores_merges = false;
  bool adds_bos = false;
  Spelling spelling = Spelling::bytes;
};

struct Named {
  std::string_view name;
  std::span<const Step> steps;
  Flags flags = {};
};

constexpr Flags nfc{.composes = true};
constexpr Flags whole_words{.ignores_merges = true};
constexpr Flags whole_words_and_bos{.ignores_merges = true, .adds_bos = true};
constexpr Flags bos{.adds_bos = true};
constexpr Flags characters{.spelling = Spelling::characters};
constexpr Flags words{.spelling = Spelling::words};
constexpr Flags characters_and_bos{.adds_bos = true, .spelling = Spelling::characters};

// The names are those that llama.cpp's converter writes to tokenizer.ggml.pre, with its flags; the
// NFC flags are those of the families' own tokenizer.json files. Sorted by name.
constexpr std::array named_pretokenizers{
    Named{"a.x-4.0", gpt2_steps},
    Named{"afmoe", afmoe_steps},
    Named{"bailingmoe", bailing_steps},
    Named{"bailingmoe2", bailing_steps},
    Named{"bloom", bloom_steps},
    Named{"chameleon", chameleon_steps, bos},
    Named{"chatglm-bpe", llama3_steps},
    Named{"codeshell", digits_steps},
    Named{"cohere2moe", tiny_aya_steps},
    Named{"command-r", digits_steps, nfc},
    Named{"dbrx", llama3_steps},
    Named{"deepseek-coder", deepseek_coder_steps},
    Named{"deepseek-llm", deepseek_llm_steps},
    Named{"deepseek-r1-qwen", qwen2_steps, nfc},
    Named{"deepseek-v3", deepseek3_steps},
    Named{"default", default_steps},
    Named{"exaone", digits_steps},
    Named{"exaone-moe", exaone_moe_steps},
    Named{"exaone4", gpt2_steps},
    Named{"f2llmv2", qwen2_steps, nfc},
    Named{"falcon", falcon_steps},
    Named{"falcon-h1", llama3_steps, whole_words_and_bos},
    Named{"falcon3", llama3_steps, whole_words_and_bos},
    Named{"gemma4", {}, characters_and_bos},
    Named{"gigachat", gpt2_steps},
    Named{"glm4", llama3_steps, whole_words},
    Named{"glm5", llama3_steps, whole_words},
    Named{"gpt-2", gpt2_steps},
    Named{"gpt-4o", gpt4o_steps},
    Named{"gpt3-finnish", bloom_steps},
    Named{"granite-docling", gpt2_steps},
    Named{"granite-embed-multi-311m", {}, characters_and_bos},
    Named{"granite-embed-multi-97m", granite_steps, whole_words},
    Named{"grok-2", qwen2_steps},
    Named{"hunyuan", qwen2_steps},
    Named{"hunyuan-dense", deepseek3_steps},
    Named{"hy_v4", deepseek3_steps},
    Named{"jais", gpt2_steps},
    Named{"jais-2", jais2_steps},
    Named{"jina-de", gpt2_steps},
    Named{"jina-es", gpt2_steps},
    Named{"jina-v1-en", gpt2_steps},
    Named{"jina-v2-code", gpt2_steps},
    Named{"jina-v2-de", gpt2_steps},
    Named{"jina-v2-es", gpt2_steps},
    Named{"jina-v5-nano", llama3_steps, whole_words_and_bos},
    Named{"joyai-llm", deepseek3_steps},
    Named{"kanana2", gpt4o_steps},
    Named{"kimi-k2", kimi_steps},
    Named{"kormo", qwen2_steps},
    Named{"laguna", laguna_steps},
    Named{"lfm2", llama3_steps, whole_words_and_bos},
    Named{"llada-moe", bailing_steps},
    Named{"llama-bpe", llama3_steps, whole_words_and_bos},
    Named{"llama-v3", llama3_steps, whole_words_and_bos},
    Named{"llama3", llama3_steps, whole_words_and_bos},
    Named{"llama4", gpt4o_steps},
    Named{"megrez", qwen2_steps},
    Named{"mellum", gpt2_steps},
    Named{"mellum2", digits_steps},
    Named{"midm-2.0", llama3_steps, whole_words_and_bos},
    Named{"minerva-7b", digits_steps},
    Named{"minicpm5", minicpm5_steps, whole_words},
    Named{"minimax-m2", gpt4o_steps},
    Named{"modern-bert", gpt2_steps},
    Named{"mpt", gpt2_steps, nfc},
    Named{"olmo", gpt2_steps, nfc},
    Named{"phi-2", gpt2_steps},
    Named{"pixtral", llama3_steps, whole_words_and_bos},
    Named{"poro-chat", bloom_steps},
    Named{"qwen2", qwen2_steps, nfc},
    Named{"qwen35", qwen35_steps},
    Named{"refact", digits_steps},
    Named{"roberta-bpe", gpt2_steps},
    Named{"sarvam-moe", {}, characters},
    Named{"seed-coder", seed_coder_steps},
    Named{"smaug-bpe", llama3_steps},
    Named{"smollm", digits_steps},
    Named{"solar-open", qwen2_steps},
    Named{"spark2_5", spark_steps},
    Named{"stablelm2", qwen2_steps, nfc},
    Named{"starcoder", digits_steps},
    Named{"superbpe", superbpe_steps},
    Named{"talkie", gpt4o_steps},
    Named{"tekken", tekken_steps, whole_words_and_bos},
    Named{"tiny_aya", tiny_aya_steps},
    Named{"trillion", gpt2_steps},
    Named{"ufakzeka", ufakzeka_steps},
    Named{"viking", viking_steps},
    Named{"whitespace", word_steps, words},
    Named{"youtu", youtu_steps, whole_words},
};
static_assert(std::ranges::is_sorted(named_pretokenizers, {}, &Named::name));

struct SplitPattern {
  std::string_view regex;
  Scanner scanner;
  Scanner inside = nullptr;  ///< splits what `scanner` found
};

// Expressions with a scanner, which takes a fraction of the time, or which looks further ahead than
// Expression does.
constexpr std::array split_patterns{
    SplitPattern{gpt2, scan::gpt2},
    SplitPattern{R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))",
                 scan::gpt2},
    SplitPattern{llama3, scan::llama3},
    SplitPattern{qwen2, scan::qwen2},
    SplitPattern{marked_punctuation, scan::marked_punctuation},
    SplitPattern{newline, scan::newline},
    SplitPattern{R"([\r\n])", scan::newline},
    SplitPattern{number, scan::number},
    SplitPattern{numbers, scan::numbers},
    SplitPattern{three_digits, scan::three_digits},
    SplitPattern{spaced_letters, scan::spaced_letters},
    SplitPattern{spaced_punctuation, scan::spaced_punctuation},
    SplitPattern{trailing_space, scan::trailing_space},
    SplitPattern{cjk, scan::cjk},
    SplitPattern{deepseek_punctuation, scan::deepseek_punctuation},
    SplitPattern{digits_by_three, scan::digits_before_edge, scan::threes_of_run},
    SplitPattern{before_threes, scan::threes_of_digits},
};

/// Splits one piece by one stage.
void split_piece(std::string_view text, std::size_t begin, std::size_t end, const Stage& stage,
                 std::vector<std::uint32_t>& ends, ExpressionMatcher::Scratch& scratch) {
  // A match must not see past the piece: its look-ahead ends there.
  const std::string_view piece = text.substr(begin, end - begin);
  std::size_t gap = 0;
  for_each_match(piece, stage, scratch, [&](std::size_t from, std::size_t to) {
    if (gap != from) ends.push_back(static_cast<std::uint32_t>(begin + from));
    ends.push_back(static_cast<std::uint32_t>(begin + to));
    gap = to;
  });
  if (gap != piece.size()) ends.push_back(static_cast<std::uint32_t>(end));
}

}  // namespace

std::optional<Pretokenizer> find_pretokenizer(std::string_view name) {
  const auto* const found = std::ranges::lower_bound(named_pretokenizers, name, {}, &Named::name);
  if (found == named_pretokenizers.end() || found->name != name) return std::nullopt;
  Pretokenizer pretokenizer{.stages = {},
                            .composes = found->flags.composes,
                            .ignores_merges = found->flags.ignores_merges,
                            .adds_bos = found->flags.adds_bos,
                            .spelling = found->flags.spelling};
  for (const Step& step : found->steps) {
    if (step.scanner != nullptr) {
      pretokenizer.stages.push_back({step.scanner, nullptr});
    } else {
      for (Stage& stage : split_stages(step.regex)) {
        pretokenizer.stages.push_back(std::move(stage));
      }
    }
  }
  return pretokenizer;
}

std::vector<std::string_view> pretokenizer_names() {
  std::vector<std::string_view> names;
  names.reserve(named_pretokenizers.size());
  for (const Named& named : named_pretokenizers) names.push_back(named.name);
  return names;
}

std::vector<Stage> split_stages(std::string_view regex) {
  if (scan::is_deepseek_letter_pattern(regex)) return {{scan::deepseek_letters, nullptr}};
  const auto* const found = std::ranges::find(split_patterns, regex, &SplitPattern::regex);
  if (found == split_patterns.end()) return {{nullptr, std::make_shared<Expression>(regex)}};
  if (found->inside == nullptr) return {{found->scanner, nullptr}};
  return {{found->scanner, nullptr}, {found->inside, nullptr}};
}

void split(std::string_view text, SplitStages stages, std::vector<std::uint32_t>& ends,
           SplitScratch& scratch) {
  const std::size_t old_size = ends.size();
  if (text.empty()) return;
  if (stages.empty()) {
    ends.push_back(static_cast<std::uint32_t>(text.size()));
    return;
  }
  split_piece(text, 0, text.size(), stages.front(), ends, scratch.matcher);
  for (const Stage& stage : stages.subspan(1)) {
    scratch.ends.assign(ends.begin() + static_cast<std::ptrdiff_t>(old_size), ends.end());
    ends.resize(old_size);
    std::size_t begin = 0;
    for (const std::uint32_t end : scratch.ends) {
      split_piece(text, begin, end, stage, ends, scratch.matcher);
      begin = end;
    }
  }
}

}  // namespace tenon::text
