#include <tenon/error.hpp>
#include <tenon/models/vocabulary.hpp>
#include <tenon/text/vocabulary.hpp>

#include <memory>

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
  throw Error(Errc::unsupported, file.path().filename().string(),
              fmt::format("tokenizer model '{}'; known are gpt2, llama, bert", name));
}

text::Vocabulary vocabulary_of(const io::File& file) {
  const io::Metadata& metadata = file.metadata();
  text::Vocabulary vocabulary;
  vocabulary.model = tokenizer_model(file);
  vocabulary.pretokenizer = metadata.get_or<std::string>(key("pre"), "default");
  const auto tokens = metadata.strings(key("tokens"));
  vocabulary.tokens.assign(tokens.begin(), tokens.end());
  if (metadata.contains(key("scores")))
    vocabulary.scores = metadata.get<std::vector<float>>(key("scores"));
  if (metadata.contains(key("token_type"))) {
    vocabulary.types.reserve(tokens.size());
    for (const std::int32_t type : metadata.get<std::vector<std::int32_t>>(key("token_type"))) {
      if (type < 1 || type > 6) {
        throw Error(Errc::bad_tokenizer, file.path().filename().string(),
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
  if (vocabulary.merges.empty() && vocabulary.model == text::TokenizerModel::bpe) {
    throw Error(Errc::bad_tokenizer, file.path().filename().string(),
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
  vocabulary.add_space_prefix = metadata.get_optional<bool>(key("add_space_prefix"));
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
    throw Error(Errc::not_found, file.path().filename().string(),
                "no tokenizer.json beside the model");
  }
  try {
    return tokenizer_of(file, prepared);
  } catch (const Error& error) {
    if (error.where() != "tokenizer") throw;
    // The tokenizer's errors do not name the file.
    throw Error(error.code(), file.path().filename().string(), "tokenizer: " + error.message());
  }
}

std::optional<text::ChatFormat> load_chat_format(const io::File& file,
                                                 const text::Tokenizer& tokenizer) {
  const auto jinja = file.metadata().get_optional<std::string_view>("tokenizer.chat_template");
  if (!jinja) return std::nullopt;
  const auto spelling = [&](std::optional<std::int32_t> id) -> std::optional<std::string> {
    if (!id) return std::nullopt;
    return std::string(tokenizer.token(*id));
  };
  return text::ChatFormat::from_template(
      *jinja, {spelling(tokenizer.bos()), spelling(tokenizer.eos()), std::nullopt});
}

}  // namespace tenon::models
