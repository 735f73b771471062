#include "tokenizer_json.hpp"

#include "base/strict_json.hpp"
#include "json_parts.hpp"
#include "pipeline_json.hpp"
#include "scanners.hpp"
#include "tokenizer_impl.hpp"

#include <tenon/error.hpp>
#include <tenon/memory_errors.hpp>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace tenon::text {
namespace {

using nlohmann::json;

constexpr std::uintmax_t max_file_bytes = std::uintmax_t{256} << 20;

/// Converts the components of a file into a recipe. Every component that can change an id is either
/// supported or refused.
class Reader : private JsonParts {
 public:
  Reader(std::shared_ptr<const json> document, std::string_view where)
      : JsonParts(where), document_(std::move(document)), root_(*document_) {}

  Recipe read() {
    if (!root_.is_object()) malformed("the document is no object");
    read_model(required(root_, "model"));
    read_added_tokens();
    recipe_.vocabulary.storage = document_;
    if (unknown_ != nullptr) recipe_.vocabulary.unk = token_id(*unknown_);
    const Recipe vocabulary = recipe_;
    try {
      read_common_form();
    } catch (const OtherForm&) {
      recipe_ = vocabulary;
      read_pipeline();
    }
    read_postprocessor(optional(root_, "post_processor"));
    name_special_tokens();
    return std::move(recipe_);
  }

 private:
  enum class Model { bpe, wordpiece, wordlevel, unigram };

  /// Thrown where a file is not of the forms that have a model of their own.
  struct OtherForm {};

  /// The forms of most published files, whose models take steps of their own: faster, and with
  /// ill-formed bytes kept.
  void read_common_form() {
    if (model_ != Model::bpe && model_ != Model::wordpiece) throw OtherForm();
    if (!recipe_.continuing_prefix.empty() || !recipe_.word_suffix.empty()) throw OtherForm();
    read_normalizer(optional(root_, "normalizer"));
    read_pretokenizer(optional(root_, "pre_tokenizer"));
    finish_model();
    read_decoder(optional(root_, "decoder"));
  }

  void read_pipeline() {
    Vocabulary& v = recipe_.vocabulary;
    recipe_.pipeline = PipelineReader(where()).read(root_, recipe_);
    Pipeline& pipeline = *recipe_.pipeline;
    switch (model_) {
      case Model::bpe: {
        const bool has_alphabet = std::ranges::find(pipeline.steps, WordStep::Kind::alphabet,
                                                    &WordStep::kind) != pipeline.steps.end();
        pipeline.model = Pipeline::Model::characters;
        v.model = has_alphabet ? TokenizerModel::bpe : TokenizerModel::spm;
        break;
      }
      case Model::wordpiece:
        pipeline.model = Pipeline::Model::wordpiece;
        v.model = TokenizerModel::wordpiece;
        break;
      case Model::wordlevel:
        pipeline.model = Pipeline::Model::wordlevel;
        v.model = TokenizerModel::wordlevel;
        break;
      case Model::unigram:
        pipeline.model = Pipeline::Model::unigram;
        v.model = TokenizerModel::unigram;
        break;
    }
  }

  /// The id of a token that some component names.
  std::uint32_t token_id(const std::string& token) const {
    const auto& tokens = recipe_.vocabulary.tokens;
    const auto found = std::ranges::find(tokens, std::string_view(token));
    if (found == tokens.end()) malformed(fmt::format("\"{}\" is no token", token.substr(0, 80)));
    return static_cast<std::uint32_t>(found - tokens.begin());
  }

  void put_token(std::uint32_t token_id, std::string_view content, TokenType type) {
    auto& tokens = recipe_.vocabulary.tokens;
    auto& types = recipe_.vocabulary.types;
    // Ids may leave gaps, but a gap costs memory, so it must be in proportion.
    const std::size_t limit = 2 * tokens_expected_ + 65536;
    if (token_id >= limit) malformed(fmt::format("id {} is far beyond the vocabulary", token_id));
    if (token_id >= tokens.size()) {
      tokens.resize(token_id + std::size_t{1});
      types.resize(tokens.size(), TokenType::unused);
    }
    if (!tokens[token_id].empty() && tokens[token_id] != content) {
      malformed(
          fmt::format("id {} is both \"{}\" and \"{}\"", token_id, tokens[token_id], content));
    }
    tokens[token_id] = content;
    types[token_id] = type;
  }

