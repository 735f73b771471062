// The lanes of an array along one axis, one for each position of the other axes: for norms,
// softmax, rankings and running sums.
#pragma once

#include "reader.hpp"

#include <cstdint>

namespace tenon::cpu {

class Lanes {
 public:
  /// `axis` in [0, rank).
  Lanes(const Operand& operand, int axis);

  std::int64_t count() const noexcept { return count_; }
  std::int64_t size() const noexcept { return size_; }
  /// Bytes from the operand's first element to lane `i`'s.
  std::int64_t offset(std::int64_t i) const noexcept;
  /// Whether elements of a lane are adjacent in memory, in their compute type.
  bool is_direct() const noexcept;

  /// Of how many lanes in a row the first elements are adjacent, and of how many from lane `i` on.
  std::int64_t adjacent() const noexcept;
  std::int64_t adjacent_from(std::int64_t i) const noexcept { return adjacent() - i % adjacent(); }
  /// Whether lanes lie one behind the other without gaps.
  bool lie_close() const noexcept;

  /// Elements [first, first + count) of the lane that starts at `lane`, count <= block_elements, in
  /// their compute type: in place where they are stored so, else in `buffer`.
  const void* read(const std::byte* lane, std::int64_t first, std::int64_t count,
                   BlockBuffer& buffer) const noexcept;
  /// A whole lane in its compute type, to memory for it.
  void read_all(const std::byte* lane, std::byte* to) const noexcept;
  /// A whole lane from its compute type.
  void write_all(const std::byte* from, std::byte* lane) const noexcept;
  /// The same of `count` lanes that lie_close().
  void read_close(const std::byte* lane, std::int64_t count, std::byte* to) const noexcept;
  void write_close(const std::byte* from, std::int64_t count, std::byte* lane) const noexcept;
  /// The same of `count` adjacent lanes, from and to rows that are `step` bytes apart: faster than lane by lane, whose elements
  /// may be a cache line each.
  void read_adjacent(const std::byte* lane, std::int64_t count, std::byte* to,
                     std::int64_t step) const noexcept;
  void write_adjacent(const std::byte* from, std::int64_t step, std::int64_t count,
                      std::byte* lane) const noexcept;

 private:
  DType dtype_;
  std::int64_t unit_, computed_unit_;
  std::int64_t count_ = 1, size_, step_;
  Loops outer_;
};

}  // namespace tenon::cpu
