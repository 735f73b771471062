// Element-wise steps in a row as one step: what they hand on stays in blocks of L1.
#pragma once

#include <tenon/lowered.hpp>
#include <tenon/op.hpp>

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace tenon {
namespace cpu {

/// The steps that one FusedPoints stands for.
struct PointGroup {
  static constexpr std::size_t max_members = 8, max_inputs = 16;

  /// An operand of a member: the result of a member before it, or an input of the fused step.
  struct Source {
    bool is_member;
    std::size_t index;
  };
  struct Member {
    OpInstance op;
    std::vector<Source> sources;
    Operand output;  ///< dense; nobody else reads it, but for the last one's
  };
  std::vector<Member> members;  ///< all of the same sizes; the last one's result is the step's
};

}  // namespace cpu

/// Element-wise steps as one. Made by cpu::fuse_points, never by a program; no op of the registry.
/// Its inputs are those that no member makes. The bits are those of the single steps.
struct FusedPoints {
  static constexpr std::string_view name = "fused_points";
  static constexpr int min_inputs = 1, max_inputs = cpu::PointGroup::max_inputs;
  static constexpr OpTraits traits{.pointwise = true};
  const cpu::PointGroup* group = nullptr;
  static constexpr FieldList<> fields{};

  Shape infer(std::span<const Shape> in) const;
};
TENON_DECLARE_OP(FusedPoints);

namespace cpu {

/// Merges element-wise steps whose results only other such steps of the same sizes read with those.
/// The ops of the merged steps refer to the groups returned, which are the caller's to keep. `own`
/// are the steps to change; see for_each_body.
std::vector<std::unique_ptr<const PointGroup>> fuse_points(const Lowered& program,
                                                           std::span<const Step> steps,
                                                           std::vector<Step>& own);

}  // namespace cpu
}  // namespace tenon
