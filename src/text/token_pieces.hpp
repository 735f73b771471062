#pragma once

#include <tenon/text/tokenizer.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::text {

/// What the tokens of a vocabulary add to a text, in the order of their bytes, so that tokens with a common
/// beginning are adjacent. Without tokens that end a generation, control tokens and those without text.
class TokenPieces {
 public:
  struct Piece {
    std::uint32_t begin;   ///< in bytes(); it ends where the next one begins
    std::uint32_t shared;  ///< how many bytes it begins with that the piece before begins with
    std::int32_t id;
  };

  explicit TokenPieces(const Tokenizer& tokenizer);

  std::size_t size() const noexcept { return pieces_.size() - 1; }
  const Piece& operator[](std::size_t i) const noexcept { return pieces_[i]; }
  std::string_view text(std::size_t i) const noexcept {
    return std::string_view(bytes_).substr(pieces_[i].begin,
                                           pieces_[i + 1].begin - pieces_[i].begin);
  }

 private:
  std::string bytes_;
  std::vector<Piece> pieces_;  // and one that ends the last
};

}  // namespace tenon::text
