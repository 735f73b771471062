// Matrix products: matmul, linear layers, experts.
#include "kernels/block_sizes.hpp"
#include "lower/memory_access.hpp"
#include "plan/libraries.hpp"
#include "plan/planners.hpp"

#include <tenon/ops.hpp>

#include <algorithm>
#include <vector>

#include <fmt/format.h>

namespace tenon::cuda {
namespace {

std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }

/// Rows of a dense array: all axes but the last as one, if strides allow that.
std::optional<std::int64_t> row_step(const Operand& x) {
  const int last = x.shape.rank() - 1;
  std::vector<std::int64_t> sizes(x.shape.dims().begin(), x.shape.dims().end() - 1);
  const MergedAxes rows = merged(sizes, {x.strides});
  if (last == 0 || rows.axes.rank == 0) return x.shape.bytes();
  if (rows.axes.rank > 1) return std::nullopt;
  return rows.steps[0].bytes[0];
}

}  // namespace

Rows rows_of(const Operand& operand, Emitter& out) {
  Located at = with_dense_rows(operand, out);
  if (const auto step = row_step(at.operand)) return {at.source, *step};
  Operand dense = operand;
  dense.strides = dense_strides(operand.shape);
  const Source place = out.scratch(operand.shape.bytes());
  emit_copy(operand, source_of(operand), dense, place, out);
  const std::int64_t rows = operand.shape.elements() / operand.shape[operand.shape.rank() - 1];
  return {place, operand.shape.bytes() / rows};
}

bool rounds_rows(const Operand& x, const Operand& w, const PlanOptions& options) {
  return x.shape.dtype() == f32 && w.shape.dtype() != f32 && !options.is_exact;
}

void emit_rounded(const Rows& rows, DType dtype, std::int64_t count, std::int64_t depth,
                  const Source& to, Emitter& out) {
  const auto tensor = tensor_kernels(dtype);
  if (depth % 8 == 0 && (tensor || dtype == f32)) {
    Draft<RoundArgs> draft;
    draft.address(draft.args.x, rows.source);
    draft.address(draft.args.y, to);
    draft.args.x_step = rows.step;
    draft.args.rows = static_cast<std::uint32_t>(count);
    draft.args.depth = static_cast<std::uint32_t>(depth);
    // Threads have 8 elements of f32, or four 128 of other types.
    const auto threads = dtype == f32 ? depth / 8 : (depth + 127) / 128 * 4;
    out.launch(tensor ? tensor->rounding : Kernel::round_f32,
               grid_of(static_cast<std::uint64_t>(threads * count)), draft);
    return;
  }
  emit_decoded(rows, dtype, count, depth, to, bf16, out);
}

Source rounded_rows(const Operand& x, Emitter& out) {
  if (const auto kept = out.kept_copy(CopyKind::rounded, x)) return *kept;
  const std::int64_t bytes = x.shape.with_dtype(bf16).bytes();
  const Source place = out.keep_copy(CopyKind::rounded, x, bytes);
  const std::int64_t depth = x.shape[x.shape.rank() - 1];
  const Rows rows = rows_of(x, out);
  emit_rounded(rows, x.shape.dtype(), x.shape.elements() / depth, depth, place, out);
  return place;
}

bool reads_digits(const Step& step, const Operand& x, const Emitter& out) {
  if (!out.options().multiplies_digits) return false;
  if (step.kind != Step::Kind::op || step.op.as<Linear>() == nullptr) return false;
  const Operand& w = step.inputs[1];
  return step.inputs[0] == x && code_kernels(w.shape.dtype()) && is_real(x.shape.dtype()) &&
         w.shape[1] > 0 && x.shape.elements() <= gemv_rows * w.shape[1];
}
std::int64_t bytes_of_digits(const Operand& x) {
  const std::int64_t depth = x.shape[x.shape.rank() - 1], rows = x.shape.elements() / depth;
  return rows * ((depth + digit_step - 1) / digit_step) * digit_bytes;
}

