#include "base/utf8.hpp"
#include "token_pieces.hpp"
#include "tokenizer_impl.hpp"

#include <tenon/error.hpp>
#include <tenon/memory_errors.hpp>
#include <tenon/text/tokenizer.hpp>

#include <algorithm>
#include <array>
#include <mutex>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

namespace tenon::text {
namespace {

constexpr std::size_t max_text_bytes = std::size_t{1} << 30;

// Control tokens by which published chat models close a turn or a text, whatever their eos is.
constexpr std::array<std::string_view, 15> closing_spellings{"<|im_end|>",
                                                             "<|endoftext|>",
                                                             "<|end_of_text|>",
                                                             "<|eot_id|>",
                                                             "<|eom_id|>",
                                                             "<|end|>",
                                                             "<end_of_turn>",
                                                             "</s>",
                                                             "<|eot|>",
                                                             "<|end_of_turn|>",
                                                             "<EOT>",
                                                             "<|return|>",
                                                             "<|END_OF_TURN_TOKEN|>",
                                                             "<|call|>",
                                                             "<|calls|>"};

Tables kept_or_made(const Recipe& recipe, std::span<const std::byte> kept) {
  if (auto tables = from_bytes(kept, recipe.vocabulary)) return *std::move(tables);
  return make_tables(recipe);
}

std::unique_ptr<SubwordModel> make_model(const Recipe& recipe, const Tables& tables) {
  if (recipe.pipeline) return make_pipeline(recipe, tables);
  switch (recipe.vocabulary.model) {
    case TokenizerModel::bpe:
      return make_byte_bpe(recipe, tables);
    case TokenizerModel::hybriddna:
      return make_hybrid_dna(recipe, tables);
    case TokenizerModel::spm:
      return make_character_bpe(recipe, tables);
    case TokenizerModel::wordpiece:
      return make_wordpiece(recipe, tables);
    default:
      throw Error(Errc::bad_tokenizer, "tokenizer", "the model is none that is known");
  }
}

/// The control and user-defined tokens, with the refinements that the vocabulary gives some.
std::vector<MatchedToken> matched_tokens(const Recipe& recipe, bool normalized,
                                         const SubwordModel& model) {
  std::unordered_map<std::uint32_t, const AddedToken*> refined;
  for (const AddedToken& added : recipe.vocabulary.added) refined[added.id] = &added;
  std::vector<MatchedToken> tokens;
  for (std::size_t i = 0; i < recipe.vocabulary.types.size(); ++i) {
    const TokenType type = recipe.vocabulary.types[i];
    const bool is_control = type == TokenType::control || type == TokenType::unknown;
    if (!is_control && type != TokenType::user_defined) continue;
    MatchedToken token;
    token.options.id = static_cast<std::uint32_t>(i);
    if (const auto found = refined.find(token.options.id); found != refined.end()) {
      token.options = *found->second;
    }
    if (token.options.normalized != normalized) continue;
    token.is_control = is_control;
    token.text = normalized ? model.normalize(recipe.vocabulary.tokens[i])
                            : std::string(recipe.vocabulary.tokens[i]);
    tokens.push_back(std::move(token));
  }
  return tokens;
}

std::vector<std::int32_t> closing_tokens(const Recipe& recipe, const TokenIndex& index) {
  std::vector<std::int32_t> ids;
  const Vocabulary& v = recipe.vocabulary;
  for (const auto& id : {v.eos, v.eot}) {
    if (id) ids.push_back(static_cast<std::int32_t>(*id));
  }
  for (const std::uint32_t id : v.eog) ids.push_back(static_cast<std::int32_t>(id));
  for (const std::string_view spelling : closing_spellings) {
    const std::int32_t id = index.find(spelling);
    if (id >= 0 && recipe.type(id) == TokenType::control) ids.push_back(id);
  }
  // gpt-oss and Solar close a message by <|end|>, and a turn by one of these.
  const auto is_control = [&](std::string_view spelling) {
    const std::int32_t id = index.find(spelling);
    return id >= 0 && recipe.type(id) == TokenType::control;
  };
  if ((is_control("<|return|>") && is_control("<|call|>")) ||
      (is_control("<|calls|>") && is_control("<|flush|>"))) {
    std::erase(ids, index.find("<|end|>"));
  }
  std::ranges::sort(ids);
  const auto repeated = std::ranges::unique(ids);
  ids.erase(repeated.begin(), repeated.end());
  return ids;
}

/// A text with invalid UTF-8 replaced by U+FFFD, and the ranges adapted to it.
struct Repaired {
  std::string text;
  std::vector<TextRange> plain;
};

Repaired repair(std::string_view text, std::span<const TextRange> plain) {
  Repaired repaired{{}, {plain.begin(), plain.end()}};
  std::size_t begins = 0;
  std::size_t ends = 0;
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint c = code_point_at(text, i);
    i += c.length;
    for (; begins < plain.size() && plain[begins].begin < i; ++begins) {
      repaired.plain[begins].begin = repaired.text.size();
    }
    repaired.text.append(c.is_valid ? text.substr(i - c.length, c.length) : replacement_character);
    for (; ends < plain.size() && plain[ends].end <= i; ++ends) {
      repaired.plain[ends].end = repaired.text.size();
    }
  }
  for (; ends < plain.size(); ++ends) repaired.plain[ends].end = repaired.text.size();
  return repaired;
}

std::optional<std::int32_t> as_id(std::optional<std::uint32_t> id) {
  if (!id) return std::nullopt;
  return static_cast<std::int32_t>(*id);
}

/// Hugging Face's clean-up of a decoded WordPiece token: no space before most punctuation.
void clean_up(std::string& piece) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 11> replacements{{
      {" .", "."},
      {" ?", "?"},
      {" !", "!"},
      {" ,", ","},
      {" ' ", "'"},
      {" n't", "n't"},
      {" 'm", "'m"},
      {" do not", " don't"},
      {" 's", "'s"},
      {" 've", "'ve"},
      {" 're", "'re"},
  }};
  for (const auto& [from, to] : replacements) {
    for (std::size_t at = piece.find(from); at != std::string::npos;
         at = piece.find(from, at + to.size())) {
      piece.replace(at, from.size(), to);
    }
  }
}

}  // namespace

