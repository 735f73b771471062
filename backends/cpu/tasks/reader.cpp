#include "reader.hpp"

#include "../dense_constant.hpp"
#include "array/reversed.hpp"

#include <algorithm>
#include <cstring>

namespace tenon::cpu {
namespace {

template <class T>
void copy_run(const std::byte* from, std::int64_t step, std::int64_t count, std::byte* to) {
  auto* out = reinterpret_cast<T*>(to);
  if (step == 0) {
    std::fill_n(out, count, *reinterpret_cast<const T*>(from));
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] = *reinterpret_cast<const T*>(from + i * step);
  }
}

template <class T>
void spread_elements(const std::byte* from, std::int64_t count, std::byte* to, std::int64_t step) {
  const auto* in = reinterpret_cast<const T*>(from);
  for (std::int64_t i = 0; i < count; ++i) *reinterpret_cast<T*>(to + i * step) = in[i];
}

/// run(offset, step, count) of the elements [first, first + count), in the row-major order, that are one step of the last axis apart each.
template <class Run>
void for_each_run(const Loops& loops, std::int64_t first, std::int64_t count, Run run) {
  const auto& [rank, sizes, steps] = loops;
  if (count <= 0) return;
  if (rank == 0) return run(0, 0, count);
  std::array<std::int64_t, max_rank> index{};
  std::int64_t offset = 0;
  const int inner = rank - 1;
  for (int i = inner; i >= 0; --i) {
    const auto at = static_cast<std::size_t>(i);
    index[at] = first % sizes[at];
    first /= sizes[at];
    offset += index[at] * steps[at];
  }
  const auto last = static_cast<std::size_t>(inner);
  while (true) {
    const std::int64_t some = std::min(count, sizes[last] - index[last]);
    run(offset, steps[last], some);
    count -= some;
    if (count == 0) return;
    offset -= index[last] * steps[last];
    index[last] = 0;
    for (int i = inner - 1; i >= 0; --i) {
      const auto at = static_cast<std::size_t>(i);
      offset += steps[at];
      if (++index[at] < sizes[at]) break;
      offset -= index[at] * steps[at];
      index[at] = 0;
    }
  }
}

}  // namespace

void spread_run(const std::byte* from, std::int64_t unit, std::int64_t count, std::byte* to,
                std::int64_t step) noexcept {
  switch (unit) {
    case 1:
      return spread_elements<std::uint8_t>(from, count, to, step);
    case 2:
      return spread_elements<std::uint16_t>(from, count, to, step);
    case 4:
      return spread_elements<std::uint32_t>(from, count, to, step);
    default:
      return spread_elements<std::uint64_t>(from, count, to, step);
  }
}

void copy_run(const std::byte* from, std::int64_t step, std::int64_t unit, std::int64_t count,
              std::byte* to) noexcept {
  if (step == unit) {
    std::memcpy(to, from, static_cast<std::size_t>(count * unit));
    return;
  }
  if (step == -unit) return copy_reversed(from, to, count, unit);
  switch (unit) {
    case 1:
      return copy_run<std::uint8_t>(from, step, count, to);
    case 2:
      return copy_run<std::uint16_t>(from, step, count, to);
    case 4:
      return copy_run<std::uint32_t>(from, step, count, to);
    default:
      return copy_run<std::uint64_t>(from, step, count, to);
  }
}

void Loops::push(std::int64_t size, std::int64_t step) noexcept {
  if (size == 1) return;
  if (rank > 0) {
    const auto last = static_cast<std::size_t>(rank - 1);
    if (steps[last] == step * size) {
      sizes[last] *= size;
      steps[last] = step;
      return;
    }
  }
  sizes[static_cast<std::size_t>(rank)] = size;
  steps[static_cast<std::size_t>(rank)] = step;
  ++rank;
}

