#include "tokenizer_json.hpp"

#include "base/immortal.hpp"
#include "base/strict_json.hpp"
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
constexpr std::string_view space_mark = "\xE2\x96\x81";

/// Converts the components of a file into a recipe. Every component that can change an id is either
/// supported or refused.
class Reader {
 public:
  Reader(std::shared_ptr<const json> document, std::string_view where)
      : document_(std::move(document)), root_(*document_), where_(where) {}

  Recipe read() {
    if (!root_.is_object()) malformed("the document is no object");
    read_model(required(root_, "model"));
    read_added_tokens();
    recipe_.vocabulary.storage = document_;
    read_normalizer(optional(root_, "normalizer"));
    read_pretokenizer(optional(root_, "pre_tokenizer"));
    finish_model();
    read_postprocessor(optional(root_, "post_processor"));
    read_decoder(optional(root_, "decoder"));
    name_special_tokens();
    return std::move(recipe_);
  }

 private:
  [[noreturn]] void malformed(std::string message) const {
    throw Error(Errc::bad_tokenizer, std::string(where_), std::move(message));
  }

  [[noreturn]] void unsupported(std::string message) const {
    throw Error(Errc::unsupported, std::string(where_), std::move(message));
  }

  static const json& optional(const json& object, const char* key) {
    const json& null = process_wide([] { return json(); });
    if (!object.is_object()) return null;
    const auto found = object.find(key);
    return found == object.end() ? null : *found;
  }

  const json& required(const json& object, const char* key) const {
    const json& value = optional(object, key);
    if (value.is_null()) malformed(fmt::format("\"{}\" is missing", key));
    return value;
  }

  const std::string& text(const json& object, const char* key) const {
    const json& value = required(object, key);
    if (!value.is_string()) malformed(fmt::format("\"{}\" is no string", key));
    return value.get_ref<const std::string&>();
  }

  bool flag(const json& object, const char* key, bool fallback) const {
    const json& value = optional(object, key);
    if (value.is_null()) return fallback;
    if (!value.is_boolean()) malformed(fmt::format("\"{}\" is neither true nor false", key));
    return value.get<bool>();
  }

  std::uint32_t id(const json& value, std::string_view of) const {
    if (!value.is_number_unsigned() ||
        value.get<std::uint64_t>() > std::numeric_limits<std::int32_t>::max()) {
      malformed(fmt::format("the id of \"{}\" is no small whole number", of.substr(0, 80)));
    }
    return value.get<std::uint32_t>();
  }

  /// The id of a token that some component names.
  std::uint32_t token_id(const std::string& token) const {
    const auto& tokens = recipe_.vocabulary.tokens;
    const auto found = std::ranges::find(tokens, std::string_view(token));
    if (found == tokens.end()) malformed(fmt::format("\"{}\" is no token", token.substr(0, 80)));
    return static_cast<std::uint32_t>(found - tokens.begin());
  }

  /// The parts of a component: a Sequence's, or the component alone.
  std::vector<const json*> parts(const json& component, const char* list_key) const {
    std::vector<const json*> flat;
    if (component.is_null()) return flat;
    if (text(component, "type") != "Sequence") return {&component};
    const json& list = required(component, list_key);
    if (!list.is_array()) malformed(fmt::format("\"{}\" is no list", list_key));
    for (const json& part : list) {
      // The parser bounds the nesting, and with it this recursion.
      const auto inner = parts(part, list_key);
      flat.insert(flat.end(), inner.begin(), inner.end());
    }
    return flat;
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
    if (type != "BPE" && type != "WordPiece") {
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
      recipe_.vocabulary.model = TokenizerModel::wordpiece;
      read_wordpiece(model);
    } else {
      read_bpe(model);
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
    for (const char* const key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      const json& affix = optional(model, key);
      if (!affix.is_null() && affix != "") unsupported(fmt::format("BPE with a {}", key));
    }
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
      put_token(added.id, content, is_special ? TokenType::control : TokenType::user_defined);
      recipe_.vocabulary.added.push_back(added);
    }
  }

  void read_normalizer(const json& normalizer) {
    for (const json* const part : parts(normalizer, "normalizers")) {
      const std::string& type = text(*part, "type");
      const bool is_spm_step = type == "Prepend" || type == "Replace";
      if (type == "NFC") {
        recipe_.composes = true;
      } else if (type == "BertNormalizer") {
        read_bert_normalizer(*part);
      } else if (type == "Prepend" && text(*part, "prepend") == space_mark) {
        recipe_.prefix = SpacePrefix::always;
      } else if (type == "Replace" && text(*part, "content") == space_mark &&
                 optional(required(*part, "pattern"), "String") == " ") {
        escapes_spaces_ = true;
      } else {
        unsupported(fmt::format("normalizer {}{}", type.substr(0, 40),
                                is_spm_step ? " of other than spaces" : ""));
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
        if (is_byte_level_ && single) unsupported("single digits after the byte alphabet");
        add_stage(is_byte_level_ ? scan::numeric_bytes
                  : single       ? scan::number
                                 : scan::numbers,
                  true);
      } else if (type == "Punctuation") {
        if (optional(*part, "behavior") != "Contiguous") unsupported("punctuation one by one");
        add_stage(scan::punctuation);
      } else if (type == "Metaspace") {
        read_metaspace(*part);
      } else if (type == "BertPreTokenizer") {
        has_bert_pretokenizer_ = true;
      } else {
        unsupported(fmt::format("pre-tokenizer {}", type.substr(0, 40)));
      }
    }
  }

