#pragma once

#include "../elementwise/unary_of.hpp"

#include <tenon/lowered.hpp>
#include <tenon/ops/arg_reduce.hpp>
#include <tenon/ops/linear.hpp>

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace tenon {

/// A linear layer and the activation after it: y = f(x W^T + bias + residual). Made by
/// cpu::merge_linears, never by a program; no op of the registry. Inputs are those of linear.
struct MergedLinear {
  static constexpr std::string_view name = "merged_linear";
  static constexpr int min_inputs = 2, max_inputs = 4;
  Linear linear;
  cpu::UnaryCall activation;
  static constexpr auto fields = FieldList{};

  Shape infer(std::span<const Shape> in) const;
};
TENON_DECLARE_OP(MergedLinear);

/// A linear layer and the argmax after it: the index of the greatest among the first `columns`
/// elements of each row of x W^T + bias + residual, which is never stored as a whole. Made and used
/// like MergedLinear.
struct LinearArgmax {
  static constexpr std::string_view name = "linear_argmax";
  static constexpr int min_inputs = 2, max_inputs = 4;
  /// Up to so many rows; for more it is faster to divide the rows among threads.
  static constexpr std::int64_t max_rows = 64;
  Linear linear;
  Argmax argmax;
  std::int64_t columns = 0;
  static constexpr auto fields = FieldList{};

  Shape infer(std::span<const Shape> in) const;
};
TENON_DECLARE_OP(LinearArgmax);

namespace cpu {

/// Merges each linear layer with the activation or the argmax after it, where nothing else reads
/// its result. `own` are the steps to change; see for_each_body.
void merge_linears(const Lowered& program, std::span<const Step> steps, std::vector<Step>& own);

}  // namespace cpu
}  // namespace tenon