Tokenizer::Impl::Impl(Recipe completed, TokenizerTables kept)
    : recipe(std::move(completed)),
      tables(kept_or_made(recipe, kept.bytes)),
      keeper(tables.are_kept ? std::move(kept.owner) : nullptr),
      model(make_model(recipe, tables)),
      raw_tokens(matched_tokens(recipe, false, *model)),
      normalized_tokens(matched_tokens(recipe, true, *model)),
      ends_generation(closing_tokens(recipe, tables.index)) {}

void Tokenizer::Impl::check(std::int32_t id) const {
  if (id < 0 || static_cast<std::size_t>(id) >= recipe.vocabulary.tokens.size()) {
    throw Error(Errc::out_of_range, "tokenizer",
                fmt::format("token {} is outside the vocabulary of {}", id,
                            recipe.vocabulary.tokens.size()));
  }
}

void Tokenizer::Impl::append_decoded(std::string& out, std::int32_t id,
                                     const DecodeOptions& options, bool& at_start) const {
  check(id);
  const TokenType type = recipe.type(id);
  const bool is_control = type == TokenType::control || type == TokenType::unknown;
  if (is_control && options.skip_special &&
      std::ranges::find(options.kept, id) == options.kept.end()) {
    return;
  }
  const bool is_wordpiece = recipe.vocabulary.model == TokenizerModel::wordpiece;
  std::string piece;
  if (is_wordpiece || recipe.pipeline || type == TokenType::normal || type == TokenType::byte ||
      type == TokenType::unused) {
    model->append_piece(piece, id, at_start);
  } else {
    piece = recipe.token(id);
  }
  const bool strips = (is_wordpiece && !recipe.pipeline) || recipe.strips_decoded_space;
  if (at_start && strips && piece.starts_with(' ')) piece.erase(0, 1);
  at_start = false;
  if (recipe.cleans_up_decoded) clean_up(piece);
  out.append(piece);
}

bool Tokenizer::Impl::is_eog(std::int32_t id) const {
  return std::ranges::binary_search(ends_generation, id);
}

std::shared_ptr<const TokenPieces> Tokenizer::Impl::pieces() const {
  const std::scoped_lock lock(pieces_mutex_);
  if (!pieces_) {
    const auto spelling = [&](std::int32_t id, bool at_start) {
      std::string text;
      if (!is_eog(id)) append_decoded(text, id, {}, at_start);
      return text;
    };
    pieces_ = std::make_shared<const TokenPieces>(recipe.vocabulary.tokens.size(), spelling);
  }
  return pieces_;
}

Tokenizer::Tokenizer(Vocabulary vocabulary, TokenizerTables kept) {
  with_memory_errors("tokenizer", [&] {
    check_vocabulary(vocabulary);
    impl_ = std::make_shared<const Impl>(complete(std::move(vocabulary)), std::move(kept));
  });
}

Tokenizer::Tokenizer(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text,
                                            const EncodeOptions& options) const {
  return with_memory_errors("tokenizer", [&] { return impl_->encode(text, options); });
}

std::vector<std::int32_t> Tokenizer::encode_pair(std::string_view first, std::string_view second,
                                                 const EncodeOptions& options) const {
  return with_memory_errors("tokenizer", [&] {
    const Recipe& recipe = impl_->recipe;
    if (options.add_special && !recipe.between) {
      throw Error(Errc::unsupported, "tokenizer", "the file has no template of two texts");
    }
    EncodeOptions plain = options;
    plain.add_special = false;
    plain.plain = {};
    std::vector<std::int32_t> ids;
    const auto append = [&](const std::vector<std::int32_t>& more) {
      ids.insert(ids.end(), more.begin(), more.end());
    };
    if (options.add_special) append(recipe.before);
    append(impl_->encode(first, plain));
    if (options.add_special) append(*recipe.between);
    append(impl_->encode(second, plain));
    if (options.add_special) append(recipe.after);
    return ids;
  });
}

