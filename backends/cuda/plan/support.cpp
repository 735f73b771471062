#include "plan/planners.hpp"

#include <tenon/error.hpp>

#include <algorithm>

#include <fmt/format.h>

namespace tenon::cuda {

bool is_real(DType dtype) noexcept {
  return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16;
}
bool is_whole(DType dtype) noexcept { return is_integer(dtype) || dtype == DType::boolean; }

std::string unsupported(DType dtype) {
  return fmt::format("{}: kernels compute in f32 and i64", name(dtype));
}

Refusal refused_type(DType dtype) {
  return is_real(dtype) || is_whole(dtype) ? Refusal() : unsupported(dtype);
}

Refusal all_real(const Step& step) { return all_real_but(step, step.inputs.size()); }

Refusal all_real_but(const Step& step, std::size_t input) {
  for (std::size_t i = 0; i < step.inputs.size(); ++i) {
    const DType dtype = step.inputs[i].shape.dtype();
    if (i != input && !is_real(dtype)) return unsupported(dtype);
  }
  return std::nullopt;
}

Strides broadcast_strides(const Operand& operand, const Shape& shape) {
  Strides strides{};
  const int missing = shape.rank() - operand.shape.rank();
  for (int axis = missing; axis < shape.rank(); ++axis) {
    const auto own = static_cast<std::size_t>(axis - missing);
    const bool repeats = operand.shape[axis - missing] == 1;
    strides[static_cast<std::size_t>(axis)] = repeats ? 0 : operand.strides[own];
  }
  return strides;
}

MergedAxes merged(std::span<const std::int64_t> sizes, const std::vector<Strides>& strides) {
  MergedAxes result;
  result.steps.resize(strides.size());
  Axes& axes = result.axes;
  axes.count = 1;
  for (std::size_t axis = 0; axis < sizes.size(); ++axis) {
    const auto size = static_cast<std::uint32_t>(sizes[axis]);
    axes.count *= size;
    if (size == 1) continue;
    const auto last = static_cast<std::size_t>(axes.rank - 1);
    bool is_one = axes.rank > 0;
    for (std::size_t i = 0; i < strides.size() && is_one; ++i) {
      is_one = result.steps[i].bytes[last] == sizes[axis] * strides[i][axis];
    }
    if (is_one) {
      axes.sizes[last] *= size;
    } else {
      axes.sizes[axes.rank++] = size;
    }
    const auto at = static_cast<std::size_t>(axes.rank - 1);
    for (std::size_t i = 0; i < strides.size(); ++i) result.steps[i].bytes[at] = strides[i][axis];
  }
  return result;
}

MergedAxes lanes_along(std::size_t axis, std::initializer_list<const Operand*> operands) {
  std::vector<std::int64_t> sizes;
  std::vector<Strides> strides(operands.size());
  const Shape& shape = (*operands.begin())->shape;
  for (std::size_t i = 0; i < static_cast<std::size_t>(shape.rank()); ++i) {
    if (i == axis) continue;
    std::size_t number = 0;
    for (const Operand* operand : operands) strides[number++][sizes.size()] = operand->strides[i];
    sizes.push_back(shape.dims()[i]);
  }
  return merged(sizes, strides);
}

Grid grid_of(std::uint64_t threads) {
  constexpr std::uint64_t of_block = 256, most_blocks = 65535;
  const std::uint64_t blocks = (threads + of_block - 1) / of_block;
  return {static_cast<unsigned>(std::clamp<std::uint64_t>(blocks, 1, most_blocks)), of_block};
}

Grid blocks_of(std::uint64_t blocks, std::uint64_t row_length) {
  constexpr std::uint64_t most_blocks = 65535;
  const unsigned threads = row_length <= 64 ? 32 : row_length <= 1024 ? 128 : 256;
  return {static_cast<unsigned>(std::clamp<std::uint64_t>(blocks, 1, most_blocks)), threads};
}

Source source_of(const Operand& operand) { return {Source::Kind::operand, operand.place, 0}; }

void emit_copy(const Operand& from, const Source& from_source, const Operand& to,
               const Source& to_source, Emitter& out) {
  const DType dtype = from.shape.dtype();
  std::vector<std::int64_t> sizes(from.shape.dims().begin(), from.shape.dims().end());
  if (is_block(dtype) && !sizes.empty()) sizes.back() /= block_size(dtype);
  Draft<CopyArgs> draft;
  const MergedAxes axes = merged(sizes, {from.strides, to.strides});
  if (axes.axes.count == 0) return;
  draft.args.axes = axes.axes;
  draft.address(draft.args.x.data, from_source);
  draft.address(draft.args.y.data, to_source);
  draft.args.x.steps = axes.steps[0];
  draft.args.y.steps = axes.steps[1];
  draft.args.x.dtype = draft.args.y.dtype = dtype;
  draft.args.bytes = static_cast<std::uint32_t>(block_bytes(dtype));
  out.launch(Kernel::copy, grid_of(axes.axes.count), draft);
}

Located located(const Operand& operand) { return {operand, source_of(operand)}; }

Located sums_for(const Operand& y, Emitter& out) {
  if (y.shape.dtype() == f32) return located(y);
  Located sums{y, {}};
  sums.operand.shape = y.shape.with_dtype(f32);
  sums.operand.strides = dense_strides(sums.operand.shape);
  sums.source = out.scratch(sums.operand.shape.bytes());
  return sums;
}

void emit_cast(const Located& from, const Located& to, Emitter& out) {
  Draft<PointArgs> draft;
  draft.args.axes = axes_of(to.operand.shape);
  set_located(draft, draft.args.y, to);
  set_located(draft, draft.args.a, from);
  out.launch(Kernel::cast, grid_of(draft.args.axes.count), draft);
}

Axes axes_of(const Shape& shape) {
  Axes axes{};
  axes.rank = shape.rank();
  axes.count = static_cast<std::uint32_t>(shape.elements());
  for (int i = 0; i < shape.rank(); ++i) axes.sizes[i] = static_cast<std::uint32_t>(shape[i]);
  return axes;
}

void emit_fill(const Operand& y, const Source& y_source, const std::array<std::uint8_t, 8>& value,
               Emitter& out) {
  const MergedAxes axes = merged(y.shape.dims(), {y.strides});
  Draft<FillArgs> draft;
  draft.args.axes = axes.axes;
  draft.address(draft.args.y.data, y_source);
  draft.args.y.steps = axes.steps[0];
  draft.args.y.dtype = y.shape.dtype();
  draft.args.bytes = static_cast<std::uint32_t>(block_bytes(y.shape.dtype()));
  std::ranges::copy(value, draft.args.value);
  out.launch(Kernel::fill, grid_of(axes.axes.count), draft);
}

bool has_dense_rows(const Operand& operand) {
  const int rank = operand.shape.rank();
  return rank == 0 || operand.shape[rank - 1] <= block_size(operand.shape.dtype()) ||
         operand.strides[static_cast<std::size_t>(rank - 1)] == block_bytes(operand.shape.dtype());
}

Located with_dense_rows(const Operand& operand, Emitter& out) {
  if (has_dense_rows(operand)) return {operand, source_of(operand)};
  Operand dense = operand;
  dense.strides = dense_strides(operand.shape);
  const Source place = out.scratch(operand.shape.bytes());
  emit_copy(operand, source_of(operand), dense, place, out);
  return {dense, place};
}

#define TENON_CUDA_WEIGHTS(id, Type)                                                     \
  case DType::id:                                                                        \
    return WeightKernels{Kernel::gemv_##id, Kernel::gemv_rows_##id, Kernel::linear_##id, \
                         Kernel::embedding_##id};
std::optional<WeightKernels> weight_kernels(DType dtype) {
  switch (dtype) {
#include "kernels/weight_types.def"
    default:
      return std::nullopt;
  }
}
#undef TENON_CUDA_WEIGHTS
#define TENON_CUDA_KEYS(id, Type) \
  case DType::id:                 \
    return Kernel::attention_##id;
std::optional<Kernel> attention_kernel(DType dtype) {
  switch (dtype) {
#include "kernels/key_types.def"
    default:
      return std::nullopt;
  }
}
#undef TENON_CUDA_KEYS
#define TENON_CUDA_TENSOR(id, Type)                                               \
  case DType::id:                                                                 \
    return TensorKernels{Kernel::linear_tensor_##id, Kernel::linear_rounded_##id, \
                         Kernel::round_##id};
std::optional<TensorKernels> tensor_kernels(DType dtype) {
  switch (dtype) {
#include "kernels/tensor_types.def"
    default:
      return std::nullopt;
  }
}
#undef TENON_CUDA_TENSOR
#define TENON_CUDA_CODES(id, Type) \
  case DType::id:                  \
    return CodeKernels{Kernel::gemv_codes_##id, Kernel::gemv_codes_rows_##id};
std::optional<CodeKernels> code_kernels(DType dtype) {
  switch (dtype) {
#include "kernels/code_types.def"
    default:
      return std::nullopt;
  }
}
#undef TENON_CUDA_CODES

}  // namespace tenon::cuda
