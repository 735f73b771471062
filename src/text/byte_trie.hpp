#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tenon::text {

/// The texts of tokens as a tree of bytes, to find all tokens that a text begins with.
///
/// Nodes are in order of depth, so that a node's children are adjacent and one array says where
/// each node's begin. 9 bytes per node; a vocabulary of 250,000 tokens has some 700,000.
class ByteTrie {
 public:
  using Node = std::uint32_t;
  static constexpr Node none = ~Node{0};
  /// At each place of a text, what looks for tokens goes through as many bytes at most.
  static constexpr std::size_t longest_token = 2048;

  /// Of pairs of a text and an id. Empty texts are left out; of equal texts the one with the highest id stays.
  /// Errors: limit_exceeded (a text of more than longest_token bytes).
  explicit ByteTrie(std::vector<std::pair<std::string_view, std::int32_t>> tokens);

  Node root() const noexcept { return 0; }

  Node child(Node parent, char byte) const noexcept {
    const Node first = children_[parent];
    const Node last = children_[parent + 1];
    if (first == last) return none;
    const void* const found =
        std::memchr(&labels_[first], static_cast<unsigned char>(byte), last - first);
    if (found == nullptr) return none;
    return static_cast<Node>(static_cast<const char*>(found) - labels_.data());
  }

  /// The id of the token that ends here, or -1.
  std::int32_t id(Node node) const noexcept { return ids_[node]; }

 private:
  std::vector<char> labels_;
  std::vector<Node> children_;
  std::vector<std::int32_t> ids_;
};

}  // namespace tenon::text