namespace {

/// The digits of an operand's rows in scratch memory, made where no step before has. Before other
/// scratch memory of the step.
Source digits_of(const Operand& x, Emitter& out) {
  if (const auto kept = out.kept_copy(CopyKind::digits, x)) return *kept;
  const Source place = out.keep_copy(CopyKind::digits, x, bytes_of_digits(x));
  const std::int64_t depth = x.shape[x.shape.rank() - 1];
  const Rows rows = rows_of(x, out);
  Draft<DigitArgs> draft;
  draft.address(draft.args.x, rows.source);
  draft.address(draft.args.y, place);
  draft.args.x_step = rows.step;
  draft.args.rows = static_cast<std::uint32_t>(x.shape.elements() / depth);
  draft.args.depth = static_cast<std::uint32_t>(depth);
  draft.args.x_dtype = x.shape.dtype();
  constexpr std::uint64_t warps = 4;
  const auto steps = static_cast<std::uint64_t>(bytes_of_digits(x)) / digit_bytes;
  out.launch(Kernel::digits_of_rows,
             {static_cast<unsigned>(ceil_div(steps, warps)), static_cast<unsigned>(warps * 32)},
             draft);
  return place;
}

/// Of the steps behind one that reads digits those that one launch computes with it.
std::span<const Step> parts_of(const Step& step, const Emitter& out) {
  const std::span<const Step> next = out.next_steps();
  const Operand &x = step.inputs[0], &w = step.inputs[1];
  const auto is_plain = [&](const Step& one) {
    const auto* const op = one.op.as<Linear>();
    const Operand& own = one.inputs[1];
    return !op->has_residual && own.place.kind == Place::Kind::constant && own.is_contiguous() &&
           own.shape.dtype() == w.shape.dtype() && own.shape[1] == w.shape[1] &&
           one.output.shape.dtype() == step.output.shape.dtype() &&
           one.output.shape.elements() > 0 &&
           (!op->has_bias || (one.inputs[2].place.kind == Place::Kind::constant &&
                              is_real(one.inputs[2].shape.dtype()))) &&
           !lowering::overlap(x, one.output);
  };
  if (!is_plain(step)) return {};
  std::size_t count = 0;
  while (count < std::min<std::size_t>(more_parts, next.size())) {
    const Step& one = next[count];
    if (!reads_digits(one, x, out) || !is_plain(one)) break;
    const auto meets = [&](const Step& before) {
      return lowering::overlap(before.output, one.output);
    };
    if (meets(step) || std::ranges::any_of(next.first(count), meets)) break;
    ++count;
  }
  return next.first(count);
}

Refusal refused_operands(const Operand& x, const Operand& w) {
  if (!is_real(x.shape.dtype())) return unsupported(x.shape.dtype());
  if (!weight_kernels(w.shape.dtype())) {
    return fmt::format("weights of {}: no kernel reads that type", name(w.shape.dtype()));
  }
  return std::nullopt;
}

/// One value for every row, or one row's.
void set_bias(Draft<LinearArgs>& draft, const Operand& bias) {
  const int last = bias.shape.rank() - 1;
  draft.address(draft.args.bias, bias);
  draft.args.bias_step = bias.strides[static_cast<std::size_t>(last)];
  draft.args.bias_dtype = bias.shape.dtype();
}

/// Columns of a team, an even number: those with which a large device takes the least time. Its
/// multiprocessors take blocks in turn, of up to `resident_warps` warps at once, and are slower with
/// fewer. To begin and to end blocks takes as long as `start` columns more.
std::uint32_t columns_of_team(std::uint64_t columns, std::uint64_t teams, std::uint64_t warps,
                              std::uint64_t resident_warps, std::uint32_t most) {
  constexpr std::uint64_t multiprocessors = 132, start = 16;
  const std::uint64_t at_once = std::max<std::uint64_t>(resident_warps / warps, 1);
  std::uint32_t best = 2;
  std::uint64_t least = ~std::uint64_t{};
  for (std::uint32_t own = 2; own <= most; own += 2) {
    const std::uint64_t blocks = ceil_div(ceil_div(columns, own * teams), multiprocessors);
    const std::uint64_t running = std::min(blocks, at_once) * warps;
    const std::uint64_t of_columns =
        ceil_div(blocks * teams * own * resident_warps, std::min(running, resident_warps));
    const std::uint64_t time = of_columns + ceil_div(blocks, at_once) * start;
    if (time < least) best = own;
    least = std::min(least, time);
  }
  return best;
}

/// Launches a product whose rows are multiplied `rows_at_once` at a time, 1 or `gemv_rows`. How a
/// column's depth is cut depends on the depth alone, so that its sum has the same bits for any
/// number of rows and columns.
void launch_gemv(Draft<LinearArgs>& draft, DType weights, std::uint32_t rows_at_once,
                 Emitter& out) {
  constexpr std::uint64_t few_columns = 1024;
  const std::uint64_t resident_warps =  // by their registers
      rows_at_once > 1    ? 11
      : is_block(weights) ? 21
                          : 32;
  LinearArgs& args = draft.args;
  const auto slice =
      is_block(weights) ? gemv_block_slice
                        : gemv_plain_slice_bytes / static_cast<std::uint32_t>(block_bytes(weights));
  const std::uint64_t slices = std::max<std::uint64_t>(ceil_div(args.depth, slice), 1);
  const std::uint64_t team = ceil_div(slices, ceil_div(slices, gemv_warps));
  const std::uint64_t row_tiles = ceil_div(args.rows, rows_at_once);
  const std::uint64_t most_teams = args.columns * row_tiles <= few_columns ? 2 : gemv_teams;
  const std::uint64_t teams = std::max<std::uint64_t>(most_teams / team, 1);
  args.team = static_cast<std::uint32_t>(team);
  args.team_columns = columns_of_team(args.columns * row_tiles, teams, team * teams, resident_warps,
                                      rows_at_once == 1 ? gemv_columns : gemv_columns_of_rows);
  args.column_tiles = static_cast<std::uint32_t>(ceil_div(args.columns, teams * args.team_columns));
  const WeightKernels kernels = *weight_kernels(weights);
  out.launch(rows_at_once == 1 ? kernels.gemv : kernels.gemv_rows,
             {static_cast<unsigned>(args.column_tiles * row_tiles),
              static_cast<unsigned>(teams * team * 32)},
             draft);
}

/// The same with weights that are codes. How the depth is cut depends on nothing at all.
void launch_codes(Draft<LinearArgs>& draft, const CodeKernels& kernels, std::uint32_t rows_at_once,
                  Emitter& out) {
  constexpr std::uint64_t resident_blocks = 132 * 4;
  LinearArgs& args = draft.args;
  const std::uint64_t row_tiles = ceil_div(args.rows, rows_at_once);
  const auto count_tiles = [&](std::uint64_t columns) {
    std::uint64_t tiles = ceil_div(args.columns, columns);
    for (const LinearPart& part : args.parts) tiles += ceil_div(part.columns, columns);
    return tiles;
  };
  const std::uint64_t wanted =
      ceil_div(count_tiles(code_tile_columns) * row_tiles, resident_blocks);
  const std::uint64_t tiles =
      rows_at_once > 1 ? 1 : std::clamp<std::uint64_t>(wanted, 1, code_tiles);
  args.team_columns = static_cast<std::uint32_t>(tiles * code_tile_columns);
  args.column_tiles = static_cast<std::uint32_t>(count_tiles(args.team_columns));
  out.launch(rows_at_once == 1 ? kernels.of_row : kernels.of_rows,
             {static_cast<unsigned>(args.column_tiles * row_tiles), code_warps * 32}, draft);
}

void launch_linear(Draft<LinearArgs>& draft, DType weights, Emitter& out) {
  LinearArgs& args = draft.args;
  const WeightKernels kernels = *weight_kernels(weights);
  const auto tiles = [&](std::uint32_t rows, std::uint32_t columns) {
    return static_cast<unsigned>(ceil_div(args.columns, columns) * ceil_div(args.rows, rows));
  };
  const std::optional<TensorKernels> tensor = tensor_kernels(weights);
  if (args.rows <= gemv_rows) {
    launch_gemv(draft, weights, args.rows == 1 ? 1 : gemv_rows, out);
  } else if (tensor && args.x_dtype != f32) {
    args.multiplies_halves = args.x_dtype == f16 && weights == f16;
    args.x_terms = args.x_dtype == bf16 || args.multiplies_halves ? 1 : 2;
    args.w_terms = weights == bf16 || args.multiplies_halves ? 1 : 2;
    out.launch(tensor->of_terms, {tiles(tensor_tile, tensor_tile), tensor_threads}, draft);
  } else {
    out.launch(kernels.linear, {tiles(tile_rows, tile_columns), tile_threads}, draft);
  }
}

/// Of bf16 by bf16, or of rows that are rounded to it, in tensor cores; the copy of the rows is in
/// scratch memory.
bool is_of_bfloat16(const Operand& x, const Operand& w, const PlanOptions& options) {
  const bool is_given = x.shape.dtype() == bf16 && w.shape.dtype() == bf16;
  constexpr std::int64_t vector = 8;
  return (is_given || rounds_rows(x, w, options)) && tensor_kernels(w.shape.dtype()) &&
         w.shape[1] > 0 && w.shape[1] % vector == 0;
}

void launch_rounded(Draft<LinearArgs>& draft, DType weights, Emitter& out) {
  LinearArgs& args = draft.args;
  const std::uint64_t tiles = ceil_div(args.columns, rounded_tile_columns);
  const std::uint64_t steps = ceil_div(args.depth, rounded_depth);
  // Whatever the rows are, so that their number does not change the order of sums.
  const std::uint64_t wanted =
      std::clamp<std::uint64_t>(rounded_blocks / tiles, 1, ceil_div(steps, min_rounded_steps));
  const std::uint64_t steps_of_split = ceil_div(steps, wanted);
  args.split_depth = static_cast<std::uint32_t>(steps_of_split * rounded_depth);
  args.splits = static_cast<std::uint32_t>(ceil_div(steps, steps_of_split));
  if (args.splits > 1) {
    const std::int64_t elements = std::int64_t{args.rows} * args.columns * args.splits;
    draft.address(args.partial, out.scratch(elements * block_bytes(f32)));
  }
  const std::uint64_t blocks = tiles * ceil_div(args.rows, rounded_tile_rows) * args.splits;
  out.launch(tensor_kernels(weights)->of_rounded_rows,
             {static_cast<unsigned>(blocks), rounded_threads}, draft);
  if (args.splits > 1) {
    out.launch(Kernel::linear_join, grid_of(std::uint64_t{args.rows} * args.columns), draft);
  }
}

}  // namespace