  /// After the byte alphabet only stages that know it may follow.
  void add_stage(Scanner scanner, bool knows_bytes = false) {
    if (is_byte_level_ && !knows_bytes) unsupported("splitting after the byte alphabet");
    recipe_.stages.push_back(scanner);
  }

  void read_byte_level(const json& part) {
    if (is_byte_level_) unsupported("the byte alphabet twice");
    if (flag(part, "add_prefix_space", true)) {
      if (!recipe_.stages.empty()) unsupported("add_prefix_space after other splitting");
      recipe_.prefix = SpacePrefix::unless_space;
    }
    if (flag(part, "use_regex", true)) add_stage(scan::gpt2);
    is_byte_level_ = true;
  }

  void read_split(const json& part) {
    const json& pattern = required(part, "pattern");
    if (optional(pattern, "String") == " " && escapes_spaces_) return;  // no space is left to split
    const std::string& regex = text(pattern, "Regex");
    const Scanner scanner = find_split_pattern(regex);
    if (scanner == nullptr) {
      unsupported(fmt::format("splitting by the expression {}", regex.substr(0, 200)));
    }
    const std::string& behavior = text(part, "behavior");
    const bool inverted = flag(part, "invert", false);
    const bool covers_text =
        scanner == scan::gpt2 || scanner == scan::llama3 || scanner == scan::qwen2;
    // Keeping the matches and removing the rest equals isolating the matches if there is no rest.
    if (!(behavior == "Isolated" && !inverted) &&
        !(behavior == "Removed" && inverted && covers_text)) {
      unsupported(fmt::format("splitting with behavior {}", behavior.substr(0, 40)));
    }
    add_stage(scanner, scanner == scan::three_digits);
  }

  void read_metaspace(const json& part) {
    if (text(part, "replacement") != space_mark) unsupported("a Metaspace other than U+2581");
    escapes_spaces_ = true;
    recipe_.splits_at_space = flag(part, "split", true);
    const json& scheme = optional(part, "prepend_scheme");
    if (scheme.is_null()) {
      const bool adds = flag(part, "add_prefix_space", true);
      recipe_.prefix = adds ? SpacePrefix::unless_space : SpacePrefix::never;
    } else if (scheme == "always") {
      recipe_.prefix = SpacePrefix::unless_space;
    } else if (scheme == "first") {
      recipe_.prefix = SpacePrefix::first_unless_space;
    } else if (scheme != "never") {
      malformed("an unknown prepend_scheme");
    }
  }

  void finish_model() {
    Vocabulary& v = recipe_.vocabulary;
    if (unknown_ != nullptr) v.unk = token_id(*unknown_);
    if (v.model == TokenizerModel::wordpiece) {
      const bool is_plain = recipe_.stages.empty() && !is_byte_level_ && !escapes_spaces_;
      if (!has_bert_pretokenizer_ || !is_plain || recipe_.composes) {
        unsupported("WordPiece without BERT's pre-tokenizer");
      }
      return;
    }
    if (has_bert_normalizer_ || has_bert_pretokenizer_) unsupported("BPE behind BERT's splitting");
    recipe_.drops_unknown = unknown_ == nullptr;
    if (is_byte_level_) {
      if (escapes_spaces_) unsupported("the byte alphabet together with U+2581");
      v.model = TokenizerModel::bpe;
      return;
    }
    if (!recipe_.stages.empty() || recipe_.composes || recipe_.ignores_merges) {
      unsupported("BPE over characters with splitting, NFC or ignore_merges");
    }
    v.model = TokenizerModel::spm;
    recipe_.escapes_spaces = escapes_spaces_;
  }

  void read_postprocessor(const json& postprocessor) {
    for (const json* const part : parts(postprocessor, "processors")) {
      const std::string& type = text(*part, "type");
      if (type == "TemplateProcessing") {
        read_template(*part);
      } else if (type == "BertProcessing" || type == "RobertaProcessing") {
        recipe_.before.push_back(pair_id(required(*part, "cls")));
        recipe_.after.push_back(pair_id(required(*part, "sep")));
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
    const json& steps = required(part, "single");
    if (!steps.is_array()) malformed("\"single\" is no list");
    std::vector<std::int32_t>* side = &recipe_.before;
    for (const json& step : steps) {
      if (step.contains("Sequence")) {
        side = &recipe_.after;
        continue;
      }
      const std::string& name = text(required(step, "SpecialToken"), "id");
      const json& special = required(required(part, "special_tokens"), name.c_str());
      const json& ids = required(special, "ids");
      if (!ids.is_array()) malformed("\"ids\" is no list");
      for (const json& value : ids) side->push_back(static_cast<std::int32_t>(id(value, name)));
    }
  }

  void read_decoder(const json& decoder) {
    for (const json* const part : parts(decoder, "decoders")) {
      const std::string& type = text(*part, "type");
      if (type == "Strip") {
        if (optional(*part, "content") == " " && optional(*part, "start") == 1) {
          recipe_.strips_decoded_space = true;
        }
      } else if (type == "Metaspace") {
        recipe_.strips_decoded_space = recipe_.prefix != SpacePrefix::never;
      } else if (type == "WordPiece") {
        recipe_.cleans_up_decoded = flag(*part, "cleanup", true);
      }
    }
  }

  /// A tokenizer.json does not say which token is which; spellings and the template do.
  void name_special_tokens() {
    Vocabulary& v = recipe_.vocabulary;
    for (const std::int32_t framing : recipe_.before) check_framing(framing);
    for (const std::int32_t framing : recipe_.after) check_framing(framing);
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
  std::string_view where_;
  Recipe recipe_;
  std::size_t tokens_expected_ = 0;
  const std::string* unknown_ = nullptr;
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