  void read_model(const json& model) {
    if (!model.is_object()) malformed("\"model\" is no object");
    std::string type;
    if (!optional(model, "type").is_null()) {
      type = text(model, "type");
    } else {
      type = model.contains("merges") ? "BPE" : "WordPiece";  // files of before 2020
    }
    if (type == "Unigram") {
      model_ = Model::unigram;
      read_unigram(model);
      return;
    }
    if (type != "BPE" && type != "WordPiece" && type != "WordLevel") {
      unsupported(fmt::format("models of type {} are not implemented", type.substr(0, 40)));
    }
    const json& vocab = required(model, "vocab");
    if (!vocab.is_object()) malformed("\"vocab\" is no object");
    tokens_expected_ = vocab.size();
    recipe_.vocabulary.tokens.reserve(vocab.size());
    for (const auto& [content, value] : vocab.get_ref<const json::object_t&>()) {
      put_token(id(value, content), content, TokenType::normal);
    }
    if (type == "WordPiece") {
      model_ = Model::wordpiece;
      recipe_.vocabulary.model = TokenizerModel::wordpiece;
      read_wordpiece(model);
    } else if (type == "WordLevel") {
      model_ = Model::wordlevel;
      const std::string& unknown = text(model, "unk_token");
      if (vocab.contains(unknown)) unknown_ = &unknown;
    } else {
      read_bpe(model);
    }
  }

  void read_unigram(const json& model) {
    const json& vocab = required(model, "vocab");
    if (!vocab.is_array()) malformed("\"vocab\" is no list");
    tokens_expected_ = vocab.size();
    recipe_.vocabulary.tokens.reserve(vocab.size());
    recipe_.scores.reserve(vocab.size());
    for (const json& entry : vocab) {
      const auto at = static_cast<std::uint32_t>(recipe_.scores.size());
      if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() ||
          !entry[1].is_number()) {
        malformed(fmt::format("entry {} of the vocabulary is no [text, score]", at));
      }
      recipe_.scores.push_back(entry[1].get<double>());
      recipe_.lowest_score = std::min(recipe_.lowest_score, recipe_.scores.back());
      put_token(at, entry[0].get_ref<const std::string&>(), TokenType::normal);
    }
    recipe_.byte_fallback = flag(model, "byte_fallback", false);
    if (const json& unknown = optional(model, "unk_id"); !unknown.is_null()) {
      recipe_.vocabulary.unk = id(unknown, "unk_id");
    }
  }

  void read_wordpiece(const json& model) {
    BertOptions& options = recipe_.vocabulary.bert;
    options.clean_text = options.split_chinese = options.lowercase = false;  // its normaliser says
    options.continuing_prefix = text(model, "continuing_subword_prefix");
    const json& longest = required(model, "max_input_chars_per_word");
    options.max_word_chars = id(longest, "max_input_chars_per_word");
    unknown_ = &text(model, "unk_token");
  }