namespace {

void set_part(Draft<LinearArgs>& draft, LinearPart& part, const Step& step) {
  const Operand &w = step.inputs[1], &y = step.output;
  draft.address(part.w, w);
  draft.address(part.y, y);
  part.columns = static_cast<std::uint32_t>(w.shape[0]);
  part.y_step = w.shape[0] * block_bytes(y.shape.dtype());
  if (!step.op.as<Linear>()->has_bias) return;
  const Operand& bias = step.inputs[2];
  draft.address(part.bias, bias);
  part.bias_step = bias.strides[static_cast<std::size_t>(bias.shape.rank() - 1)];
  part.bias_dtype = bias.shape.dtype();
}

}  // namespace

Refusal plan_linear(const Step& step, Emitter* out) {
  const Operand &x = step.inputs[0], &w = step.inputs[1], &y = step.output;
  const auto* const op = step.op.as<Linear>();
  if (Refusal refusal = refused_operands(x, w)) return refusal;
  if (op->has_bias && !is_real(step.inputs[2].shape.dtype())) {
    return unsupported(step.inputs[2].shape.dtype());
  }
  if (out == nullptr) return std::nullopt;
  const bool has_many_rows = y.shape.elements() > gemv_rows * w.shape[0];
  if (has_many_rows && plan_library_linear(step, *out)) return std::nullopt;
  Draft<LinearArgs> draft;
  LinearArgs& args = draft.args;
  args.depth = static_cast<std::uint32_t>(w.shape[1]);
  args.columns = static_cast<std::uint32_t>(w.shape[0]);
  args.rows = static_cast<std::uint32_t>(y.shape.elements() / w.shape[0]);
  args.choices = 1;
  args.x_dtype = x.shape.dtype();
  args.y_dtype = y.shape.dtype();
  args.y_step = w.shape[0] * block_bytes(y.shape.dtype());
  draft.address(args.y, y);
  const bool is_rounded = has_many_rows && is_of_bfloat16(x, w, out->options());
  if (reads_digits(step, x, *out)) {
    draft.address(args.digits, digits_of(x, *out));
    const std::span<const Step> parts = parts_of(step, *out);
    for (std::size_t i = 0; i < parts.size(); ++i) set_part(draft, args.parts[i], parts[i]);
    out->take_next(parts.size());
  }
  if (args.depth > 0) {
    const std::int64_t dense_step = w.shape[1] * block_bytes(bf16);
    const Rows x_rows = is_rounded ? Rows{rounded_rows(x, *out), dense_step} : rows_of(x, *out);
    const Rows w_rows = rows_of(w, *out);
    draft.address(args.x, x_rows.source);
    draft.address(args.w, w_rows.source);
    args.x_step = x_rows.step;
    args.w_step = w_rows.step;
    args.reads_ahead =
        w.place.kind == Place::Kind::constant && w_rows.source.kind == Source::Kind::operand;
  }
  if (op->has_bias) set_bias(draft, step.inputs[2]);
  if (op->has_residual) {
    const Rows residual = rows_of(step.inputs[op->has_bias ? 3 : 2], *out);
    draft.address(args.residual, residual.source);
    args.residual_step = residual.step;
  }
  if (reads_digits(step, x, *out)) {
    launch_codes(draft, *code_kernels(w.shape.dtype()), args.rows == 1 ? 1 : gemv_rows, *out);
  } else if (is_rounded) {
    launch_rounded(draft, w.shape.dtype(), *out);
  } else {
    launch_linear(draft, w.shape.dtype(), *out);
  }
  return std::nullopt;
}

