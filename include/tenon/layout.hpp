#pragma once

#include <tenon/shape.hpp>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tenon {

class HostBuffer;

/// The order in which the axes of an array lie in memory, outermost first.
///
///     layout = ["*"] {upper} [lower (size | "*")]        "NHWC", "*", "*C", "NCHWc32", "NHWCc*"
///
/// An upper-case letter is an axis, at most once each. "*", only in front, stands for any number of
/// axes without a letter. A lower-case letter, only at the end and only when its upper-case letter
/// is there, cuts that axis into blocks of 1, 2, 4, 8, 16 or 32: memory then has one more axis,
/// the innermost, of the block's size, and the upper-case letter counts blocks; lanes past the
/// axis' own end hold zero. "c*" leaves the size open: a pattern, for constraints and for
/// matches().
///
/// A Shape carries a layout by name (Shape::with_layout); its sizes are those of the memory.
class Layout {
 public:
  Layout() noexcept = default;  ///< "*": nothing is known about the axes
  /// Errc::syntax, with the offset of the offending letter.
  explicit Layout(std::string_view text);

  bool has_star() const noexcept { return star_; }
  /// The upper-case letters: "NCHW" of "NCHWc32".
  std::string_view letters() const noexcept { return {letters_.data(), count_}; }
  bool is_blocked() const noexcept { return block_axis_ != '\0'; }
  /// The upper-case letter of the axis in blocks; '\0' when none is.
  char block_axis() const noexcept { return block_axis_; }
  /// 0 when no axis is in blocks, and for a pattern.
  std::int64_t block_size() const noexcept { return block_size_; }
  bool is_pattern() const noexcept { return is_blocked() && block_size_ == 0; }

  /// Where the axis `letter` stands among `rank` axes of memory; for the blocked axis, the one that
  /// counts blocks. Nothing when the layout does not name it.
  std::optional<int> find_axis(char letter, int rank) const noexcept;

  /// Without the block: "NCHW" of "NCHWc32".
  Layout plain() const noexcept;
  /// Whether this is `pattern`, or `pattern` with a size in place of "c*".
  bool matches(const Layout& pattern) const noexcept;

  /// Errc::bad_shape unless memory of this shape can have this layout: the rank is that of the
  /// letters (at least, with "*"), and the innermost size that of the block. Errc::bad_argument for
  /// a pattern.
  void check(const Shape& shape) const;

  friend bool operator==(const Layout& a, const Layout& b) noexcept = default;

 private:
  std::array<char, max_rank> letters_{};
  std::uint8_t count_ = 0;
  bool star_ = true;
  char block_axis_ = '\0';
  std::uint8_t block_size_ = 0;
};

/// The text that parses to the same layout.
std::string to_string(const Layout& layout);

/// The layout that a shape names; "*" when it names none. Errc::syntax for a name that is no
/// layout.
Layout layout_of(const Shape& shape);

/// The shape of the same values under another layout, which it then names. The two must have the
/// same letters in any order, and both or none a "*" (Errc::bad_argument). `extent` is the length
/// of the axis that `from` has in blocks, 0 for all its lanes; Errc::bad_shape when it does not
/// need as many blocks as there are.
Shape relayout(const Shape& shape, const Layout& from, const Layout& to, std::int64_t extent = 0);

/// A dense copy of the values under another layout; lanes past the end of a blocked axis are zero.
/// Errors as above, and Errc::unsupported_dtype for block-quantised types.
HostBuffer relayout(const HostBuffer& array, const Layout& from, const Layout& to,
                    std::int64_t extent = 0);

}  // namespace tenon
