#pragma once

#include "../elementwise/unary_of.hpp"

#include <tenon/lowered.hpp>
#include <tenon/ops/arg_reduce.hpp>
#include <tenon/ops/linear.hpp>

#include <cstdint>
#include <span>
#include <string_view>
#include <tuple>
#include <vector>

namespace tenon {

/// A linear layer with the activation behind it: y = f(x W^T + bias + residual). Made by
/// cpu::merge_linears, never by a program; no op of the registry. Inputs are those of linear.
struct MergedLinear {
  static constexpr std::string_view name = "merged_linear";
  static constexpr int min_inputs = 2, max_inputs = 4;
  Linear linear;
  cpu::UnaryCall activation;
  static constexpr auto fields = std::tuple{};

  Shape infer(std::span<const Shape> in) const;
};
TENON_DECLARE_OP(MergedLinear);

/// A linear layer with the argmax behind it: where in the first `columns` elements of each row of
/// x W^T + bias + residual the greatest stands. These sums are nowhere stored together. Made and
/// used like MergedLinear.
struct LinearArgmax {
  static constexpr std::string_view name = "linear_argmax";
  static constexpr int min_inputs = 2, max_inputs = 4;
  /// Rows at most: of more, threads better take whole ones.
  static constexpr std::int64_t max_rows = 64;
  Linear linear;
  Argmax argmax;
  std::int64_t columns = 0;
  static constexpr auto fields = std::tuple{};

  Shape infer(std::span<const Shape> in) const;
};
TENON_DECLARE_OP(LinearArgmax);

namespace cpu {

/// Makes one step of each linear layer whose result only the activation or the argmax behind it
/// reads. `own` are the steps to change; see for_each_stretch.
void merge_linears(const Lowered& program, std::span<const Step> steps, std::vector<Step>& own);

}  // namespace cpu
}  // namespace tenon