Refusal plan_grouped_linear(const Step& step, Emitter* out) {
  const Operand &x = step.inputs[0], &w = step.inputs[1], &group = step.inputs[2];
  const Operand& y = step.output;
  const auto* const op = step.op.as<GroupedLinear>();
  if (Refusal refusal = refused_operands(x, w)) return refusal;
  if (op->has_bias && !is_real(step.inputs[3].shape.dtype())) {
    return unsupported(step.inputs[3].shape.dtype());
  }
  if (out == nullptr) return std::nullopt;
  Draft<LinearArgs> draft;
  LinearArgs& args = draft.args;
  args.depth = static_cast<std::uint32_t>(w.shape[2]);
  args.columns = static_cast<std::uint32_t>(w.shape[1]);
  args.rows = static_cast<std::uint32_t>(y.shape.elements() / w.shape[1]);
  args.groups = static_cast<std::uint32_t>(w.shape[0]);
  const int rank = x.shape.rank();
  const std::int64_t wanted = y.shape[rank - 2];
  args.choices = static_cast<std::uint32_t>(x.shape[rank - 2] == wanted ? 1 : wanted);
  args.x_dtype = x.shape.dtype();
  args.y_dtype = y.shape.dtype();
  args.y_step = w.shape[1] * block_bytes(y.shape.dtype());
  draft.address(args.y, y);
  const std::optional<CodeKernels> codes =
      out->options().multiplies_digits ? code_kernels(w.shape.dtype()) : std::nullopt;
  if (args.depth > 0) {
    if (codes) draft.address(args.digits, digits_of(x, *out));
    const Rows x_rows = rows_of(x, *out);
    const Located weights = with_dense_rows(w, *out);
    draft.address(args.x, x_rows.source);
    draft.address(args.w, weights.source);
    args.x_step = x_rows.step;
    args.w_step = weights.operand.strides[1];
    args.w_group_step = weights.operand.strides[0];
  }
  // The groups as a list with one step between them.
  Operand groups = group;
  groups.strides = dense_strides(group.shape);
  Source at = source_of(group);
  if (!group.is_contiguous()) {
    at = out->scratch(group.shape.bytes());
    emit_copy(group, source_of(group), groups, at, *out);
  }
  draft.address(args.group, at);
  args.group_dtype = group.shape.dtype();
  args.group_step = block_bytes(group.shape.dtype());
  if (op->has_bias) {
    set_bias(draft, step.inputs[3]);
    args.bias_group_step = step.inputs[3].strides[0];
  }
  draft.reporter(args.reporter, out->reporter());
  if (codes && args.depth > 0) {
    launch_codes(draft, *codes, 1, *out);
  } else {
    launch_gemv(draft, w.shape.dtype(), 1, *out);
  }
  return std::nullopt;
}

