#include "hazards.hpp"

#include <algorithm>
#include <bit>

namespace tenon::npu::sim {
namespace {

constexpr std::size_t index_of(isa::Engine engine) { return static_cast<std::size_t>(engine); }

constexpr std::uint64_t granule(Space space) {
  return space == Space::acc ? isa::acc_row_bytes : std::uint64_t{32};
}
constexpr std::uint64_t first_line(const Range& range) {
  return range.begin / granule(range.space);
}
constexpr std::uint64_t last_line(const Range& range) {
  return (range.begin + range.size - 1) / granule(range.space);
}

/// The bits of a line's bytes that a range covers.
std::uint32_t bytes_in_line(const Range& range, std::uint64_t line) {
  const std::uint64_t begin = line * 32;
  const std::uint64_t from = std::max(range.begin, begin) - begin;
  const std::uint64_t to = std::min(range.begin + range.size, begin + 32) - begin;
  const std::uint64_t bits = (std::uint64_t{1} << to) - (std::uint64_t{1} << from);
  return static_cast<std::uint32_t>(bits);
}

/// Beyond this, clocks restart at the next program, long before they would wrap around.
constexpr std::uint32_t clock_limit = 1U << 31;

}  // namespace

Hazards::Hazards(std::uint64_t ocm_bytes, std::uint64_t acc_bytes)
    : ocm_(ocm_bytes / line_bytes),
      acc_(acc_bytes / isa::acc_row_bytes),
      ocm_written_(ocm_bytes / line_bytes),
      acc_written_(acc_bytes / isa::acc_row_bytes) {}

void Hazards::join_all() {
  Clock all{};
  for (std::size_t e = 0; e < isa::engine_count; ++e) all[e] = clocks_[e][e];
  clocks_.fill(all);
}

void Hazards::start_program() {
  ddr_.clear();
  if (*std::ranges::max_element(clocks_[0]) > clock_limit) {
    clocks_ = {};
    std::ranges::fill(ocm_, Line{});
    std::ranges::fill(acc_, Line{});
  }
  join_all();
  for (std::size_t e = 0; e < isa::engine_count; ++e) {
    bases_[e] = clocks_[e][e];
    pcs_[e].clear();
  }
}

const Clock& Hazards::begin(isa::Engine engine, std::uint32_t pc) {
  const std::size_t e = index_of(engine);
  ++clocks_[e][e];
  pcs_[e].push_back(pc);
  return clocks_[e];
}

void Hazards::take(isa::Engine engine, const Clock& clock) {
  Clock& mine = clocks_[index_of(engine)];
  for (std::size_t e = 0; e < isa::engine_count; ++e) mine[e] = std::max(mine[e], clock[e]);
}

const Hazards::Line* Hazards::find(const Range& range, std::uint64_t index) const {
  if (range.space == Space::ocm) return &ocm_[index];
  if (range.space == Space::acc) return &acc_[index];
  const auto page = ddr_.find(index / page_lines);
  return page == ddr_.end() ? nullptr : &(*page->second)[index % page_lines];
}

Hazards::Line& Hazards::line(const Range& range, std::uint64_t index) {
  if (range.space == Space::ocm) return ocm_[index];
  if (range.space == Space::acc) return acc_[index];
  std::unique_ptr<Page>& page = ddr_[index / page_lines];
  if (!page) page = std::make_unique<Page>();
  return (*page)[index % page_lines];
}

bool Hazards::races(isa::Engine engine, const Line& line, bool write,
                    std::uint32_t& other_pc) const {
  const Clock& mine = clocks_[index_of(engine)];
  const auto unordered = [&](std::size_t other, std::uint32_t clock) {
    if (other == index_of(engine) || clock <= mine[other]) return false;
    other_pc = pcs_[other][clock - bases_[other] - 1];
    return true;
  };
  if (unordered(line.writer, line.write)) return true;
  if (!write) return false;
  for (std::size_t other = 0; other < isa::engine_count; ++other) {
    if (unordered(other, line.reads[other])) return true;
  }
  return false;
}

bool Hazards::races(isa::Engine engine, const Range& range, std::uint32_t& other_pc) const {
  for (std::uint64_t index = first_line(range); index <= last_line(range); ++index) {
    const Line* const known = find(range, index);
    if (known != nullptr && races(engine, *known, range.write, other_pc)) return true;
  }
  return false;
}

void Hazards::enter(isa::Engine engine, const Range& range) {
  const std::size_t e = index_of(engine);
  const std::uint32_t now = clocks_[e][e];
  for (std::uint64_t index = first_line(range); index <= last_line(range); ++index) {
    Line& known = line(range, index);
    if (range.write) {
      known.write = now;
      known.writer = static_cast<std::uint8_t>(e);
    } else {
      known.reads[e] = now;
    }
  }
}

std::uint64_t Hazards::first_unwritten(const Range& range) const {
  for (std::uint64_t index = first_line(range); index <= last_line(range); ++index) {
    if (range.space == Space::acc) {
      if (!acc_written_[index])
        return index * isa::acc_row_bytes - std::min(range.begin, index * isa::acc_row_bytes);
      continue;
    }
    const std::uint32_t missing = bytes_in_line(range, index) & ~ocm_written_[index];
    if (missing != 0) {
      return index * line_bytes + static_cast<std::uint64_t>(std::countr_zero(missing)) -
             range.begin;
    }
  }
  return range.size;
}

void Hazards::mark_written(const Range& range) {
  for (std::uint64_t index = first_line(range); index <= last_line(range); ++index) {
    if (range.space == Space::acc) {
      acc_written_[index] = true;
    } else {
      ocm_written_[index] |= bytes_in_line(range, index);
    }
  }
}

void Hazards::forget_written() {
  std::ranges::fill(ocm_written_, 0U);
  acc_written_.assign(acc_written_.size(), false);
}

}  // namespace tenon::npu::sim