std::int64_t Loops::offset(std::int64_t position) const noexcept {
  std::int64_t result = 0;
  for (int i = rank - 1; i > 0; --i) {
    const auto at = static_cast<std::size_t>(i);
    result += position % sizes[at] * steps[at];
    position /= sizes[at];
  }
  return rank == 0 ? 0 : result + position * steps[0];
}

std::optional<std::int64_t> Loops::run_at(std::int64_t unit, std::int64_t first,
                                          std::int64_t count) const noexcept {
  if (rank == 0) return std::nullopt;
  const auto last = static_cast<std::size_t>(rank - 1);
  if (steps[last] != unit || (rank > 1 && first % sizes[last] + count > sizes[last])) {
    return std::nullopt;
  }
  return offset(first);
}

void Loops::gather(const std::byte* from, std::int64_t unit, std::int64_t first, std::int64_t count,
                   std::byte* to) const noexcept {
  for_each_run(*this, first, count, [&](std::int64_t offset, std::int64_t step, std::int64_t some) {
    copy_run(from + offset, step, unit, some, to);
    to += some * unit;
  });
}

void Loops::scatter(const std::byte* from, std::int64_t unit, std::int64_t first,
                    std::int64_t count, std::byte* to) const noexcept {
  for_each_run(*this, first, count, [&](std::int64_t offset, std::int64_t step, std::int64_t some) {
    spread_run(from, unit, some, to + offset, step);
    from += some * unit;
  });
}

namespace {

/// Whether a constant is worth a dense copy: it is read with gaps, and more often than once.
bool is_copied(const Operand& operand, const Shape& output) {
  constexpr std::int64_t most_bytes = 1 << 20;
  if (operand.place.kind != Place::Kind::constant || operand.is_contiguous()) return false;
  for (int i = 0; i < operand.shape.rank(); ++i) {
    if (operand.shape[i] > 1 && operand.strides[static_cast<std::size_t>(i)] == 0) return false;
  }
  return operand.shape.bytes() <= most_bytes && operand.shape.elements() < output.elements();
}

}  // namespace

Reader::Reader(const Operand& given, const Shape& output, As as, Compiler& compiler)
    : operand_(given),
      unit_(block_bytes(given.shape.dtype())),
      converts_(as == As::computed && !is_computed_as_stored(given.shape.dtype())) {
  if (is_copied(given, output)) {
    copy_ = compiler.prepare(given, dense_constant());
    operand_.strides = dense_strides(given.shape);
  }
  const Operand& operand = operand_;
  const int rank = output.rank();
  for (int i = 0; i < rank; ++i) {
    const int own = i - (rank - operand.shape.rank());
    const bool fixed = own < 0 || operand.shape[own] == 1;
    loops_.push(output[i], fixed ? 0 : operand.strides[static_cast<std::size_t>(own)]);
  }
  single_ = loops_.rank == 0 || (loops_.rank == 1 && loops_.steps[0] == 0);
  find_panels(compiler);
}

void Reader::find_panels(Compiler& compiler) {
  constexpr std::int64_t line = 64, l1 = 32 << 10, usual = 64 << 10, most = 256 << 10;
  const int last = loops_.rank - 1;
  if (last < 1 || loops_.steps[static_cast<std::size_t>(last)] == unit_) return;
  Panels panels{.row = 1};
  for (int i = last; i >= 0 && panels.axis < 0; --i) {
    const auto at = static_cast<std::size_t>(i);
    if (loops_.steps[at] == unit_) {
      panels.axis = i;
      const std::int64_t wanted = std::max(usual / (panels.row * unit_), line / unit_);
      panels.rows = std::min(wanted, loops_.sizes[at]);
    } else {
      if (loops_.steps[at] == 0 || loops_.sizes[at] == 0) return;
      panels.row *= loops_.sizes[at];
    }
  }
  const std::int64_t bytes = panels.rows * panels.row * unit_;
  if (panels.axis < 0 || panels.rows < 4 || bytes > most ||
      loops_.sizes[static_cast<std::size_t>(panels.axis)] * panels.row * unit_ <= l1) {
    return;
  }
  panels_ = panels;
  panels_.thread_bytes = header_bytes + round_up(bytes, line);
  panels_.scratch = compiler.scratch(compiler.threads() * panels_.thread_bytes);
}