  void read_bpe(const json& model) {
    const auto affix = [&](const char* key) {
      return optional(model, key).is_null() ? std::string() : text(model, key);
    };
    recipe_.continuing_prefix = affix("continuing_subword_prefix");
    recipe_.word_suffix = affix("end_of_word_suffix");
    const json& dropout = optional(model, "dropout");
    if (!dropout.is_null() && dropout != 0.0) unsupported("BPE with dropout");
    recipe_.byte_fallback = flag(model, "byte_fallback", false);
    recipe_.fuses_unknown = flag(model, "fuse_unk", false);
    recipe_.ignores_merges = flag(model, "ignore_merges", false);
    if (!optional(model, "unk_token").is_null()) unknown_ = &text(model, "unk_token");

    const json& merges = required(model, "merges");
    if (!merges.is_array()) malformed("\"merges\" is no list");
    recipe_.vocabulary.merges.reserve(merges.size());
    for (const json& merge : merges) {
      if (merge.is_string()) {
        recipe_.vocabulary.merges.push_back(parse_merge(merge.get_ref<const std::string&>()));
      } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
                 merge[1].is_string()) {
        recipe_.vocabulary.merges.push_back(
            {merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>()});
      } else {
        malformed(
            fmt::format("merge {} does not name two tokens", recipe_.vocabulary.merges.size()));
      }
    }
  }

  void read_added_tokens() {
    const json& list = optional(root_, "added_tokens");
    if (list.is_null()) return;
    if (!list.is_array()) malformed("\"added_tokens\" is no list");
    tokens_expected_ += list.size();
    for (const json& token : list) {
      const std::string& content = text(token, "content");
      AddedToken added;
      added.id = id(required(token, "id"), content);
      added.strip_left = flag(token, "lstrip", false);
      added.strip_right = flag(token, "rstrip", false);
      added.single_word = flag(token, "single_word", false);
      const bool is_special = flag(token, "special", false);
      added.normalized = flag(token, "normalized", !is_special);
      const auto& tokens = recipe_.vocabulary.tokens;
      const bool is_new = added.id >= tokens.size() || tokens[added.id].empty();
      put_token(added.id, content, is_special ? TokenType::control : TokenType::user_defined);
      recipe_.only_added.resize(tokens.size());
      if (is_new) recipe_.only_added[added.id] = true;
      recipe_.vocabulary.added.push_back(added);
    }
  }

  void read_normalizer(const json& normalizer) {
    for (const json* const part : parts(normalizer, "normalizers")) {
      const std::string& type = text(*part, "type");
      if (type == "NFC") {
        recipe_.composes = true;
      } else if (type == "BertNormalizer") {
        read_bert_normalizer(*part);
      } else if (type == "Prepend" && text(*part, "prepend") == space_mark) {
        recipe_.prefix = SpacePrefix::always;
      } else if (type == "Replace" && text(*part, "content") == space_mark &&
                 says(optional(required(*part, "pattern"), "String"), " ")) {
        escapes_spaces_ = true;
      } else {
        throw OtherForm();
      }
    }
  }

  void read_bert_normalizer(const json& part) {
    has_bert_normalizer_ = true;
    BertOptions& options = recipe_.vocabulary.bert;
    options.clean_text = flag(part, "clean_text", true);
    options.split_chinese = flag(part, "handle_chinese_chars", true);
    options.lowercase = flag(part, "lowercase", true);
    const json& strip = optional(part, "strip_accents");
    if (!strip.is_null()) options.strip_accents = flag(part, "strip_accents", true);
  }

  void read_pretokenizer(const json& pretokenizer) {
    for (const json* const part : parts(pretokenizer, "pretokenizers")) {
      const std::string& type = text(*part, "type");
      if (type == "ByteLevel") {
        read_byte_level(*part);
      } else if (type == "Split") {
        read_split(*part);
      } else if (type == "Digits") {
        const bool single = flag(*part, "individual_digits", false);
        if (is_byte_level_ && single) throw OtherForm();
        add_stage(is_byte_level_ ? scan::numeric_bytes
                  : single       ? scan::number
                                 : scan::numbers,
                  true);
      } else if (type == "Punctuation") {
        if (!says(optional(*part, "behavior"), "Contiguous")) throw OtherForm();
        add_stage(scan::punctuation);
      } else if (type == "Metaspace") {
        read_metaspace(*part);
      } else if (type == "BertPreTokenizer") {
        has_bert_pretokenizer_ = true;
      } else {
        throw OtherForm();
      }
    }
  }

  /// After the byte alphabet only stages that know it may follow.
  void add_stage(Stage stage, bool knows_bytes = false) {
    if (is_byte_level_ && !knows_bytes) throw OtherForm();
    recipe_.stages.push_back(std::move(stage));
  }
  void add_stage(Scanner scanner, bool knows_bytes = false) {
    add_stage(Stage{scanner, nullptr}, knows_bytes);
  }

  void read_byte_level(const json& part) {
    if (is_byte_level_) throw OtherForm();
    if (flag(part, "add_prefix_space", true)) {
      if (!recipe_.stages.empty()) throw OtherForm();
      recipe_.prefix = SpacePrefix::unless_space;
    }
    if (flag(part, "use_regex", true)) add_stage(scan::gpt2);
    is_byte_level_ = true;
  }

  void read_split(const json& part) {
    const json& pattern = required(part, "pattern");
    if (says(optional(pattern, "String"), " ") && escapes_spaces_)
      return;  // no space is left to split
    if (optional(pattern, "Regex").is_null()) throw OtherForm();
    const std::string& regex = text(pattern, "Regex");
    std::vector<Stage> stages = split_stages(regex);
    const std::string& behavior = text(part, "behavior");
    const bool inverted = flag(part, "invert", false);
    const Scanner scanner = stages.size() == 1 ? stages.front().scanner : nullptr;
    const bool covers_text =
        scanner == scan::gpt2 || scanner == scan::llama3 || scanner == scan::qwen2;
    // Keeping the matches and removing the rest equals isolating the matches if there is no rest.
    if (!(behavior == "Isolated" && !inverted) &&
        !(behavior == "Removed" && inverted && covers_text)) {
      throw OtherForm();
    }
    for (Stage& stage : stages) add_stage(std::move(stage), scanner == scan::three_digits);
  }

  void read_metaspace(const json& part) {
    if (text(part, "replacement") != space_mark) throw OtherForm();
    // These strip white space, which must not be marks yet.
    const auto strips = [](const AddedToken& token) {
      return token.normalized && (token.strip_left || token.strip_right);
    };
    if (std::ranges::any_of(recipe_.vocabulary.added, strips)) throw OtherForm();
    escapes_spaces_ = true;
    recipe_.splits_at_space = flag(part, "split", true);
    const json& scheme = optional(part, "prepend_scheme");
    if (scheme.is_null()) {
      const bool adds = flag(part, "add_prefix_space", true);
      recipe_.prefix = adds ? SpacePrefix::unless_space : SpacePrefix::never;
    } else if (says(scheme, "always")) {
      recipe_.prefix = SpacePrefix::unless_space;
    } else if (says(scheme, "first")) {
      recipe_.prefix = SpacePrefix::first_unless_space;
    } else if (!says(scheme, "never")) {
      malformed("an unknown prepend_scheme");
    }
  }

  void finish_model() {
    Vocabulary& v = recipe_.vocabulary;
    if (model_ == Model::wordpiece) {
      const bool is_plain = recipe_.stages.empty() && !is_byte_level_ && !escapes_spaces_;
      if (!has_bert_pretokenizer_ || !is_plain || recipe_.composes) {
        throw OtherForm();
      }
      return;
    }
    if (has_bert_normalizer_ || has_bert_pretokenizer_) throw OtherForm();
    recipe_.drops_unknown = unknown_ == nullptr;
    if (is_byte_level_) {
      if (escapes_spaces_) throw OtherForm();
      v.model = TokenizerModel::bpe;
      return;
    }
    if (!recipe_.stages.empty() || recipe_.composes || recipe_.ignores_merges) {
      throw OtherForm();
    }
    v.model = TokenizerModel::spm;
    recipe_.escapes_spaces = escapes_spaces_;
  }

  void read_postprocessor(const json& postprocessor) {
    for (const json* const part : parts(postprocessor, "processors")) {
      const std::string& type = text(*part, "type");
      if (type != "ByteLevel" && !(recipe_.before.empty() && recipe_.after.empty())) {
        unsupported("more than one post-processor that adds tokens");
      }
      if (type == "TemplateProcessing") {
        read_template(*part);
      } else if (type == "BertProcessing" || type == "RobertaProcessing") {
        const std::int32_t separator = pair_id(required(*part, "sep"));
        recipe_.before.push_back(pair_id(required(*part, "cls")));
        recipe_.after.push_back(separator);
        recipe_.between.emplace(type == "BertProcessing" ? 1 : 2, separator);
      } else if (type != "ByteLevel") {
        unsupported(fmt::format("post-processor {}", type.substr(0, 40)));
      }
    }
  }

  std::int32_t pair_id(const json& pair) const {
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string()) {
      malformed("a post-processor's token is no [text, id]");
    }
    return static_cast<std::int32_t>(id(pair[1], pair[0].get_ref<const std::string&>()));
  }

  void read_template(const json& part) {
    auto single = read_frame(part, "single");
    single.resize(2);
    const auto append = [](std::vector<std::int32_t>& to, const std::vector<std::int32_t>& ids) {
      to.insert(to.end(), ids.begin(), ids.end());
    };
    append(recipe_.before, single[0]);
    append(recipe_.after, single[1]);
    recipe_.between.reset();
    if (!optional(part, "pair").is_array()) return;
    const auto pair = read_frame(part, "pair");
    const bool is_framed =
        pair.size() == 3 && pair.front() == recipe_.before && pair.back() == recipe_.after;
    if (is_framed) recipe_.between = pair[1];
  }

  /// The ids of a template before, between and behind its sequences.
  std::vector<std::vector<std::int32_t>> read_frame(const json& part, const char* form) {
    const json& steps = required(part, form);
    if (!steps.is_array()) malformed(fmt::format("\"{}\" is no list", form));
    std::vector<std::vector<std::int32_t>> sides(1);
    for (const json& step : steps) {
      if (step.contains("Sequence")) {
        sides.emplace_back();
        continue;
      }
      const std::string& name = text(required(step, "SpecialToken"), "id");
      const json& special = required(required(part, "special_tokens"), name.c_str());
      const json& ids = required(special, "ids");
      if (!ids.is_array()) malformed("\"ids\" is no list");
      for (const json& value : ids) {
        sides.back().push_back(static_cast<std::int32_t>(id(value, name)));
      }
    }
    return sides;
  }

  void read_decoder(const json& decoder) {
    for (const json* const part : parts(decoder, "decoders")) {
      const std::string& type = text(*part, "type");
      if (type == "Strip") {
        if (says(optional(*part, "content"), " ") && optional(*part, "start") == 1) {
          recipe_.strips_decoded_space = true;
        }
      } else if (type == "Metaspace") {
        recipe_.drops_first_spaces = recipe_.prefix != SpacePrefix::never;
      } else if (type == "WordPiece") {
        recipe_.cleans_up_decoded = flag(*part, "cleanup", true);
      } else if (type != "ByteLevel" && type != "Replace" && type != "ByteFallback" &&
                 type != "Fuse") {
        unsupported(fmt::format("decoder {}", type.substr(0, 40)));
      }
    }
  }

  /// A tokenizer.json does not say which token is which; spellings and the template do.
  void name_special_tokens() {
    Vocabulary& v = recipe_.vocabulary;
    for (const std::int32_t framing : recipe_.before) check_framing(framing);
    for (const std::int32_t framing : recipe_.after) check_framing(framing);
    if (recipe_.between) {
      for (const std::int32_t framing : *recipe_.between) check_framing(framing);
    }
    const auto named = [&](std::string_view spelling) -> std::optional<std::uint32_t> {
      const auto found = std::ranges::find(v.tokens, spelling);
      if (found == v.tokens.end()) return std::nullopt;
      return static_cast<std::uint32_t>(found - v.tokens.begin());
    };
    const auto as_token = [](const std::vector<std::int32_t>& ids) -> std::optional<std::uint32_t> {
      if (ids.size() != 1) return std::nullopt;
      return static_cast<std::uint32_t>(ids.front());
    };
    if (v.model == TokenizerModel::wordpiece) {
      v.cls = v.bos = as_token(recipe_.before);
      v.sep = v.eos = as_token(recipe_.after);
      v.pad = named("[PAD]");
      v.mask = named("[MASK]");
      return;
    }
    v.bos = as_token(recipe_.before);
    v.eos = as_token(recipe_.after);
    for (const std::string_view spelling : {"</s>", "<eos>", "<|endoftext|>", "<|end_of_text|>"}) {
      if (!v.eos) v.eos = named(spelling);
    }
    v.pad = named("<pad>");
  }

  void check_framing(std::int32_t framing) const {
    if (static_cast<std::size_t>(framing) >= recipe_.vocabulary.tokens.size()) {
      malformed(fmt::format("the post-processor adds token {}, which does not exist", framing));
    }
  }

  std::shared_ptr<const json> document_;
  const json& root_;
  Recipe recipe_;
  std::size_t tokens_expected_ = 0;
  const std::string* unknown_ = nullptr;
  Model model_ = Model::bpe;
  bool is_byte_level_ = false;
  bool escapes_spaces_ = false;
  bool has_bert_normalizer_ = false;
  bool has_bert_pretokenizer_ = false;
};