std::vector<std::int32_t> Tokenizer::Impl::encode(std::string_view text,
                                                  const EncodeOptions& options) const {
  if (text.size() >= max_text_bytes) {
    throw Error(
        Errc::limit_exceeded, "tokenizer",
        fmt::format("a text of {} bytes; at most {} go at once", text.size(), max_text_bytes - 1));
  }
  std::span<const TextRange> plain = options.plain;
  Repaired repaired;
  if (options.invalid_utf8 == InvalidUtf8::replace && !is_utf8(text)) {
    repaired = repair(text, plain);
    text = repaired.text;
    plain = repaired.plain;
  }

  std::vector<std::int32_t> ids;
  ids.reserve(text.size() / 4 + 8);
  if (options.add_special) ids = recipe.before;
  Scratch scratch;
  for (const Fragment& raw : raw_tokens.cut(text, {options.parse_special, plain})) {
    if (raw.id >= 0) {
      ids.push_back(raw.id);
      continue;
    }
    const std::string part = model->normalize(text.substr(raw.begin, raw.end - raw.begin));
    if (normalized_tokens.empty()) {
      model->encode(part, raw.begin == 0, scratch, ids);
      continue;
    }
    // Offsets are lost in normalisation, so plain text anywhere in the part rules control out.
    const bool touches_plain = std::ranges::any_of(plain, [&](const TextRange& range) {
      return range.begin < raw.end && raw.begin < range.end;
    });
    const ControlPolicy control{options.parse_special && !touches_plain, {}};
    for (const Fragment& fragment : normalized_tokens.cut(part, control)) {
      if (fragment.id >= 0) {
        ids.push_back(fragment.id);
      } else {
        const std::string_view ordinary(part);
        model->encode(ordinary.substr(fragment.begin, fragment.end - fragment.begin),
                      raw.begin == 0 && fragment.begin == 0, scratch, ids);
      }
    }
  }
  if (options.add_special) {
    ids.insert(ids.end(), recipe.after.begin(), recipe.after.end());
  }
  return ids;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids,
                              const DecodeOptions& options) const {
  return with_memory_errors("tokenizer", [&] {
    std::string out;
    bool at_start = true;
    for (const std::int32_t id : ids) impl_->append_decoded(out, id, options, at_start);
    return out;
  });
}

std::string Tokenizer::piece(std::int32_t id) const {
  return with_memory_errors("tokenizer", [&] {
    std::string out;
    bool at_start = false;
    impl_->append_decoded(out, id, {.skip_special = false}, at_start);
    return out;
  });
}

std::string_view Tokenizer::token(std::int32_t id) const {
  impl_->check(id);
  return impl_->recipe.token(id);
}

TokenType Tokenizer::type(std::int32_t id) const {
  impl_->check(id);
  return impl_->recipe.type(id);
}

std::optional<std::int32_t> Tokenizer::find(std::string_view token) const {
  const std::int32_t id = impl_->tables.index.find(token);
  if (id < 0) return std::nullopt;
  return id;
}

std::vector<std::byte> Tokenizer::tables() const {
  return with_memory_errors("tokenizer",
                            [&] { return to_bytes(impl_->tables, impl_->recipe.vocabulary); });
}

bool Tokenizer::uses_kept_tables() const { return impl_->tables.are_kept; }

std::size_t Tokenizer::vocab_size() const { return impl_->recipe.vocabulary.tokens.size(); }

TokenizerModel Tokenizer::model() const { return impl_->recipe.vocabulary.model; }

std::optional<std::int32_t> Tokenizer::bos() const { return as_id(impl_->recipe.vocabulary.bos); }
std::optional<std::int32_t> Tokenizer::eos() const { return as_id(impl_->recipe.vocabulary.eos); }
std::optional<std::int32_t> Tokenizer::eot() const { return as_id(impl_->recipe.vocabulary.eot); }
std::optional<std::int32_t> Tokenizer::unk() const { return as_id(impl_->recipe.vocabulary.unk); }
std::optional<std::int32_t> Tokenizer::sep() const { return as_id(impl_->recipe.vocabulary.sep); }
std::optional<std::int32_t> Tokenizer::pad() const { return as_id(impl_->recipe.vocabulary.pad); }
std::optional<std::int32_t> Tokenizer::cls() const { return as_id(impl_->recipe.vocabulary.cls); }
std::optional<std::int32_t> Tokenizer::mask() const { return as_id(impl_->recipe.vocabulary.mask); }

bool Tokenizer::adds_bos() const {
  const auto& before = impl_->recipe.before;
  return bos() && std::ranges::find(before, *bos()) != before.end();
}

bool Tokenizer::is_eog(std::int32_t id) const { return impl_->is_eog(id); }

}  // namespace tenon::text