Reader::PanelHeader& Reader::header(const TaskContext& context) const noexcept {
  std::byte* const own =
      context.scratch(panels_.scratch) + context.worker.thread * panels_.thread_bytes;
  return *reinterpret_cast<PanelHeader*>(own);
}

void Reader::begin(const TaskContext& context) const noexcept {
  if (panels_.axis >= 0) header(context) = {0, 0};
}

const Reader::PanelHeader& Reader::load_panel(const TaskContext& context, const std::byte* start,
                                              std::int64_t element) const noexcept {
  PanelHeader& panel = header(context);
  if (element >= panel.first && element < panel.first + panel.count) return panel;
  const auto axis = static_cast<std::size_t>(panels_.axis);
  const std::int64_t row = element / panels_.row, within = row % loops_.sizes[axis];
  const std::int64_t skipped = within % panels_.rows;
  const std::int64_t rows = std::min(panels_.rows, loops_.sizes[axis] - (within - skipped));
  panel = {(row - skipped) * panels_.row, rows * panels_.row};
  std::array<std::int64_t, max_rank> sizes{};
  HostView from;
  from.data = const_cast<std::byte*>(start) + loops_.offset(panel.first);
  int rank = 0;
  for (int i = panels_.axis; i < loops_.rank; ++i, ++rank) {
    const auto at = static_cast<std::size_t>(i), to = static_cast<std::size_t>(rank);
    sizes[to] = rank == 0 ? rows : loops_.sizes[at];
    from.strides[to] = loops_.steps[at];
  }
  from.shape =
      Shape(std::span(sizes).first(static_cast<std::size_t>(rank)), operand_.shape.dtype());
  auto* const to = reinterpret_cast<std::byte*>(&panel) + header_bytes;
  copy_elements(from, HostView(to, from.shape));
  return panel;
}

const std::byte* Reader::read_panels(const TaskContext& context, const std::byte* start,
                                     std::int64_t first, std::int64_t count,
                                     std::byte* to) const noexcept {
  const std::int64_t end = first + count;
  for (std::int64_t i = first, some = 0; i < end; i += some) {
    const PanelHeader& panel = load_panel(context, start, i);
    const auto* const values = reinterpret_cast<const std::byte*>(&panel) + header_bytes;
    const std::byte* const from = values + (i - panel.first) * unit_;
    some = std::min(end, panel.first + panel.count) - i;
    if (some == count) return from;
    std::memcpy(to + (i - first) * unit_, from, static_cast<std::size_t>(some * unit_));
  }
  return to;
}

Reader::Block Reader::read(const TaskContext& context, std::int64_t first, std::int64_t count,
                           BlockBuffer& buffer) const noexcept {
  const auto* start = copy_ ? context.constant<HostBuffer>(*copy_).bytes()
                            : context.pointer<const std::byte>(operand_);
  const DType dtype = operand_.shape.dtype();
  if (single_) {
    if (!converts_) return {start, 0};
    widen(dtype, start, buffer.bytes, 1);
    return {buffer.bytes, 0};
  }
  if (const auto offset = loops_.run_at(unit_, first, count)) {
    if (!converts_) return {start + *offset, 1};
    widen(dtype, start + *offset, buffer.bytes, count);
    return {buffer.bytes, 1};
  }
  alignas(64) std::byte stored[block_elements * 4];  // what is converted takes four bytes at most
  std::byte* const to = converts_ ? stored : buffer.bytes;
  const std::byte* from = to;
  if (panels_.axis >= 0) {
    from = read_panels(context, start, first, count, to);
  } else {
    loops_.gather(start, unit_, first, count, to);
  }
  if (!converts_) return {from, 1};
  widen(dtype, from, buffer.bytes, count);
  return {buffer.bytes, 1};
}

}  // namespace tenon::cpu
