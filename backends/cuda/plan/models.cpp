// What language models have besides products: attention, positions, caches, tables.
#include "kernels/block_sizes.hpp"
#include "plan/heads.hpp"
#include "plan/planners.hpp"

#include <tenon/ops.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include <fmt/format.h>

namespace tenon::cuda {
namespace {

template <std::size_t count>
void set_steps(std::int64_t (&steps)[count], const Operand& operand) {
  for (std::size_t i = 0; i < count; ++i) steps[i] = operand.strides[i];
}

/// The stride of an axis, 0 where the operand is the same along it.
std::int64_t step_of(const Operand& operand, int axis) {
  return axis < operand.shape.rank() ? operand.strides[static_cast<std::size_t>(axis)] : 0;
}

/// The blocks of attention that is not computed in tensor cores.
Grid set_blocks(Draft<AttentionArgs>& draft, Emitter& out) {
  AttentionArgs& args = draft.args;
  const std::uint32_t of_key_head = args.heads / args.key_heads;
  args.row_groups = (of_key_head + attention_rows - 1) / attention_rows;
  args.rows = (of_key_head + args.row_groups - 1) / args.row_groups;
  const std::uint32_t eights = (std::max(args.depth, args.value_depth) + 7) / 8;
  args.lane_bits =
      std::max(3U, static_cast<std::uint32_t>(std::bit_width(std::max(eights, 1U) - 1)));
  args.splits = 1;
  const std::uint32_t groups = args.batch * args.queries * args.key_heads * args.row_groups;
  if (args.queries <= max_split_queries) {
    args.splits = std::clamp((args.keys + split_step - 1) / split_step, 1U, max_splits);
  }
  if (args.splits > 1) {
    args.partial_fours = 1 + (args.value_depth + 3) / 4;
    const std::int64_t rows = std::int64_t{args.batch} * args.queries * args.heads;
    const std::int64_t floats = rows * args.splits * args.partial_fours * 4;
    draft.address(args.partial, out.scratch(floats * static_cast<std::int64_t>(sizeof(float))));
    draft.address(args.tickets, out.tickets(groups));
  }
  return {groups * args.splits, attention_threads};
}

/// Attention in tensor cores: its kernel, and the size of heads that it is made for.
struct TensorAttention {
  Kernel kernel;
  std::uint32_t size;
};
std::optional<TensorAttention> tensor_attention(const AttentionArgs& args, DType keys,
                                                bool is_exact) {
  if (is_exact || args.queries <= max_split_queries) return std::nullopt;
  if (keys != DType::f16 && keys != DType::bf16) return std::nullopt;
  const bool is_half = keys == DType::f16;
  if (std::max(args.depth, args.value_depth) <= short_head) {
    return TensorAttention{is_half ? Kernel::attention_tensor_f16 : Kernel::attention_tensor_bf16,
                           short_head};
  }
  return TensorAttention{
      is_half ? Kernel::attention_tensor_long_f16 : Kernel::attention_tensor_long_bf16, max_head};
}

/// Heads whose keys and values stay in the L2 cache, all queries of a key's head among them.
std::uint32_t group_heads(const AttentionArgs& args) {
  const std::uint64_t bytes = std::uint64_t{2} * args.keys * (args.depth + args.value_depth);
  const std::uint64_t key_heads =
      std::max<std::uint64_t>(1, tensor_group_bytes / std::max<std::uint64_t>(1, bytes));
  const std::uint64_t heads =
      std::min<std::uint64_t>(key_heads * (args.heads / std::max(1u, args.key_heads)),
                              std::uint64_t{args.batch} * args.heads);
  return static_cast<std::uint32_t>(heads);
}

template <class Args>
void set_rope(Draft<Args>& draft, RopeArgs& args, const Step& step, Emitter& out) {
  const auto* const op = step.op.as<Rope>();
  const Operand &x = step.inputs[0], &positions = step.inputs[1];
  const std::int64_t rotated = op->dims == 0 ? x.shape[3] : op->dims;
  for (std::size_t i = 0; i < 3; ++i) {
    args.heads.sizes[i] = static_cast<std::uint32_t>(x.shape.dims()[i]);
    args.x.steps.bytes[i] = x.strides[i];
    args.y.steps.bytes[i] = step.output.strides[i];
  }
  args.heads.rank = 3;
  args.heads.count = args.heads.sizes[0] * args.heads.sizes[1] * args.heads.sizes[2];
  draft.address(args.x.data, x);
  draft.address(args.y.data, step.output);
  args.x.dtype = args.y.dtype = x.shape.dtype();
  args.x_step = x.strides[3];
  args.y_step = step.output.strides[3];
  draft.address(args.positions, positions);
  const bool has_sections = !op->sections.empty();
  const int rank = positions.shape.rank();
  const bool has_batch = rank == (has_sections ? 3 : 2);
  args.position_steps[0] = has_batch ? step_of(positions, 0) : 0;
  args.position_steps[1] = has_sections ? step_of(positions, rank - 2) : 0;
  args.position_steps[2] = step_of(positions, rank - 1);
  draft.address(args.frequencies, out.data_of(op->frequencies(rotated)));
  draft.address(args.sections, out.data_of(op->section_of_pairs(rotated / 2)));
  if (op->has_freq_factors) {
    draft.address(args.factors, step.inputs[2]);
    args.factor_step = step.inputs[2].strides[0];
  }
  args.pairs = static_cast<std::uint32_t>(rotated / 2);
  args.depth = static_cast<std::uint32_t>(x.shape[3]);
  args.magnitude = static_cast<float>(op->magnitude());
  args.is_interleaved = op->interleaved;
}
std::uint64_t parts_of(const RopeArgs& args) {
  const std::uint32_t groups = (args.heads.sizes[2] + rope_heads - 1) / rope_heads;
  return std::uint64_t{args.heads.sizes[0]} * args.heads.sizes[1] * groups *
         (args.depth - args.pairs);
}
/// Of a cache of a plain type.
std::uint64_t parts_of(const CacheArgs& args) {
  return std::uint64_t{args.axes.sizes[0]} * args.axes.sizes[1] * args.axes.sizes[2] *
         ((args.axes.sizes[3] + 7) / 8);
}

template <class Args>
void set_cache_update(Draft<Args>& draft, CacheArgs& args, const Step& step, Emitter& out) {
  const Operand &x = step.inputs[2], &cache = step.output;
  const DType dtype = cache.shape.dtype();
  args.axes.rank = 4;
  args.axes.count = 1;
  for (std::size_t i = 0; i < 4; ++i) {
    args.axes.sizes[i] = static_cast<std::uint32_t>(x.shape.dims()[i]);
    args.x.steps.bytes[i] = x.strides[i];
  }
  if (is_block(dtype)) {
    args.axes.sizes[3] /= 32;
    args.x.steps.bytes[3] *= 32;
    args.x.steps.bytes[4] = x.strides[3];
  }
  for (int i = 0; i < 4; ++i) args.axes.count *= args.axes.sizes[i];
  for (std::size_t i = 0; i < 5; ++i) args.cache.steps.bytes[i] = cache.strides[i];
  args.x.dtype = x.shape.dtype();
  args.cache.dtype = dtype;
  draft.address(args.x.data, x);
  draft.address(args.cache.data, cache);
  draft.address(args.layer, step.inputs[1]);
  draft.address(args.position, step.inputs[3]);
  args.position_step = step_of(step.inputs[3], 0);
  args.layers = static_cast<std::uint32_t>(cache.shape[0]);
  args.rows_or_pages = static_cast<std::uint32_t>(cache.shape[1]);
  args.page_size = static_cast<std::uint32_t>(cache.shape[3]);
  args.pages_per_row = 1;
  if (step.op.as<CacheUpdate>()->has_table) {
    draft.address(args.table, step.inputs[4]);
    set_steps(args.table_steps, step.inputs[4]);
    args.pages_per_row = static_cast<std::uint32_t>(step.inputs[4].shape[1]);
  }
  draft.reporter(args.reporter, out.reporter(step));
}

}  // namespace

Refusal plan_attention(const Step& step, Emitter* out) {
  const auto* const op = step.op.as<Attention>();
  const Operand &q = step.inputs[0], &k = step.inputs[1], &v = step.inputs[2];
  if (!is_real(q.shape.dtype())) return unsupported(q.shape.dtype());
  const std::optional<Kernel> kernel = attention_kernel(k.shape.dtype());
  if (!kernel) return fmt::format("keys of {}: no kernel reads that type", name(k.shape.dtype()));
  if (q.shape[3] > max_head || v.shape[3] > max_head) {
    return fmt::format("heads of more than {} elements", max_head);
  }
  const std::int64_t keys = op->key_count(step.inputs);
  if (keys > std::numeric_limits<std::int32_t>::max()) return fmt::format("{} keys", keys);
  if (out == nullptr) return std::nullopt;
  Draft<AttentionArgs> draft;
  AttentionArgs& args = draft.args;
  const Located query = with_dense_rows(q, *out), key = with_dense_rows(k, *out),
                value = with_dense_rows(v, *out);
  draft.address(args.q, query.source);
  draft.address(args.k, key.source);
  draft.address(args.v, value.source);
  draft.address(args.y, step.output);
  set_steps(args.q_steps, query.operand);
  set_steps(args.k_steps, key.operand);
  set_steps(args.v_steps, value.operand);
  set_steps(args.y_steps, step.output);
  args.dtype = q.shape.dtype();
  args.batch = static_cast<std::uint32_t>(q.shape[0]);
  args.queries = static_cast<std::uint32_t>(q.shape[1]);
  args.heads = static_cast<std::uint32_t>(q.shape[2]);
  args.depth = static_cast<std::uint32_t>(q.shape[3]);
  args.keys = static_cast<std::uint32_t>(keys);
  args.key_heads = static_cast<std::uint32_t>(k.shape[2]);
  args.value_depth = static_cast<std::uint32_t>(v.shape[3]);
  const bool is_given = op->scale != 0 || q.shape[3] == 0;
  args.scale =
      static_cast<float>(is_given ? op->scale : 1 / std::sqrt(static_cast<double>(q.shape[3])));
  args.softcap = static_cast<float>(op->softcap);
  // Larger windows see everything.
  args.window = std::min<std::int64_t>(op->window, keys + q.shape[1] + 1);
  args.causal = op->causal;
  if (op->has_position) {
    draft.address(args.position, step.inputs[3]);
    args.position_step = step_of(step.inputs[3], 0);
  }
  if (op->has_position || op->has_table) draft.reporter(args.reporter, out->reporter());
  if (op->has_mask) {
    const Operand& mask = step.inputs[op->mask_index()];
    draft.address(args.mask, mask);
    const Shape scores({q.shape[0], q.shape[2], q.shape[1], keys}, f32);
    const Strides strides = broadcast_strides(mask, scores);
    std::copy_n(strides.begin(), 4, args.mask_steps);
  }
  if (op->has_sinks) {
    draft.address(args.sinks, step.inputs[op->sinks_index()]);
    args.sinks_step = step.inputs[op->sinks_index()].strides[0];
  }
  if (op->has_table) {
    draft.address(args.table, step.inputs[op->table_index()]);
    set_steps(args.table_steps, step.inputs[op->table_index()]);
    args.pages = static_cast<std::uint32_t>(k.shape[0]);
    args.page_size = static_cast<std::uint32_t>(k.shape[1]);
  }
  if (const auto tensor = tensor_attention(args, k.shape.dtype(), out->options().is_exact)) {
    args.group_heads = group_heads(args);
    const std::uint32_t queries = tensor_query_elements / tensor->size;
    const std::uint32_t tiles = (args.queries + queries - 1) / queries;
    out->launch(tensor->kernel, {args.batch * args.heads * tiles, tensor_attention_threads}, draft);
    return std::nullopt;
  }
  const Grid grid = set_blocks(draft, *out);
  out->launch(*kernel, grid, draft);
  return std::nullopt;
}

Refusal plan_rope(const Step& step, Emitter* out) {
  const Operand& x = step.inputs[0];
  if (!is_real(x.shape.dtype())) return unsupported(x.shape.dtype());
  if (out == nullptr) return std::nullopt;
  Draft<RopeArgs> draft;
  set_rope(draft, draft.args, step, *out);
  out->launch(Kernel::rope, grid_of(parts_of(draft.args)), draft);
  return std::nullopt;
}

Refusal plan_cache_update(const Step& step, Emitter* out) {
  const Operand &old = step.inputs[0], &x = step.inputs[2], &cache = step.output;
  const DType dtype = cache.shape.dtype();
  if (!is_real(x.shape.dtype())) return unsupported(x.shape.dtype());
  if (!is_real(dtype) && dtype != DType::q8_0) {
    return fmt::format("a cache of {}: no kernel writes that type", name(dtype));
  }
  if (out == nullptr) return std::nullopt;
  if (!(old.place == cache.place)) emit_copy(old, source_of(old), cache, source_of(cache), *out);
  Draft<CacheArgs> draft;
  set_cache_update(draft, draft.args, step, *out);
  if (is_block(dtype)) {
    out->launch(Kernel::cache_update_q8_0, grid_of(draft.args.axes.count), draft);
  } else {
    out->launch(Kernel::cache_update, grid_of(parts_of(draft.args)), draft);
  }
  return std::nullopt;
}

Refusal plan_heads_into_cache(const Step& step, Emitter* out) {
  if (out == nullptr) return std::nullopt;
  const HeadSteps& heads = *step.op.as<HeadsIntoCache>()->steps;
  Draft<HeadsArgs> draft;
  HeadsArgs& args = draft.args;
  set_rope(draft, args.queries, heads.queries, *out);
  set_rope(draft, args.keys, heads.keys, *out);
  set_cache_update(draft, args.key_cache, heads.key_cache, *out);
  set_cache_update(draft, args.value_cache, heads.value_cache, *out);
  out->launch(Kernel::heads_into_cache,
              grid_of(parts_of(args.queries) + parts_of(args.keys) + parts_of(args.value_cache)),
              draft);
  return std::nullopt;
}

Refusal plan_embedding(const Step& step, Emitter* out) {
  const Operand &ids = step.inputs[0], &table = step.inputs[1], &y = step.output;
  const std::optional<WeightKernels> kernels = weight_kernels(table.shape.dtype());
  if (!kernels) {
    return fmt::format("a table of {}: no kernel reads that type", name(table.shape.dtype()));
  }
  if (!is_real(y.shape.dtype())) return unsupported(y.shape.dtype());
  if (out == nullptr) return std::nullopt;
  Draft<EmbeddingArgs> draft;
  EmbeddingArgs& args = draft.args;
  const Located rows = with_dense_rows(table, *out);
  const MergedAxes axes = merged(ids.shape.dims(), {ids.strides, y.strides});
  args.axes = axes.axes;
  draft.address(args.ids.data, ids);
  draft.address(args.y.data, y);
  draft.address(args.table, rows.source);
  args.ids.steps = axes.steps[0];
  args.y.steps = axes.steps[1];
  args.ids.dtype = ids.shape.dtype();
  args.y.dtype = y.shape.dtype();
  args.row_step = rows.operand.strides[0];
  args.y_step = y.strides[static_cast<std::size_t>(y.shape.rank() - 1)];
  args.rows = table.shape[0];
  args.depth = static_cast<std::uint32_t>(table.shape[1]);
  draft.reporter(args.reporter, out->reporter());
  out->launch(kernels->embedding, grid_of(std::uint64_t{args.axes.count} * ((args.depth + 7) / 8)),
              draft);
  return std::nullopt;
}

void emit_decoded(const Rows& rows, DType dtype, std::int64_t count, std::int64_t depth,
                  const Source& to, DType to_dtype, Emitter& out) {
  Draft<EmbeddingArgs> draft;
  EmbeddingArgs& args = draft.args;
  args.axes.rank = 1;
  args.axes.sizes[0] = args.axes.count = static_cast<std::uint32_t>(count);
  draft.address(args.table, rows.source);
  draft.address(args.y.data, to);
  args.y.dtype = to_dtype;
  args.y_step = block_bytes(to_dtype);
  args.y.steps.bytes[0] = depth * args.y_step;
  args.row_step = rows.step;
  args.rows = count;
  args.depth = static_cast<std::uint32_t>(depth);
  out.launch(weight_kernels(dtype)->embedding,
             grid_of(static_cast<std::uint64_t>(count * ((depth + 7) / 8))), draft);
}

Refusal plan_dequantize(const Step& step, Emitter* out) {
  const Operand &x = step.inputs[0], &y = step.output;
  const std::optional<WeightKernels> kernels = weight_kernels(x.shape.dtype());
  if (!kernels) return fmt::format("{}: no kernel reads that type", name(x.shape.dtype()));
  if (!is_real(y.shape.dtype())) return unsupported(y.shape.dtype());
  if (out == nullptr) return std::nullopt;
  Located dense{x, source_of(x)};
  if (!x.is_contiguous()) {
    dense.operand.strides = dense_strides(x.shape);
    dense.source = out->scratch(x.shape.bytes());
    emit_copy(x, source_of(x), dense.operand, dense.source, *out);
  }
  const std::int64_t depth = x.shape[x.shape.rank() - 1], rows = x.shape.elements() / depth;
  emit_decoded({dense.source, x.shape.bytes() / rows}, x.shape.dtype(), rows, depth, source_of(y),
               y.shape.dtype(), *out);
  return std::nullopt;
}

}  // namespace tenon::cuda
