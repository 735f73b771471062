#include "base/utf8.hpp"
#include "byte_trie.hpp"
#include "subword_model.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

#include <fmt/format.h>

namespace tenon::text {
namespace {

/// How much less likely than the rarest token a character without one is.
constexpr double unknown_penalty = 10;

/// Bytes of a part, whose paths take 16 times as many.
constexpr std::size_t long_part = std::size_t{1} << 20;

std::vector<std::pair<std::string_view, std::int32_t>> ordinary_tokens(const Recipe& recipe) {
  std::vector<std::pair<std::string_view, std::int32_t>> tokens;
  tokens.reserve(recipe.vocabulary.tokens.size());
  for (std::size_t i = 0; i < recipe.vocabulary.tokens.size(); ++i) {
    const auto id = static_cast<std::int32_t>(i);
    if (recipe.is_ordinary(id)) tokens.emplace_back(recipe.token(id), id);
  }
  return tokens;
}

/// SentencePiece's unigram model: of all ways to cut a word into tokens, the one with the highest
/// sum of scores, found from left to right in one pass (Viterbi).
class Unigram final : public WordModel {
 public:
  Unigram(const Recipe& recipe, const Tables& tables)
      : recipe_(recipe),
        index_(tables.index),
        joins_space_(tables.joins_space),
        trie_(ordinary_tokens(recipe)),
        unknown_score_(recipe.lowest_score - unknown_penalty) {
    for (unsigned byte = 0; byte < 256; ++byte) {
      byte_ids_[byte] = recipe.byte_fallback ? index_.find(fmt::format("<0x{:02X}>", byte)) : -1;
    }
    if (recipe.vocabulary.unk) unknown_ = static_cast<std::int32_t>(*recipe.vocabulary.unk);
  }

  void encode_word(std::string_view word, Scratch& scratch,
                   std::vector<std::int32_t>& ids) const override {
    // No token crosses the end of a part, so the best way through the word is that of its parts.
    // (Sums may round otherwise, which decides among equals: so parts are long.)
    std::size_t unknown_begin = word.size();  // of a run of characters without a token
    for (std::size_t begin = 0; begin < word.size();) {
      const std::size_t end = part_end(word, begin);
      find_path(word.substr(begin, end - begin), scratch.paths);
      collect(end - begin, scratch);
      for (auto step = scratch.matches.rbegin(); step != scratch.matches.rend(); ++step) {
        const std::size_t token_begin = begin + step->first;
        if (step->second < 0) {
          unknown_begin = std::min(unknown_begin, token_begin);
          continue;
        }
        append_unknown(word.substr(0, token_begin), unknown_begin, ids);
        ids.push_back(step->second);
      }
      begin = end;
    }
    append_unknown(word, unknown_begin, ids);
  }

 private:
  double score(std::int32_t id) const {
    const auto at = static_cast<std::size_t>(id);
    return recipe_.scores.empty() ? double{recipe_.vocabulary.scores[at]} : recipe_.scores[at];
  }

  std::size_t part_end(std::string_view word, std::size_t begin) const {
    if (word.size() - begin <= long_part) return word.size();
    for (std::size_t mark = word.find(space_mark, begin + long_part);
         mark != std::string_view::npos; mark = word.find(space_mark, mark + 1)) {
      if (joins_space_[static_cast<unsigned char>(word[mark - 1])] == 0) return mark;
    }
    return word.size();
  }

  /// The best path to every place of a part.
  void find_path(std::string_view part, std::vector<BestPath>& paths) const {
    paths.assign(part.size() + 1, {});
    for (std::size_t begin = 0; begin < part.size();) {
      const std::size_t length = code_point_at(part, begin).length;
      const double so_far = paths[begin].score;
      const auto reach = [&](std::size_t end, double candidate, std::int32_t id) {
        BestPath& best = paths[end];
        if (best.other_end < 0 || candidate > best.score) {
          best = {candidate, static_cast<std::int32_t>(begin), id};
        }
      };
      bool has_character = false;
      ByteTrie::Node node = trie_.root();
      for (std::size_t i = begin; i < part.size(); ++i) {
        node = trie_.child(node, part[i]);
        if (node == ByteTrie::none) break;
        const std::int32_t id = trie_.id(node);
        if (id < 0) continue;
        reach(i + 1, so_far + score(id), id);
        has_character = has_character || i + 1 == begin + length;
      }
      if (!has_character) reach(begin + length, so_far + unknown_score_, -1);
      begin += length;
    }
  }

  /// The tokens of the best path, from the last to the first, with their places.
  static void collect(std::size_t size, Scratch& scratch) {
    scratch.matches.clear();
    for (std::size_t end = size; end != 0;) {
      const BestPath& path = scratch.paths[end];
      const auto begin = static_cast<std::uint32_t>(path.other_end);
      scratch.matches.emplace_back(begin, path.id);
      end = begin;
    }
  }

  /// Appends what stands for the text from `begin` on, and forgets it.
  void append_unknown(std::string_view text, std::size_t& begin,
                      std::vector<std::int32_t>& ids) const {
    if (begin >= text.size()) return;
    const std::string_view run = text.substr(begin);
    begin = text.max_size();
    // Characters without a token may be one together, though not the best way.
    if (const std::int32_t id = index_.find(run); id >= 0 && recipe_.is_ordinary(id)) {
      ids.push_back(id);
      return;
    }
    const std::size_t old_size = ids.size();
    for (const char byte : run) {
      const std::int32_t id = byte_ids_[static_cast<unsigned char>(byte)];
      if (id < 0) {
        ids.resize(old_size);
        if (unknown_ >= 0) ids.push_back(unknown_);
        return;
      }
      ids.push_back(id);
    }
  }

  const Recipe& recipe_;
  const TokenIndex& index_;
  const ByteFlags& joins_space_;
  ByteTrie trie_;
  double unknown_score_;
  std::array<std::int32_t, 256> byte_ids_{};
  std::int32_t unknown_ = -1;
};

}  // namespace

std::unique_ptr<WordModel> make_unigram_words(const Recipe& recipe, const Tables& tables) {
  return std::make_unique<Unigram>(recipe, tables);
}

}  // namespace tenon::text
