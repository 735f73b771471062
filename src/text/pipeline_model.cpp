#include "byte_alphabet.hpp"
#include "escapes.hpp"
#include "growth_limit.hpp"
#include "subword_model.hpp"

#include <cstddef>

namespace tenon::text {
namespace {

/// The words of a vocabulary, each of which is a token.
class WordLevel final : public WordModel {
 public:
  WordLevel(const Recipe& recipe, const Tables& tables) : recipe_(recipe), index_(tables.index) {
    if (recipe.vocabulary.unk) unknown_ = static_cast<std::int32_t>(*recipe.vocabulary.unk);
  }

  void encode_word(std::string_view word, Scratch& /*scratch*/,
                   std::vector<std::int32_t>& ids) const override {
    std::int32_t id = index_.find(word);
    if (id < 0 || !recipe_.is_ordinary(id)) id = unknown_;
    if (id >= 0) ids.push_back(id);
  }

 private:
  const Recipe& recipe_;
  const TokenIndex& index_;
  std::int32_t unknown_ = -1;
};

std::unique_ptr<WordModel> make_words(const Recipe& recipe, const Tables& tables) {
  switch (recipe.pipeline->model) {
    case Pipeline::Model::characters:
      return make_character_words(recipe, tables);
    case Pipeline::Model::wordpiece:
      return make_wordpiece_words(recipe, tables);
    case Pipeline::Model::wordlevel:
      return std::make_unique<WordLevel>(recipe, tables);
    case Pipeline::Model::unigram:
      return make_unigram_words(recipe, tables);
    case Pipeline::Model::rwkv:
      return make_rwkv_words(recipe);
    case Pipeline::Model::plamo2:
      return make_plamo2_words(recipe, tables);
  }
  return nullptr;
}

std::string replaced(std::string text, std::string_view from, std::string_view to,
                     const GrowthLimit& limit) {
  if (from.empty()) return text;
  std::string out;
  std::size_t done = 0;
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, done)) {
    out.append(text, done, at - done).append(to);
    limit.check(out.size());
    done = at + from.size();
  }
  return out.append(text, done);
}

/// A model of words behind the steps of a Pipeline.
class PipelineModel final : public SubwordModel {
 public:
  PipelineModel(const Recipe& recipe, const Tables& tables)
      : recipe_(recipe), steps_(*recipe.pipeline), words_(make_words(recipe, tables)) {}

  std::string normalize(std::string_view text) const override {
    return tenon::text::normalize(steps_.normalizers, std::string(text));
  }

  void encode(std::string_view text, bool is_first, Scratch& scratch,
              std::vector<std::int32_t>& ids) const override {
    if (text.empty()) return;
    if (steps_.steps.empty()) {
      words_->encode_word(text, scratch, ids);
      return;
    }
    Words words{std::string(text), {{0, static_cast<std::uint32_t>(text.size())}}};
    for (const WordStep& step : steps_.steps) cut(words, step, is_first, scratch.cut);
    for (std::size_t i = 0; i < words.ranges.size(); ++i) {
      if (!words[i].empty()) words_->encode_word(words[i], scratch, ids);
    }
  }

  void append_piece(std::string& out, std::int32_t id, bool is_first) const override {
    std::string piece(recipe_.token(id));
    const GrowthLimit limit(piece.size());
    for (const DecodeStep& step : steps_.decoders) {
      switch (step.kind) {
        case DecodeStep::Kind::replace: {
          const bool drops = is_first && step.drops_when_first;
          piece = replaced(std::move(piece), step.from, drops ? "" : step.to, limit);
          break;
        }
        case DecodeStep::Kind::byte_fallback:
          if (const int byte = byte_of_token(piece); byte >= 0) {
            piece.assign(1, static_cast<char>(byte));
          }
          break;
        case DecodeStep::Kind::alphabet: {
          if (!is_spelled_in_alphabet(id)) break;
          std::string bytes;
          append_from_alphabet(bytes, piece);
          piece = std::move(bytes);
          break;
        }
        case DecodeStep::Kind::wordpiece:
          if (is_first) break;
          if (piece.starts_with(step.from)) {
            piece.erase(0, step.from.size());
          } else {
            piece.insert(0, 1, ' ');
          }
          break;
        case DecodeStep::Kind::joined_by_space:
          if (!is_first) piece.insert(0, 1, ' ');
          break;
        case DecodeStep::Kind::escapes: {
          std::string bytes;
          append_unescaped(bytes, piece);
          piece = std::move(bytes);
          break;
        }
      }
    }
    out.append(piece);
  }

 private:
  /// Tokens that are matched as a whole are written as they are.
  bool is_spelled_in_alphabet(std::int32_t id) const {
    const TokenType type = recipe_.type(id);
    return type == TokenType::normal || type == TokenType::unused;
  }

  const Recipe& recipe_;
  const Pipeline& steps_;
  std::unique_ptr<WordModel> words_;
};

}  // namespace

std::unique_ptr<SubwordModel> make_pipeline(const Recipe& recipe, const Tables& tables) {
  return std::make_unique<PipelineModel>(recipe, tables);
}

}  // namespace tenon::text
