#include "tiled_values.hpp"

#include "../integer_math.hpp"
#include "../live_range_allocator.hpp"
#include "../task.hpp"
#include "lower/value_uses.hpp"
#include "merged_linear.hpp"

#include <algorithm>
#include <optional>

namespace tenon::cpu {

using namespace lowering;
namespace {

constexpr std::int64_t tile_rows = 16, tile_columns = 32;

/// The rows of a value that linear layers read, and their size.
struct RowsRead {
  std::int64_t rows, inputs;
  friend bool operator==(const RowsRead&, const RowsRead&) noexcept = default;
};

/// The rows that a linear layer reads as tiles at `use`; nothing where it does not.
std::optional<RowsRead> tiles_read(const Step& step, const WrittenValue::Use& use) {
  if (step.kind != Step::Kind::op || use.input != 0) return std::nullopt;
  if (step.op.as<Linear>() == nullptr && step.op.as<MergedLinear>() == nullptr) return std::nullopt;
  const Operand& x = step.inputs[0];
  const RowsRead read{row_count(x.shape), row_size(x.shape)};
  const auto form = PreparedRows::form_for(step.inputs[1].shape.dtype(), read.rows, read.inputs);
  return form == RowForm::bf16 ? std::optional(read) : std::nullopt;
}

/// The same for all uses of a value, where they agree.
std::optional<RowsRead> tiles_read(std::span<const Step> steps, const WrittenValue& value) {
  if (!value.is_private || value.uses.empty()) return std::nullopt;
  const auto read = tiles_read(steps[value.uses[0].step], value.uses[0]);
  const bool alike = std::ranges::all_of(value.uses, [&](const WrittenValue::Use& use) {
    return tiles_read(steps[use.step], use) == read;
  });
  return alike ? read : std::nullopt;
}

bool can_write(const Step& step, const RowsRead& rows) {
  if (step.kind != Step::Kind::op || !step.output.is_contiguous()) return false;
  const Kernel* kernel = kernel_of(step.op.def());
  return kernel->writes_tiles != nullptr && kernel->writes_tiles(step, rows.inputs);
}

/// One body; see for_each_body.
std::int64_t keep(std::vector<Step>& steps, std::span<const Operand> leaves, std::int64_t first) {
  const std::vector<WrittenValue> values = trace_values(steps, leaves, ReadAs::any_shape);
  LiveRangeAllocator memory;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const std::optional<RowsRead> rows = tiles_read(steps, values[i]);
    if (!rows || !can_write(steps[i], *rows)) continue;
    Operand tiles;
    tiles.shape = Shape({ceil_div(rows->rows, tile_rows), rows->inputs / tile_columns, tile_rows,
                         tile_columns},
                        bf16)
                      .with_layout(Name("tiles"));
    tiles.strides = dense_strides(tiles.shape);
    tiles.place.kind = Place::Kind::shared_scratch;
    std::size_t last_use = i;
    for (const WrittenValue::Use& use : values[i].uses) last_use = std::max(last_use, use.step);
    tiles.place.offset = first + memory.allocate(tiles.shape.bytes(), i, last_use);
    steps[i].output = tiles;
    for (const WrittenValue::Use& use : values[i].uses) steps[use.step].inputs[0] = tiles;
  }
  return first + memory.peak();
}

}  // namespace

std::int64_t keep_values_tiled(const Lowered& program, std::span<const Step> steps,
                               std::vector<Step>& own, std::int64_t first) {
  // Loops run one after the other and share memory; the values outside of them, which come last,
  // may be live meanwhile.
  std::int64_t end = first;
  for_each_body(program, steps, own, [&](std::vector<Step>& body, auto leaves) {
    const std::int64_t begin = &body == &own ? end : first;
    end = std::max(end, keep(body, leaves, begin));
  });
  return end;
}

bool is_tiled(const Operand& operand) noexcept {
  const Shape& shape = operand.shape;
  return operand.place.kind == Place::Kind::shared_scratch && !shape.layout().empty();
}

std::int64_t tiled_rows(const Operand& operand) noexcept { return operand.shape[0] * tile_rows; }

std::int64_t tiled_row_size(const Operand& operand) noexcept {
  return operand.shape[1] * tile_columns;
}

PreparedRows tiles_of(const Operand& operand, std::byte* memory) noexcept {
  return {RowForm::bf16, tiled_rows(operand), tiled_row_size(operand), memory};
}

}  // namespace tenon::cpu
