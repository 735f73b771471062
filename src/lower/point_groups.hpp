// Element-wise steps in a row as one step: what they hand on need not lie in memory.
#pragma once

#include <tenon/lowered.hpp>
#include <tenon/op.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace tenon {
namespace lowering {

/// The steps that one FusedPoints stands for.
struct PointGroup {
  static constexpr std::size_t max_members = 16, max_inputs = 24;

  /// An operand of a member: the result of a member before it, or an input of the fused step.
  struct Source {
    bool is_member;
    std::size_t index;
  };
  struct Member {
    OpInstance op;
    std::vector<Source> sources;
    Operand output;
    bool is_stored = false;  ///< others read it, too; always true of the last one
  };
  std::vector<Member> members;  ///< all of the same sizes; the last one's result is the step's

  /// Member `index` as a step of its own. `inputs`: of the fused step.
  Step step_of(std::size_t index, std::span<const Operand> inputs) const;
};

}  // namespace lowering

/// Element-wise steps as one. Made by group_points, never by a program; no op of the registry. Its
/// inputs are those that no member makes. The bits are those of the single steps.
struct FusedPoints {
  static constexpr std::string_view name = "fused_points";
  static constexpr int min_inputs = 1, max_inputs = lowering::PointGroup::max_inputs;
  static constexpr OpTraits traits{.pointwise = true};
  const lowering::PointGroup* group = nullptr;
  static constexpr FieldList<> fields{};

  Shape infer(std::span<const Shape> in) const;
};
TENON_DECLARE_OP(FusedPoints);

namespace lowering {

struct PointRules {
  std::function<bool(const Step& step)> is_taken;  ///< whether a step can be a member
  /// Whether a step can be a member whose result others read, so that it is stored; null: none but
  /// the last member. A member is computed when the last one is, and of the same element an input is
  /// read before a result of a later member, or of the same one, is stored in its place.
  std::function<bool(const Step& step)> is_stored = nullptr;
};

/// Merges element-wise steps of the same sizes whose results others of them read. Nobody else reads
/// those that are not stored. The ops of the merged steps refer to the groups
/// returned, which are the caller's to keep. `own` are the steps to change; see for_each_body.
std::vector<std::unique_ptr<const PointGroup>> group_points(const Lowered& program,
                                                            std::span<const Step> steps,
                                                            std::vector<Step>& own,
                                                            const PointRules& rules);

}  // namespace lowering
}  // namespace tenon
