#include "base/utf8.hpp"
#include "byte_trie.hpp"
#include "subword_model.hpp"

#include <tenon/error.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <limits>

#include <fmt/format.h>

namespace tenon::text {
namespace {

/// PLaMo-2's tokenizer: of all ways to cut a text into tokens, the one with the highest sum of
/// scores in units of 0.0001, found from right to left; among equals, the longer token comes first.
/// A character may also become its bytes, at a score of -1000.
class Plamo2 final : public WordModel {
 public:
  Plamo2(const Recipe& recipe, const Tables& tables)
      : trie_(scored_tokens(recipe)), scores_(recipe.vocabulary.tokens.size()) {
    for (std::size_t id = 0; id < scores_.size(); ++id) {
      const double score = recipe.vocabulary.scores[id];
      scores_[id] = usable(recipe, static_cast<std::int32_t>(id)) ? std::round(score * 1e4) : 0;
    }
    for (unsigned byte = 0; byte < 256; ++byte) {
      byte_ids_[byte] = tables.index.find(fmt::format("<0x{:02X}>", byte));
      if (byte_ids_[byte] < 0) {
        throw Error(
            Errc::bad_tokenizer, "tokenizer",
            fmt::format("PLaMo-2 needs a token for each byte; <0x{:02X}> is missing", byte));
      }
    }
  }

  void encode_word(std::string_view word, Scratch& scratch,
                   std::vector<std::int32_t>& ids) const override {
    constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
    if (word.starts_with(byte_order_mark)) word.remove_prefix(byte_order_mark.size());
    auto& paths = scratch.paths;
    paths.assign(word.size() + 1, {});
    for (std::size_t end = word.size(); end != 0;) {
      const std::size_t begin = character_before(word, end);
      BestPath& best = paths[begin];
      // By bytes, unless a token does better.
      best = {paths[end].score + bytes_score, static_cast<std::int32_t>(end), -1};
      ByteTrie::Node node = trie_.root();
      for (std::size_t i = begin; i < word.size(); ++i) {
        node = trie_.child(node, word[i]);
        if (node == ByteTrie::none) break;
        const std::int32_t id = trie_.id(node);
        if (id < 0) continue;
        // A token that ends inside of an ill-formed part leads nowhere.
        if (i + 1 != word.size() && paths[i + 1].other_end < 0) continue;
        const double score = paths[i + 1].score + scores_[static_cast<std::size_t>(id)];
        if (score >= best.score) best = {score, static_cast<std::int32_t>(i + 1), id};
      }
      end = begin;
    }
    for (std::size_t begin = 0; begin < word.size();) {
      const BestPath& path = paths[begin];
      const auto end = static_cast<std::size_t>(path.other_end);
      if (path.id >= 0) {
        ids.push_back(path.id);
      } else {
        for (const char byte : word.substr(begin, end - begin)) {
          ids.push_back(byte_ids_[static_cast<unsigned char>(byte)]);
        }
      }
      begin = end;
    }
  }

 private:
  static constexpr double bytes_score = -1e7;
  static constexpr double worst_score = -2e7;  ///< tokens at or below it are never used

  static bool usable(const Recipe& recipe, std::int32_t id) {
    const double score = recipe.vocabulary.scores[static_cast<std::size_t>(id)];
    return recipe.is_ordinary(id) && std::isfinite(score) && std::abs(score) < 1e5 &&
           std::round(score * 1e4) > worst_score;
  }

  static std::vector<std::pair<std::string_view, std::int32_t>> scored_tokens(
      const Recipe& recipe) {
    std::vector<std::pair<std::string_view, std::int32_t>> tokens;
    for (std::size_t i = 0; i < recipe.vocabulary.tokens.size(); ++i) {
      const auto id = static_cast<std::int32_t>(i);
      if (usable(recipe, id)) tokens.emplace_back(recipe.token(id), id);
    }
    return tokens;
  }

  ByteTrie trie_;
  std::vector<double> scores_;  ///< whole numbers
  std::array<std::int32_t, 256> byte_ids_{};
};

}  // namespace

std::unique_ptr<WordModel> make_plamo2_words(const Recipe& recipe, const Tables& tables) {
  return std::make_unique<Plamo2>(recipe, tables);
}

}  // namespace tenon::text
