#include "subword_model.hpp"

#include <algorithm>
#include <cstddef>
#include <string>

namespace tenon::text {
namespace {

constexpr std::string_view opening = "<dna>";
constexpr std::string_view closing = "</dna>";
/// Behind the tokens of bases (U+E000), which others may be spelled like.
constexpr std::string_view marker = "\xEE\x80\x80";
constexpr std::size_t bases_per_token = 6;

/// Byte-level BPE, but between <dna> and </dna> six bases a token, the last ones filled up with A.
class HybridDna final : public SubwordModel {
 public:
  HybridDna(const Recipe& recipe, const Tables& tables)
      : recipe_(recipe), index_(tables.index), words_(make_byte_bpe(recipe, tables)) {
    const auto ordinary = [&](std::string_view token) {
      const std::int32_t id = index_.find(token);
      return id >= 0 && recipe.is_ordinary(id) ? id : -1;
    };
    opening_ = ordinary(opening);
    closing_ = ordinary(closing);
    unknown_ = index_.find("<oov>");
  }

  std::string normalize(std::string_view text) const override { return words_->normalize(text); }

  void encode(std::string_view text, bool is_first, Scratch& scratch,
              std::vector<std::int32_t>& ids) const override {
    const bool has_bases = opening_ >= 0 && closing_ >= 0 && unknown_ >= 0;
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t start = has_bases ? text.find(opening, begin) : std::string_view::npos;
      const std::string_view plain = text.substr(begin, start - begin);
      if (!plain.empty()) words_->encode(plain, is_first && begin == 0, scratch, ids);
      if (start == std::string_view::npos) return;
      ids.push_back(opening_);
      begin = start + opening.size();
      const std::size_t end = text.find(closing, begin);
      encode_bases(text.substr(begin, end - begin), scratch.word, ids);
      if (end == std::string_view::npos) return;
      ids.push_back(closing_);
      begin = end + closing.size();
    }
  }

  void append_piece(std::string& out, std::int32_t id, bool is_first) const override {
    const std::string_view token = recipe_.token(id);
    if (token == opening || token == closing) {
      out.append(token);
    } else if (token.ends_with(marker)) {
      out.append(token.substr(0, token.size() - marker.size()));
    } else {
      words_->append_piece(out, id, is_first);
    }
  }

 private:
  void encode_bases(std::string_view bases, std::string& token,
                    std::vector<std::int32_t>& ids) const {
    for (std::size_t i = 0; i < bases.size(); i += bases_per_token) {
      token.assign(bases.substr(i, bases_per_token));
      std::ranges::transform(token, token.begin(), [](char c) {
        return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
      });
      token.resize(bases_per_token, 'A');
      token.append(marker);
      const std::int32_t id = index_.find(token);
      ids.push_back(id >= 0 ? id : unknown_);
    }
  }

  const Recipe& recipe_;
  const TokenIndex& index_;
  std::unique_ptr<SubwordModel> words_;
  std::int32_t opening_ = -1;
  std::int32_t closing_ = -1;
  std::int32_t unknown_ = -1;  ///< for six of which one is no base
};

}  // namespace

std::unique_ptr<SubwordModel> make_hybrid_dna(const Recipe& recipe, const Tables& tables) {
  return std::make_unique<HybridDna>(recipe, tables);
}

}  // namespace tenon::text
