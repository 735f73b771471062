#include <tenon/error.hpp>
#include <tenon/models/vocabulary.hpp>
#include <tenon/text/vocabulary.hpp>

#include <memory>
#include <variant>

#include <fmt/format.h>

namespace tenon::models {
namespace {

constexpr std::string_view prefix = "tokenizer.ggml.";

std::string key(std::string_view name) { return std::string(prefix) + std::string(name); }

text::TokenizerModel tokenizer_model(const io::File& file) {
  const auto name = file.metadata().get<std::string>(key("model"));
  if (name == "gpt2") return text::TokenizerModel::bpe;
  if (name == "llama") return text::TokenizerModel::spm;
  if (name == "bert") return text::TokenizerModel::wordpiece;
  if (name == "t5") return text::TokenizerModel::unigram;
  if (name == "rwkv") return text::TokenizerModel::rwkv;
  if (name == "plamo2") return text::TokenizerModel::plamo2;
  if (name == "hybriddna") return text::TokenizerModel::hybriddna;
  if (name == "gemma4" || name == "whitespace") return text::TokenizerModel::bpe;
  if (name == "none" || name == "no_vocab") {
    throw Error(Errc::unsupported, file.path().string(),
                fmt::format("tokenizer model '{}': the file comes without a vocabulary", name));
  }
  throw Error(
      Errc::unsupported, file.path().string(),
      fmt::format("tokenizer model '{}'; known are bert, gemma4, gpt2, hybriddna, llama, plamo2, "
                  "rwkv, t5, whitespace",
                  name));
}

/// An array of numbers, byte by byte: writers do not agree on their type.
std::string_view bytes_of(const io::Metadata& metadata, const std::string& key) {
  const io::MetaValue* const value = metadata.find(key);
  if (value == nullptr) return {};
  const auto* const array = std::get_if<io::MetaArray>(value);
  if (array == nullptr || io::size_bytes(array->element_type()) != 1) {
    throw Error(Errc::bad_type, "tokenizer",
                fmt::format("{} is {}, not an array of u8", key, io::type_text(*value)));
  }
  return {reinterpret_cast<const char*>(array->bytes().data()), array->bytes().size()};
}

/// `usual` where a file names no id and has a token of that one.
void set_default(const text::Vocabulary& vocabulary, std::optional<std::uint32_t>& id,
                 std::uint32_t usual) {
  if (!id && usual < vocabulary.tokens.size()) id = usual;
}

/// The ids of T5 where a file of a unigram model names none.
void set_unigram_defaults(text::Vocabulary& vocabulary) {
  set_default(vocabulary, vocabulary.eos, 1);
  set_default(vocabulary, vocabulary.unk, 2);
  set_default(vocabulary, vocabulary.pad, 0);
}

/// The ids of BERT where a file of its tokenizer names none.
void set_wordpiece_defaults(text::Vocabulary& vocabulary) {
  if (!vocabulary.bos) set_default(vocabulary, vocabulary.cls, 101);
  if (!vocabulary.eos) set_default(vocabulary, vocabulary.sep, 102);
  set_default(vocabulary, vocabulary.unk, 100);
  set_default(vocabulary, vocabulary.pad, 0);
  set_default(vocabulary, vocabulary.mask, 103);
}

text::Vocabulary vocabulary_of(const io::File& file) {
  const io::Metadata& metadata = file.metadata();
  text::Vocabulary vocabulary;
  vocabulary.model = tokenizer_model(file);
  vocabulary.pretokenizer = metadata.get_or<std::string>(key("pre"), "default");
  const auto model = metadata.get<std::string_view>(key("model"));
  // These names say how words are split, too.
  if (model == "gemma4" || model == "whitespace") vocabulary.pretokenizer = model;
  const auto tokens = metadata.strings(key("tokens"));
  vocabulary.tokens.assign(tokens.begin(), tokens.end());
  if (metadata.contains(key("scores")))
    vocabulary.scores = metadata.get<std::vector<float>>(key("scores"));
  if (metadata.contains(key("token_type"))) {
    vocabulary.types.reserve(tokens.size());
    for (const std::int32_t type : metadata.get<std::vector<std::int32_t>>(key("token_type"))) {
      if (type < 1 || type > 6) {
        throw Error(Errc::bad_tokenizer, file.path().string(),
                    fmt::format("{} {} is no token type (1 to 6)", key("token_type"), type));
      }
      vocabulary.types.push_back(static_cast<text::TokenType>(type));
    }
  }
  if (metadata.contains(key("merges"))) {
    const auto merges = metadata.strings(key("merges"));
    vocabulary.merges.reserve(merges.size());
    for (const std::string_view line : merges) vocabulary.merges.push_back(text::parse_merge(line));
  }
  if (vocabulary.merges.empty() && (vocabulary.model == text::TokenizerModel::bpe ||
                                    vocabulary.model == text::TokenizerModel::hybriddna)) {
    throw Error(Errc::bad_tokenizer, file.path().string(),
                fmt::format("the tokenizer has no merges ('{}'): without them a gpt2 tokenizer "
                            "spells every text byte by byte",
                            key("merges")));
  }
  vocabulary.bos = metadata.get_optional<std::uint32_t>(key("bos_token_id"));
  vocabulary.eos = metadata.get_optional<std::uint32_t>(key("eos_token_id"));
  vocabulary.eot = metadata.get_optional<std::uint32_t>(key("eot_token_id"));
  vocabulary.unk = metadata.get_optional<std::uint32_t>(key("unknown_token_id"));
  vocabulary.sep = metadata.get_optional<std::uint32_t>(key("seperator_token_id"));
  vocabulary.pad = metadata.get_optional<std::uint32_t>(key("padding_token_id"));
  vocabulary.cls = metadata.get_optional<std::uint32_t>(key("cls_token_id"));
  vocabulary.mask = metadata.get_optional<std::uint32_t>(key("mask_token_id"));
  vocabulary.add_bos = metadata.get_optional<bool>(key("add_bos_token"));
  vocabulary.add_eos = metadata.get_optional<bool>(key("add_eos_token"));
  // GGUF marks BERT's pieces that begin a word, instead of those that continue one.
  if (vocabulary.model == text::TokenizerModel::wordpiece) vocabulary.bert.word_prefix = "▁";
  vocabulary.add_sep = metadata.get_optional<bool>(key("add_sep_token"));
  vocabulary.add_space_prefix = metadata.get_optional<bool>(key("add_space_prefix"));
  vocabulary.lowercase = metadata.get_optional<bool>(key("normalizer.lowercase"));
  vocabulary.bert.lowercase = vocabulary.lowercase.value_or(true);
  vocabulary.bert.strip_accents = metadata.get_optional<bool>(key("normalizer.strip_accents"));
  vocabulary.remove_extra_spaces = metadata.get_optional<bool>(key("remove_extra_whitespaces"));
  vocabulary.precompiled_charsmap = bytes_of(metadata, key("precompiled_charsmap"));
  if (vocabulary.model == text::TokenizerModel::unigram) set_unigram_defaults(vocabulary);
  if (vocabulary.model == text::TokenizerModel::wordpiece) set_wordpiece_defaults(vocabulary);
  // Strings are views into the file's metadata, which stays mapped with it.
  vocabulary.storage = std::make_shared<io::File>(file);
  return vocabulary;
}

/// The tables say themselves which layout they have and of which vocabulary they are.
text::Tokenizer tokenizer_of(const io::File& file, PreparedCache& prepared) {
  constexpr const char* tables = "tokenizer tables";
  const auto kept = prepared.kept(tables);
  text::Tokenizer tokenizer(
      vocabulary_of(file),
      kept ? text::TokenizerTables{kept->bytes, kept->owner} : text::TokenizerTables{});
  if (!tokenizer.uses_kept_tables() && prepared.has_file()) {
    const auto made = std::make_shared<const std::vector<std::byte>>(tokenizer.tables());
    prepared.keep(tables, {*made, made});
  }
  return tokenizer;
}

}  // namespace

text::Tokenizer load_tokenizer(const io::File& file) {
  PreparedCache none;
  return load_tokenizer(file, none);
}

text::Tokenizer load_tokenizer(const io::File& file, PreparedCache& prepared) {
  if (file.format() != io::Format::gguf) {
    if (const auto json = file.sibling("tokenizer.json")) return text::Tokenizer::from_json(*json);
    throw Error(Errc::not_found, file.path().string(), "no tokenizer.json beside the model");
  }
  try {
    return tokenizer_of(file, prepared);
  } catch (const Error& error) {
    if (error.where() != "tokenizer") throw;
    // The tokenizer's errors do not name the file.
    throw Error(error.code(), file.path().string(), "tokenizer: " + error.message());
  }
}

std::optional<text::ChatFormat> load_chat_format(const io::File& file,
                                                 const text::Tokenizer& tokenizer,
                                                 text::ChatVariables variables,
                                                 std::string_view name) {
  std::string key = "tokenizer.chat_template";
  if (!name.empty()) (key += '.') += name;
  const auto jinja = file.metadata().get_optional<std::string_view>(key);
  if (!jinja) return std::nullopt;
  return text::ChatFormat::from_template(*jinja, chat_variables(tokenizer, std::move(variables)));
}

text::ChatVariables chat_variables(const text::Tokenizer& tokenizer,
                                   text::ChatVariables variables) {
  const auto set = [&](std::optional<std::string>& spelling, std::optional<std::int32_t> id) {
    if (!spelling && id) spelling = tokenizer.token(*id);
  };
  set(variables.bos_token, tokenizer.bos());
  set(variables.eos_token, tokenizer.eos());
  return variables;
}

}  // namespace tenon::models
