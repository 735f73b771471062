#include "fused_points.hpp"

#include "matmul/tiled_values.hpp"
#include "recomputed_values.hpp"
#include "task.hpp"

#include <algorithm>

namespace tenon::cpu {
namespace {

bool is_computed_in_blocks(const Step& step) {
  if (is_tiled(step.output) || !step.output.is_contiguous()) return false;
  const Kernel* kernel = kernel_of(step.op.def());
  return kernel != nullptr && kernel->point != nullptr &&
         std::ranges::none_of(step.inputs, is_tiled);
}

}  // namespace

std::vector<std::unique_ptr<const PointGroup>> fuse_points(const Lowered& program,
                                                           std::span<const Step> steps,
                                                           std::vector<Step>& own) {
  // Small values may be recomputed per thread, which no stored member could be.
  const auto is_large = [](const Step& step) {
    return step.output.shape.elements() > max_recomputed_elements;
  };
  return lowering::group_points(program, steps, own,
                                {.is_taken = is_computed_in_blocks, .is_stored = is_large});
}

}  // namespace tenon::cpu
