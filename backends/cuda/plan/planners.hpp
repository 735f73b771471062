// The planners that kernels.def names, and what they share.
#pragma once

#include "plan/launch.hpp"

#include <tenon/lowered.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

namespace tenon::cuda {

using Refusal = std::optional<std::string>;
/// Says why it does not run a step, or, with an emitter, launches it.
using Planner = Refusal (*)(const Step& step, Emitter* out);

#define TENON_CUDA_PLANNER(name) Refusal name(const Step& step, Emitter* out)
TENON_CUDA_PLANNER(plan_point);
TENON_CUDA_PLANNER(plan_fused);
TENON_CUDA_PLANNER(plan_quantize_linear);
TENON_CUDA_PLANNER(plan_dequantize_linear);
TENON_CUDA_PLANNER(plan_reduce);
TENON_CUDA_PLANNER(plan_arg_reduce);
TENON_CUDA_PLANNER(plan_rank);
TENON_CUDA_PLANNER(plan_scan);
TENON_CUDA_PLANNER(plan_scatter);
TENON_CUDA_PLANNER(plan_searchsorted);
TENON_CUDA_PLANNER(plan_softmax);
TENON_CUDA_PLANNER(plan_norm);
TENON_CUDA_PLANNER(plan_group_norm);
TENON_CUDA_PLANNER(plan_matmul);
TENON_CUDA_PLANNER(plan_matmul_integer);
TENON_CUDA_PLANNER(plan_linear);
TENON_CUDA_PLANNER(plan_grouped_linear);
TENON_CUDA_PLANNER(plan_activated_convolution);
TENON_CUDA_PLANNER(plan_attention);
TENON_CUDA_PLANNER(plan_rope);
TENON_CUDA_PLANNER(plan_cache_update);
TENON_CUDA_PLANNER(plan_heads_into_cache);
TENON_CUDA_PLANNER(plan_embedding);
TENON_CUDA_PLANNER(plan_dequantize);
TENON_CUDA_PLANNER(plan_conv2d);
TENON_CUDA_PLANNER(plan_conv2d_integer);
TENON_CUDA_PLANNER(plan_conv_transpose2d);
TENON_CUDA_PLANNER(plan_conv2d_filter_backward);
TENON_CUDA_PLANNER(plan_pool2d);
TENON_CUDA_PLANNER(plan_pool2d_backward);
TENON_CUDA_PLANNER(plan_unfold2d);
TENON_CUDA_PLANNER(plan_fold2d);
TENON_CUDA_PLANNER(plan_batch_norm);
TENON_CUDA_PLANNER(plan_resize);
TENON_CUDA_PLANNER(plan_resize_backward);
TENON_CUDA_PLANNER(plan_grid_sample);
TENON_CUDA_PLANNER(plan_roi_align);
TENON_CUDA_PLANNER(plan_roi_align_backward);
TENON_CUDA_PLANNER(plan_non_max_suppression);
TENON_CUDA_PLANNER(plan_selective_scan);
TENON_CUDA_PLANNER(plan_wkv7);
TENON_CUDA_PLANNER(plan_fft);
TENON_CUDA_PLANNER(plan_reshape);
TENON_CUDA_PLANNER(plan_gather);
TENON_CUDA_PLANNER(plan_take_along);
TENON_CUDA_PLANNER(plan_select);
TENON_CUDA_PLANNER(plan_update_slice);
TENON_CUDA_PLANNER(plan_concat);
TENON_CUDA_PLANNER(plan_pad);
TENON_CUDA_PLANNER(plan_full);
TENON_CUDA_PLANNER(plan_iota);
TENON_CUDA_PLANNER(plan_random_bits);
TENON_CUDA_PLANNER(plan_copy);
#undef TENON_CUDA_PLANNER

bool is_real(DType dtype) noexcept;   ///< f32, f16 or bf16: computed in f32
bool is_whole(DType dtype) noexcept;  ///< integers but u64, and bool: computed in i64
/// "f64: kernels compute in f32 and i64".
std::string unsupported(DType dtype);
/// The same unless kernels compute with the type; unless all inputs are real.
Refusal refused_type(DType dtype);
Refusal all_real(const Step& step);
Refusal all_real_but(const Step& step, std::size_t input);  ///< without that one

/// Strides of an operand along the axes of `shape`, to which it broadcasts.
Strides broadcast_strides(const Operand& operand, const Shape& shape);

/// The axes of a loop over `sizes`, with those merged that are one in every one of `strides`, and
/// the strides along what is left.
struct MergedAxes {
  Axes axes{};
  std::vector<Steps> steps;
};
MergedAxes merged(std::span<const std::int64_t> sizes, const std::vector<Strides>& strides);

/// The axes of all operands but `axis`, along which lanes lie. The operands have the sizes of the
/// first, but along `axis`, or larger ones.
MergedAxes lanes_along(std::size_t axis, std::initializer_list<const Operand*> operands);

Grid grid_of(std::uint64_t threads);                             ///< a thread per element
Grid blocks_of(std::uint64_t blocks, std::uint64_t row_length);  ///< a block per row

/// What kernels count, in 32 bits.
inline constexpr std::int64_t max_elements = (std::int64_t{1} << 31) - 1;

bool has_dense_rows(const Operand& operand);  ///< whether the last axis is dense

/// An operand, and where it lies.
struct Located {
  Operand operand;
  Source source;
};
/// The operand, or where its last axis is not dense a copy in scratch memory.
Located with_dense_rows(const Operand& operand, Emitter& out);
void emit_copy(const Operand& from, const Source& from_source, const Operand& to,
               const Source& to_source, Emitter& out);
Source source_of(const Operand& operand);
Located located(const Operand& operand);  ///< where it is
/// f32 where sums for y are collected: y itself, or scratch memory.
Located sums_for(const Operand& y, Emitter& out);
void emit_cast(const Located& from, const Located& to, Emitter& out);  ///< of real types

/// The axes of a shape as they are, not merged: for kernels that tell them apart.
Axes axes_of(const Shape& shape);

/// An operand as a kernel sees it, with the strides of its own axes.
template <class Args>
void set_array(Draft<Args>& draft, Array& array, const Operand& operand) {
  draft.address(array.data, operand);
  std::ranges::copy(operand.strides, array.steps.bytes);
  array.dtype = operand.shape.dtype();
}

/// The same of one that may lie elsewhere.
template <class Args>
void set_located(Draft<Args>& draft, Array& array, const Located& located) {
  draft.address(array.data, located.source);
  std::ranges::copy(located.operand.strides, array.steps.bytes);
  array.dtype = located.operand.shape.dtype();
}

/// What is taken off codes: one number, or one for each output.
template <class Args>
void set_zero_point(Draft<Args>& draft, Array& zero, const Operand& operand) {
  set_array(draft, zero, operand);
  if (operand.shape.elements() == 1) zero.steps = {};
}

/// Every element of y: the first bytes of `value`.
void emit_fill(const Operand& y, const Source& y_source, const std::array<std::uint8_t, 8>& value,
               Emitter& out);

/// The kernels that read a type's weights (weight_types.def), and its keys (key_types.def); none for
/// other types.
struct WeightKernels {
  Kernel gemv, gemv_rows, linear, embedding;
};
std::optional<WeightKernels> weight_kernels(DType dtype);
std::optional<Kernel> attention_kernel(DType dtype);
/// Those that multiply weights of the type in tensor cores (tensor_types.def).
struct TensorKernels {
  Kernel of_terms, of_rounded_rows, rounding;
};
std::optional<TensorKernels> tensor_kernels(DType dtype);

/// Those that multiply digits of few rows with codes (code_types.def): of one row, and of several.
struct CodeKernels {
  Kernel of_row, of_rows;
};
std::optional<CodeKernels> code_kernels(DType dtype);

/// Whether a step is a linear layer of few rows that reads digits of this operand, and how many bytes
/// these have.
bool reads_digits(const Step& step, const Operand& x, const Emitter& out);
std::int64_t bytes_of_digits(const Operand& x);

/// Whether f32 rows are rounded to bf16, and multiplied with weights as bf16.
bool rounds_rows(const Operand& x, const Operand& w, const PlanOptions& options);
/// The rows of an operand as a dense array of bf16 in scratch memory. Before other scratch memory of
/// the step.
Source rounded_rows(const Operand& x, Emitter& out);
/// An operand as rows of one stride, copied where it lies otherwise.
struct Rows {
  Source source;
  std::int64_t step;
};
Rows rows_of(const Operand& operand, Emitter& out);
/// `count` rows of `depth` weights as a dense array of `to_dtype`.
void emit_decoded(const Rows& rows, DType dtype, std::int64_t count, std::int64_t depth,
                  const Source& to, DType to_dtype, Emitter& out);
/// `count` rows as a dense array of bf16.
void emit_rounded(const Rows& rows, DType dtype, std::int64_t count, std::int64_t depth,
                  const Source& to, Emitter& out);

}  // namespace tenon::cuda
