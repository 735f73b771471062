// Blocks of an operand's elements, in the order of the output they broadcast to and in the type
// that kernels compute in: one kernel then serves every stride and every narrow type.
#pragma once

#include "../elementwise/typed.hpp"
#include "../integer_math.hpp"
#include "../task.hpp"

#include <array>
#include <cstdint>
#include <optional>

namespace tenon::cpu {

/// Elements that Reader::read gives at most, and bytes of a buffer for them.
inline constexpr std::int64_t block_elements = 512;
struct BlockBuffer {
  alignas(64) std::byte bytes[block_elements * 8];
};

/// Elements of `unit` bytes (1, 2, 4, 8) that are `step` bytes apart, or one that repeats, side by
/// side.
void copy_run(const std::byte* from, std::int64_t step, std::int64_t unit, std::int64_t count,
              std::byte* to) noexcept;

/// Elements that lie side by side, to places `step` bytes apart.
void spread_run(const std::byte* from, std::int64_t unit, std::int64_t count, std::byte* to,
                std::int64_t step) noexcept;

/// The axes of an array as loops, outermost first: axes of one element dropped, and adjacent axes
/// joined where one step serves both.
struct Loops {
  int rank = 0;
  std::array<std::int64_t, max_rank> sizes{};
  std::array<std::int64_t, max_rank> steps{};  ///< bytes

  void push(std::int64_t size, std::int64_t step) noexcept;
  /// Bytes to element `position` of the row-major order.
  std::int64_t offset(std::int64_t position) const noexcept;
  /// Where elements [first, first + count) of the row-major order lie side by side, if they do.
  std::optional<std::int64_t> run_at(std::int64_t unit, std::int64_t first,
                                     std::int64_t count) const noexcept;
  /// Copies elements [first, first + count) of the row-major order, `unit` bytes each: 1, 2, 4, 8.
  void gather(const std::byte* from, std::int64_t unit, std::int64_t first, std::int64_t count,
              std::byte* to) const noexcept;
  /// Copies elements that lie side by side to places [first, first + count) of the row-major order.
  void scatter(const std::byte* from, std::int64_t unit, std::int64_t first, std::int64_t count,
               std::byte* to) const noexcept;
};

class Reader {
 public:
  /// As: raw gives the elements as they are stored, computed gives them as compute_type(dtype).
  enum class As : std::uint8_t { raw, computed };
  Reader(const Operand& operand, const Shape& output, As as, Compiler& compiler);

  struct Block {
    const void* data;
    std::int64_t step;  ///< 1, or 0 for one element that stands for all
  };
  /// Before the first read() of a run().
  void begin(const TaskContext& context) const noexcept;
  /// Elements [first, first + count), count <= block_elements: in place where the operand is stored
  /// so, else in `buffer`. Calls go forward through a thread's share.
  Block read(const TaskContext& context, std::int64_t first, std::int64_t count,
             BlockBuffer& buffer) const noexcept;

 private:
  /// Of a large transposed operand, whose elements are read a line of memory each and of which other lines need the rest:
  /// some rows of the output that read the same lines, copied together.
  struct Panels {
    int axis = -1;                               ///< the loop along which elements are adjacent
    std::int64_t rows = 0;                       ///< steps along it
    std::int64_t row = 0;                        ///< elements of one
    std::int64_t scratch = 0, thread_bytes = 0;  ///< of every thread: a header, then a panel
  };
  struct PanelHeader {
    std::int64_t first, count;  ///< elements of the output that the panel has
  };
  static constexpr std::int64_t header_bytes = 64;

  void find_panels(Compiler& compiler);
  PanelHeader& header(const TaskContext& context) const noexcept;
  /// Reads the panel that has an element, unless it is there.
  const PanelHeader& load_panel(const TaskContext& context, const std::byte* start,
                                std::int64_t element) const noexcept;
  /// Elements as they are stored, in the panel, or in `to` where they are in more than one.
  const std::byte* read_panels(const TaskContext& context, const std::byte* start,
                               std::int64_t first, std::int64_t count,
                               std::byte* to) const noexcept;

  Operand operand_;
  Loops loops_;
  Panels panels_;
  std::int64_t unit_;
  bool converts_;
  bool single_ = false;
  std::optional<PreparedIndex> copy_;  ///< of a constant, dense
};

/// Threads divide flat arrays into pieces of this many elements, so that no two write to one cache
/// line (false sharing).
inline constexpr std::int64_t piece_elements = 256;

/// This thread's part of `count` elements.
inline Range flat_share(const TaskContext& context, std::int64_t count) noexcept {
  const Range pieces = context.share(ceil_div(count, piece_elements));
  return {pieces.begin * piece_elements, std::min(pieces.end * piece_elements, count)};
}

}  // namespace tenon::cpu
