#pragma once

#include <tenon/shape.hpp>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tenon {

class HostBuffer;

/// The memory layout of an array: the order of its axes, outermost first.
///
///     layout = ["*"] {upper} [lower (size | "*")]        "NHWC", "*", "*C", "NCHWc32", "NHWCc*"
///
///  - An upper-case letter is an axis; each at most once.
///  - "*", only in front, stands for any number of axes without a letter.
///  - A lower-case letter, only at the end and only together with its upper-case letter, splits
///    that axis into blocks of 1, 2, 4, 8, 16 or 32 lanes. Memory then has an additional innermost
///    axis of the block's size, and the upper-case letter counts blocks; the last block is padded
///    with zeros.
///  - "c*" is a block of any size: a pattern, for constraints and for matches().
///
/// A Shape refers to a layout by name (Shape::with_layout); its sizes are those of the memory.
class Layout {
 public:
  Layout() noexcept = default;  ///< "*": unknown axes
  /// Errc::syntax, with the offset of the offending letter.
  explicit Layout(std::string_view text);

  bool has_star() const noexcept { return star_; }
  /// The upper-case letters: "NCHW" of "NCHWc32".
  std::string_view letters() const noexcept { return {letters_.data(), count_}; }
  bool is_blocked() const noexcept { return block_axis_ != '\0'; }
  /// The upper-case letter of the blocked axis; '\0' when there is none.
  char block_axis() const noexcept { return block_axis_; }
  /// 0 without a blocked axis, and for a pattern.
  std::int64_t block_size() const noexcept { return block_size_; }
  bool is_pattern() const noexcept { return is_blocked() && block_size_ == 0; }

  /// Index of the axis `letter` among `rank` axes of memory; for the blocked axis, of the one that
  /// counts blocks. Nothing when the layout has no such axis.
  std::optional<int> find_axis(char letter, int rank) const noexcept;

  /// Without the block: "NCHW" of "NCHWc32".
  Layout plain() const noexcept;
  /// Whether this is `pattern`, or `pattern` with a size in place of "c*".
  bool matches(const Layout& pattern) const noexcept;

  /// Throws Errc::bad_shape unless memory of this shape can have this layout: the rank is the
  /// number of letters, plus one for a block (with "*": at least that), and the innermost size is
  /// the block's. Errc::bad_argument for a pattern.
  void check(const Shape& shape) const;

  friend bool operator==(const Layout& a, const Layout& b) noexcept = default;

 private:
  std::array<char, max_rank> letters_{};
  std::uint8_t count_ = 0;
  bool star_ = true;
  char block_axis_ = '\0';
  std::uint8_t block_size_ = 0;
};

/// The text form; parses to the same layout.
std::string to_string(const Layout& layout);

/// The layout that a shape names; "*" when it names none. Errc::syntax for an invalid name.
Layout layout_of(const Shape& shape);

/// The shape of the same values under layout `to`, which it then names. Errc::bad_argument unless
/// both layouts have the same letters, in any order, and both or none a "*". `extent` is the number
/// of elements along the axis that is blocked in `from`, 0 for all lanes; Errc::bad_shape when it
/// needs more or fewer blocks than there are.
Shape relayout(const Shape& shape, const Layout& from, const Layout& to, std::int64_t extent = 0);

/// A dense copy of the values under another layout; lanes past the end of a blocked axis are zero.
/// Errors as above, and Errc::unsupported_dtype for block-quantised types.
HostBuffer relayout(const HostBuffer& array, const Layout& from, const Layout& to,
                    std::int64_t extent = 0);

}  // namespace tenon
