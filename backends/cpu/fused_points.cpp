#include "fused_points.hpp"

#include "matmul/tiled_values.hpp"
#include "memory_access.hpp"
#include "task.hpp"
#include "value_uses.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

namespace tenon {

TENON_DEFINE_OP(fused_points, FusedPoints);

Shape FusedPoints::infer(std::span<const Shape>) const {
  return group->members.back().output.shape;
}

namespace cpu {
namespace {

bool is_computed_in_blocks(const Step& step) {
  if (step.kind != Step::Kind::op || is_tiled(step.output) || !step.output.is_contiguous()) {
    return false;
  }
  const Kernel* kernel = kernel_of(step.op.def());
  return kernel != nullptr && kernel->point != nullptr &&
         std::ranges::none_of(step.inputs, is_tiled);
}

bool same_sizes(const Shape& a, const Shape& b) { return std::ranges::equal(a.dims(), b.dims()); }

/// Elements of `input` lie where the same elements of `output` do, so that blocks may be computed
/// in place.
bool in_place(const Operand& input, const Operand& output) {
  return input.place == output.place && input.strides == output.strides &&
         same_sizes(input.shape, output.shape) &&
         block_bytes(input.shape.dtype()) == block_bytes(output.shape.dtype());
}

/// The steps of one body (see for_each_body), from the last one back: each takes as many as it can
/// of those before it.
class Fuser {
 public:
  Fuser(std::vector<Step>& steps, std::span<const Operand> leaves,
        std::vector<std::unique_ptr<const PointGroup>>& groups)
      : steps_(steps),
        values_(trace_values(steps, leaves)),
        makers_(makers()),
        gone_(steps.size(), false),
        groups_(groups) {}

  void run() {
    for (std::size_t last = steps_.size(); last-- > 0;) {
      if (gone_[last] || !is_computed_in_blocks(steps_[last])) continue;
      const std::vector<std::size_t> members = members_before(last);
      if (members.size() > 1) fuse(members);
    }
    std::size_t i = 0;
    std::erase_if(steps_, [&](const Step&) { return gone_[i++]; });
  }

 private:
  using Makers = std::vector<std::optional<std::size_t>>;

  /// By step and input: the step whose value that is, where the input is the value as it was made.
  std::vector<Makers> makers() const {
    std::vector<Makers> result;
    for (const Step& step : steps_) result.emplace_back(step.inputs.size());
    for (std::size_t step = 0; step < steps_.size(); ++step) {
      for (const WrittenValue::Use& use : values_[step].uses) {
        if (steps_[use.step].inputs[use.input] == steps_[step].output) {
          result[use.step][use.input] = step;
        }
      }
    }
    return result;
  }

  /// The steps that `last` can stand for, in order; `last` is one of them.
  std::vector<std::size_t> members_before(std::size_t last) const {
    std::vector<std::size_t> members{last};
    std::set<std::size_t> candidates;
    const auto add_makers = [&](std::size_t step) {
      for (const auto& maker : makers_[step]) {
        if (maker && !gone_[*maker]) candidates.insert(*maker);
      }
    };
    add_makers(last);
    while (!candidates.empty() && members.size() < PointGroup::max_members) {
      // The latest first: all that read it have been looked at.
      const std::size_t step = *candidates.rbegin();
      candidates.erase(step);
      if (!can_join(step, members)) continue;
      std::vector<std::size_t> more{step};
      more.insert(more.end(), members.begin(), members.end());
      if (inputs_of(more).size() > PointGroup::max_inputs || !can_be_late(more)) continue;
      members = std::move(more);
      add_makers(step);
    }
    return members;
  }

  bool can_join(std::size_t step, std::span<const std::size_t> members) const {
    const WrittenValue& value = values_[step];
    const Operand& result = steps_[members.back()].output;
    const auto is_of_member = [&](const WrittenValue::Use& use) {
      return std::ranges::find(members, use.step) != members.end() &&
             makers_[use.step][use.input] == step;
    };
    return value.is_only_in_uses && std::ranges::all_of(value.uses, is_of_member) &&
           same_sizes(steps_[step].output.shape, result.shape) &&
           is_computed_in_blocks(steps_[step]);
  }

  struct Input {
    const Operand* operand;
    std::size_t reader;
  };
  /// What members read that no member makes.
  std::vector<Input> inputs_of(std::span<const std::size_t> members) const {
    std::vector<Input> inputs;
    for (const std::size_t member : members) {
      for (std::size_t i = 0; i < steps_[member].inputs.size(); ++i) {
        if (!maker({member, i}, members)) inputs.push_back({&steps_[member].inputs[i], member});
      }
    }
    return inputs;
  }

  /// Which of `members` makes what is used.
  std::optional<std::size_t> maker(const WrittenValue::Use& use,
                                   std::span<const std::size_t> members) const {
    const std::optional<std::size_t>& step = makers_[use.step][use.input];
    if (!step) return std::nullopt;
    const auto found = std::ranges::find(members, *step);
    if (found == members.end()) return std::nullopt;
    return static_cast<std::size_t>(found - members.begin());
  }

  /// Whether all inputs are still there at the last member, whose result overwrites none of them
  /// before it is read.
  bool can_be_late(std::span<const std::size_t> members) const {
    const std::size_t last = members.back();
    return std::ranges::all_of(inputs_of(members), [&](const Input& input) {
      if (!is_memory(*input.operand)) return true;
      if (overlap(*input.operand, steps_[last].output) &&
          !in_place(*input.operand, steps_[last].output)) {
        return false;
      }
      for (std::size_t between = input.reader + 1; between < last; ++between) {
        const bool vanishes =
            gone_[between] || std::ranges::find(members, between) != members.end();
        if (!vanishes && writes_to(steps_[between], access_of(*input.operand))) return false;
      }
      return true;
    });
  }

  void fuse(std::span<const std::size_t> members) {
    auto group = std::make_unique<PointGroup>();
    std::vector<Operand> inputs;
    for (const std::size_t member : members) {
      const Step& step = steps_[member];
      PointGroup::Member& made = group->members.emplace_back(step.op);
      made.output = step.output;
      for (std::size_t i = 0; i < step.inputs.size(); ++i) {
        if (const auto from = maker({member, i}, members)) {
          made.sources.push_back({true, *from});
        } else {
          made.sources.push_back({false, inputs.size()});
          inputs.push_back(step.inputs[i]);
        }
      }
      gone_[member] = true;
    }
    Step& last = steps_[members.back()];
    gone_[members.back()] = false;
    last.op = OpInstance(FusedPoints{group.get()});
    last.inputs = std::move(inputs);
    groups_.push_back(std::move(group));
  }

  std::vector<Step>& steps_;
  std::vector<WrittenValue> values_;
  std::vector<Makers> makers_;
  std::vector<bool> gone_;
  std::vector<std::unique_ptr<const PointGroup>>& groups_;
};

}  // namespace

std::vector<std::unique_ptr<const PointGroup>> fuse_points(const Lowered& program,
                                                           std::span<const Step> steps,
                                                           std::vector<Step>& own) {
  std::vector<std::unique_ptr<const PointGroup>> groups;
  for_each_body(program, steps, own,
                [&](auto& body, auto leaves) { Fuser(body, leaves, groups).run(); });
  return groups;
}

}  // namespace cpu
}  // namespace tenon
