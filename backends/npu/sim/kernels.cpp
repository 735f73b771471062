#include "kernels.hpp"

#include "npu/isa/integer_math.hpp"

#include <algorithm>
#include <cstring>

namespace tenon::npu::sim {
namespace {

constexpr std::uint64_t beat_bytes = 64;

constexpr std::uint64_t beats(std::uint64_t bytes) { return ceil_div(bytes, beat_bytes); }

std::uint64_t tile_width(const isa::Load& i) {
  return std::uint64_t{i.pad_left} + i.row_bytes + i.pad_right;
}

/// Calls `visit(row, from, to)` for the bytes of each row of `width` that are among the beats of
/// `part`.
template <class Visit>
void for_each_row(std::uint64_t width, Part part, const Visit& visit) {
  const std::uint64_t of_row = beats(width);
  const std::uint64_t end = part.first + part.count;
  for (std::uint64_t beat = part.first; beat < end;) {
    const std::uint64_t row = beat / of_row;
    const std::uint64_t stop = std::min(end, (row + 1) * of_row);
    visit(row, (beat - row * of_row) * beat_bytes,
          std::min(width, (stop - row * of_row) * beat_bytes));
    beat = stop;
  }
}

std::uint64_t pieces_of(const isa::Load& i) {
  return (std::uint64_t{i.pad_top} + i.rows + i.pad_bottom) * beats(tile_width(i));
}
std::uint64_t pieces_of(const isa::LoadP& i) { return beats(std::uint64_t{i.count} * 8); }
std::uint64_t pieces_of(const isa::Store& i) { return std::uint64_t{i.rows} * beats(i.row_bytes); }
std::uint64_t pieces_of(const isa::Gemm& i) { return i.m; }
std::uint64_t pieces_of(const isa::Conv& i) { return std::uint64_t{i.out_h} * i.out_w; }
std::uint64_t pieces_of(const isa::Depthwise& i) {
  return std::uint64_t{i.blocks} * i.out_h * i.out_w;
}
std::uint64_t pieces_of(const isa::Requant& i) {
  return ceil_div(i.channels, isa::lanes) * i.h * i.w;
}
std::uint64_t pieces_of(const isa::Elementwise& i) { return std::uint64_t{i.rows} * i.columns; }
std::uint64_t pieces_of(const isa::Pool& i) { return std::uint64_t{i.blocks} * i.out_h * i.out_w; }
std::uint64_t pieces_of(const isa::Convert& i) {
  return ceil_div(i.channels, std::uint64_t{1} << i.log2c) * i.pixels;
}
std::uint64_t pieces_of(const isa::Common&) { return 1; }

}  // namespace

std::uint64_t Kernels::pieces(const isa::Instruction& instruction, const Segments& segments) const {
  if (const auto* const convert = std::get_if<isa::Convert>(&instruction)) {
    // What goes through a copy of xchg is done at once.
    const auto is_copied = [&](std::uint32_t place) {
      return place != isa::ocm_place &&
             memory_.direct(segments[place].base, segments[place].size) == nullptr;
    };
    if (is_copied(convert->plain_place) || is_copied(convert->blocked_place)) return 1;
  }
  return std::visit([](const auto& value) { return pieces_of(value); }, instruction);
}

void Kernels::execute(const isa::Instruction& instruction, const Segments& segments, Part part) {
  std::visit([&](const auto& value) { run(value, segments, part); }, instruction);
}

void Kernels::run(const isa::Load& i, const Segments& segments, Part part) {
  for_each_row(tile_width(i), part, [&](std::uint64_t row, std::uint64_t from, std::uint64_t to) {
    std::byte* const tile = memory_.ocm().data() + i.ocm_addr + row * i.ocm_stride;
    const bool padding = row < i.pad_top || row >= std::uint64_t{i.pad_top} + i.rows;
    const std::uint64_t left = i.pad_left, right = left + i.row_bytes;
    const std::uint64_t data_from = padding ? to : std::clamp(left, from, to);
    const std::uint64_t data_to = padding ? to : std::clamp(right, from, to);
    std::memset(tile + from, 0, data_from - from);
    std::memset(tile + data_to, 0, to - data_to);
    if (data_from == data_to) return;
    const std::uint64_t at = i.offset + (row - i.pad_top) * i.ddr_stride + (data_from - left);
    memory_.read(segments[i.segment].base + at, tile + data_from, data_to - data_from);
  });
}

void Kernels::run(const isa::LoadP& i, const Segments& segments, Part part) {
  for_each_row(std::uint64_t{i.count} * 8, part,
               [&](std::uint64_t, std::uint64_t from, std::uint64_t to) {
                 memory_.read(segments[i.segment].base + i.offset + from, line(i.ocm_line) + from,
                              to - from);
               });
}

void Kernels::run(const isa::Store& i, const Segments& segments, Part part) {
  for_each_row(i.row_bytes, part, [&](std::uint64_t row, std::uint64_t from, std::uint64_t to) {
    memory_.write(segments[i.segment].base + i.offset + row * i.ddr_stride + from,
                  memory_.ocm().data() + i.ocm_addr + row * i.ocm_stride + from, to - from);
  });
}

}  // namespace tenon::npu::sim