namespace {

/// A matmul operand as [..., rows, columns]: a vector has one row or column more.
struct Matrix {
  std::vector<std::int64_t> batch;
  Strides batch_strides{};
  std::int64_t rows = 1, columns = 1, row_step = 0, column_step = 0;
};
Matrix matrix_of(const Operand& operand, bool is_left) {
  Matrix matrix;
  const int rank = operand.shape.rank();
  const auto stride = [&](int axis) { return operand.strides[static_cast<std::size_t>(axis)]; };
  if (rank == 1) {
    (is_left ? matrix.columns : matrix.rows) = operand.shape[0];
    (is_left ? matrix.column_step : matrix.row_step) = stride(0);
    return matrix;
  }
  matrix.rows = operand.shape[rank - 2];
  matrix.columns = operand.shape[rank - 1];
  matrix.row_step = stride(rank - 2);
  matrix.column_step = stride(rank - 1);
  for (int axis = 0; axis < rank - 2; ++axis) {
    matrix.batch.push_back(operand.shape[axis]);
    matrix.batch_strides[static_cast<std::size_t>(axis)] = stride(axis);
  }
  return matrix;
}

/// Strides of a batch that is broadcast to `sizes`.
Strides batch_strides(const Matrix& matrix, const std::vector<std::int64_t>& sizes) {
  Strides strides{};
  const std::size_t missing = sizes.size() - matrix.batch.size();
  for (std::size_t i = 0; i < matrix.batch.size(); ++i) {
    strides[missing + i] = matrix.batch[i] == 1 ? 0 : matrix.batch_strides[i];
  }
  return strides;
}

bool is_code(const Operand& operand) {
  return operand.shape.dtype() == DType::i8 || operand.shape.dtype() == DType::u8;
}

void emit_matmul(const Step& step, bool is_whole, Emitter& out) {
  const Operand &a = step.inputs[0], &b = step.inputs[1], &c = step.output;
  const Matrix left = matrix_of(a, true), right = matrix_of(b, false);
  // The output lacks the axes that vectors do not have.
  const bool has_rows = a.shape.rank() > 1, has_columns = b.shape.rank() > 1;
  const int batch_rank = c.shape.rank() - int{has_rows} - int{has_columns};
  std::vector<std::int64_t> sizes(c.shape.dims().begin(), c.shape.dims().begin() + batch_rank);
  const MergedAxes batch =
      merged(sizes, {batch_strides(left, sizes), batch_strides(right, sizes), c.strides});
  Draft<MatmulArgs> draft;
  MatmulArgs& args = draft.args;
  args.batch = batch.axes;
  Array* const arrays[] = {&args.a, &args.b, &args.c};
  const Operand* const operands[] = {&a, &b, &c};
  for (std::size_t i = 0; i < 3; ++i) {
    set_array(draft, *arrays[i], *operands[i]);
    arrays[i]->steps = batch.steps[i];
  }
  const auto stride = [&](int axis) { return c.strides[static_cast<std::size_t>(axis)]; };
  args.rows = static_cast<std::uint32_t>(left.rows);
  args.depth = static_cast<std::uint32_t>(left.columns);
  args.columns = static_cast<std::uint32_t>(right.columns);
  args.a_row = left.row_step;
  args.a_depth = left.column_step;
  args.b_depth = right.row_step;
  args.b_column = right.column_step;
  args.c_row = has_rows ? stride(batch_rank) : 0;
  args.c_column = has_columns ? stride(c.shape.rank() - 1) : 0;
  if (is_whole) {
    if (step.inputs.size() > 2) set_zero_point(draft, args.a_zero, step.inputs[2]);
    if (step.inputs.size() > 3) set_zero_point(draft, args.b_zero, step.inputs[3]);
    if (is_code(a) && is_code(b) && c.shape.dtype() != DType::i64) {
      const std::uint64_t tiles =
          ceil_div(args.columns, tensor_tile) * ceil_div(args.rows, tensor_tile);
      out.launch(Kernel::matmul_codes,
                 {static_cast<unsigned>(tiles * args.batch.count), tensor_threads}, draft);
      return;
    }
    out.launch(Kernel::matmul_integer, grid_of(static_cast<std::uint64_t>(c.shape.elements())),
               draft);
    return;
  }
  const std::uint64_t tiles = ceil_div(args.columns, tile_columns) * ceil_div(args.rows, tile_rows);
  out.launch(Kernel::matmul_real, {static_cast<unsigned>(tiles * args.batch.count), tile_threads},
             draft);
}

}  // namespace

Refusal plan_matmul(const Step& step, Emitter* out) {
  const DType dtype = step.inputs[0].shape.dtype();
  if (!is_real(dtype) && !is_whole(dtype)) return unsupported(dtype);
  if (out == nullptr || plan_library_matmul(step, *out)) return std::nullopt;
  emit_matmul(step, is_whole(dtype), *out);
  return std::nullopt;
}

Refusal plan_matmul_integer(const Step& step, Emitter* out) {
  if (out != nullptr) emit_matmul(step, true, *out);
  return std::nullopt;
}

}  // namespace tenon::cuda
