#include "fused_points.hpp"

#include "matmul/tiled_values.hpp"
#include "task.hpp"

#include <algorithm>

namespace tenon::cpu {
namespace {

/// Of a member that is stored. Smaller values stay in L2 until they are read again (and the smallest
/// may be recomputed per thread, which no stored member could be).
constexpr std::int64_t min_stored_elements = 1 << 17;

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
  const auto is_large = [](const Step& step) {
    return step.output.shape.elements() >= min_stored_elements;
  };
  return lowering::group_points(program, steps, own,
                                {.is_taken = is_computed_in_blocks, .is_stored = is_large});
}

}  // namespace tenon::cpu