std::string read_file(const std::filesystem::path& file) {
  std::error_code error;
  const auto status = std::filesystem::status(file, error);
  if (!std::filesystem::exists(status)) {
    throw Error(Errc::not_found, file.string(), "no such file");
  }
  if (!std::filesystem::is_regular_file(status)) {
    throw Error(Errc::not_regular_file, file.string(), "not a regular file");
  }
  const std::uintmax_t size = std::filesystem::file_size(file, error);
  if (!error && size > max_file_bytes) {
    throw Error(Errc::limit_exceeded, file.string(),
                fmt::format("{} bytes; at most {} are read", size, max_file_bytes));
  }
  std::ifstream stream(file, std::ios::binary);
  std::string text(error ? 0 : static_cast<std::size_t>(size), '\0');
  if (error || !stream.read(text.data(), static_cast<std::streamsize>(text.size()))) {
    throw Error(Errc::io_error, file.string(), "could not be read");
  }
  return text;
}

}  // namespace

Recipe read_tokenizer_json(std::string_view text, std::string_view where) {
  const auto document = std::make_shared<const JsonDocument>(parse_strict_json(text, where));
  Recipe recipe = Reader({document, &document->root()}, where).read();
  check_vocabulary(recipe.vocabulary);
  return recipe;
}

Tokenizer Tokenizer::from_json_text(std::string_view json, std::string_view where) {
  return with_memory_errors(where, [&] {
    return Tokenizer(std::make_shared<const Impl>(read_tokenizer_json(json, where)));
  });
}

Tokenizer Tokenizer::from_json(const std::filesystem::path& file) {
  return with_memory_errors(file.native(),
                            [&] { return from_json_text(read_file(file), file.string()); });
}

}  // namespace tenon::text
