// Rows that are gathered and summed, as embedding bags are, without the gathered rows in between.
#pragma once

#include <tenon/lowered.hpp>
#include <tenon/ops/gather.hpp>
#include <tenon/ops/reduce.hpp>

#include <span>
#include <string_view>
#include <vector>

namespace tenon {

/// The sums, or means, of gathered slices along the last axis of the index: y[i.., ..] = sum over l of x[index[i.., l], ..].
/// Made by cpu::merge_gathered_sums, never by a program; no op of the registry. Inputs are those of gather.
struct GatheredSum {
  static constexpr std::string_view name = "gathered_sum";
  static constexpr int min_inputs = 2, max_inputs = 2;
  Gather gather;
  Sum sum;
  bool is_mean = false;
  static constexpr auto fields = FieldList{};

  Shape infer(std::span<const Shape> in) const;
};
TENON_DECLARE_OP(GatheredSum);

namespace cpu {

/// Merges each gather along the first axis with the sum or mean of its slices, where nothing else reads them. `own` are
/// the steps to change; see for_each_body.
void merge_gathered_sums(const Lowered& program, std::span<const Step> steps,
                         std::vector<Step>& own);

}  // namespace cpu
}  // namespace tenon
