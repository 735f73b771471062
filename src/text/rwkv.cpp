#include "byte_trie.hpp"
#include "escapes.hpp"
#include "subword_model.hpp"

#include <cstddef>
#include <deque>

namespace tenon::text {
namespace {

/// RWKV's "world" tokenizer: at each byte the longest token, from the left.
class Rwkv final : public WordModel {
 public:
  explicit Rwkv(const Recipe& recipe) : trie_(unescaped(recipe)) {
    if (recipe.vocabulary.unk) unknown_ = static_cast<std::int32_t>(*recipe.vocabulary.unk);
  }

  void encode_word(std::string_view word, Scratch& /*scratch*/,
                   std::vector<std::int32_t>& ids) const override {
    for (std::size_t begin = 0; begin < word.size();) {
      std::int32_t longest = -1;
      std::size_t end = begin + 1;
      ByteTrie::Node node = trie_.root();
      for (std::size_t i = begin; i < word.size(); ++i) {
        node = trie_.child(node, word[i]);
        if (node == ByteTrie::none) break;
        if (const std::int32_t id = trie_.id(node); id >= 0) {
          longest = id;
          end = i + 1;
        }
      }
      if (longest < 0) longest = unknown_;
      if (longest >= 0) ids.push_back(longest);
      begin = end;
    }
  }

 private:
  static ByteTrie unescaped(const Recipe& recipe) {
    std::deque<std::string> spellings;  // which stay where they are
    std::vector<std::pair<std::string_view, std::int32_t>> tokens;
    for (std::size_t i = 0; i < recipe.vocabulary.tokens.size(); ++i) {
      const auto id = static_cast<std::int32_t>(i);
      if (!recipe.is_ordinary(id)) continue;
      append_unescaped(spellings.emplace_back(), recipe.token(id));
      tokens.emplace_back(spellings.back(), id);
    }
    return ByteTrie(std::move(tokens));
  }

  ByteTrie trie_;
  std::int32_t unknown_ = -1;
};

}  // namespace

std::unique_ptr<WordModel> make_rwkv_words(const Recipe& recipe) {
  return std::make_unique<Rwkv>(recipe);
}

}  // namespace tenon::text
