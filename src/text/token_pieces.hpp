#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::text {

/// What the tokens of a vocabulary add to a text, in the order of their bytes, so that tokens with a common
/// beginning are adjacent.
class TokenPieces {
 public:
  struct Piece {
    std::uint32_t begin;   ///< of text(); it ends where the next one begins
    std::uint32_t shared;  ///< how many bytes it begins with that the piece before begins with
    std::int32_t id;
  };

  /// `spelling`: what a token adds; tokens that add nothing are left out.
  TokenPieces(std::size_t tokens,
              const std::function<std::string(std::int32_t id, bool at_start)>& spelling);

  std::size_t size() const noexcept { return pieces_.size() - 1; }
  const Piece& operator[](std::size_t i) const noexcept { return pieces_[i]; }
  std::string_view text(std::size_t i) const noexcept {
    return std::string_view(bytes_).substr(pieces_[i].begin,
                                           pieces_[i + 1].begin - pieces_[i].begin);
  }
  /// The tokens that begin a text with something else than what they add to one.
  std::span<const std::int32_t> other_at_start() const noexcept { return other_at_start_; }

 private:
  std::string bytes_;
  std::vector<Piece> pieces_;  // and one that ends the last
  std::vector<std::int32_t> other_at_start_;
};

}  // namespace tenon::text
