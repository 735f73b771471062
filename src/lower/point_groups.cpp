#include "lower/point_groups.hpp"

#include "lower/memory_access.hpp"
#include "lower/value_uses.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

namespace tenon {

TENON_DEFINE_OP(fused_points, FusedPoints);

Shape FusedPoints::infer(std::span<const Shape>) const {
  return group->members.back().output.shape;
}

namespace lowering {
namespace {

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
  Fuser(std::vector<Step>& steps, std::span<const Operand> leaves, const PointRules& rules,
        std::vector<std::unique_ptr<const PointGroup>>& groups)
      : steps_(steps),
        rules_(rules),
        values_(trace_values(steps, leaves)),
        makers_(makers()),
        gone_(steps.size(), false),
        groups_(groups) {}

  void run() {
    for (std::size_t last = steps_.size(); last-- > 0;) {
      if (gone_[last] || !is_taken(steps_[last])) continue;
      const std::vector<std::size_t> members = members_before(last);
      if (members.size() > 1) fuse(members);
    }
    std::size_t i = 0;
    std::erase_if(steps_, [&](const Step&) { return gone_[i++]; });
  }

 private:
  using Makers = std::vector<std::optional<std::size_t>>;

  bool is_taken(const Step& step) const {
    return step.kind == Step::Kind::op && rules_.is_taken(step);
  }

  bool is_stored(const Step& step) const {
    return rules_.is_stored != nullptr && step.kind == Step::Kind::op && rules_.is_stored(step);
  }

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
    const Operand& result = steps_[members.back()].output;
    return (is_read_by_members(step, members) || is_stored(steps_[step])) &&
           same_sizes(steps_[step].output.shape, result.shape) && is_taken(steps_[step]);
  }

  /// Whether nobody but members reads the step's value, so that it need not be stored.
  bool is_read_by_members(std::size_t step, std::span<const std::size_t> members) const {
    const auto is_of_member = [&](const WrittenValue::Use& use) {
      return std::ranges::find(members, use.step) != members.end() &&
             makers_[use.step][use.input] == step;
    };
    return values_[step].is_only_in_uses && std::ranges::all_of(values_[step].uses, is_of_member);
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

  /// The members whose results are stored, when the last one is computed.
  std::vector<std::size_t> stored(std::span<const std::size_t> members) const {
    std::vector<std::size_t> result;
    for (const std::size_t member : members) {
      if (member == members.back() || !is_read_by_members(member, members)) {
        result.push_back(member);
      }
    }
    return result;
  }

  /// Whether members can be computed when the last one is.
  bool can_be_late(std::span<const std::size_t> members) const {
    const std::vector<std::size_t> stores = stored(members);
    return inputs_stay(members, stores) && stores_can_be_late(members, stores);
  }

  /// Whether all inputs are still there at the last member, and no result overwrites one before it
  /// is read.
  bool inputs_stay(std::span<const std::size_t> members,
                   std::span<const std::size_t> stores) const {
    const std::size_t last = members.back();
    return std::ranges::all_of(inputs_of(members), [&](const Input& input) {
      if (!is_memory(*input.operand)) return true;
      for (const std::size_t store : stores) {
        const Operand& output = steps_[store].output;
        if (!overlap(*input.operand, output)) continue;
        if (input.reader > store || !in_place(*input.operand, output)) return false;
      }
      for (std::size_t between = input.reader + 1; between < last; ++between) {
        if (stays(between, members) && writes_to(steps_[between], access_of(*input.operand))) {
          return false;
        }
      }
      return true;
    });
  }

  /// Whether nobody accesses what members store between where they stood and the last one, and no
  /// two of them store to the same memory.
  bool stores_can_be_late(std::span<const std::size_t> members,
                          std::span<const std::size_t> stores) const {
    const std::size_t last = members.back();
    for (const std::size_t store : stores) {
      const Access access = access_of(steps_[store].output);
      for (std::size_t between = store + 1; between < last; ++between) {
        if (stays(between, members) && accesses(steps_[between], access)) return false;
      }
      for (const std::size_t other : stores) {
        if (other != store && overlap(access, access_of(steps_[other].output))) return false;
      }
    }
    return true;
  }

  /// Whether a step remains where it is.
  bool stays(std::size_t step, std::span<const std::size_t> members) const {
    return !gone_[step] && std::ranges::find(members, step) == members.end();
  }

  void fuse(std::span<const std::size_t> members) {
    auto group = std::make_unique<PointGroup>();
    const std::vector<std::size_t> stores = stored(members);
    std::vector<Operand> inputs;
    for (const std::size_t member : members) {
      const Step& step = steps_[member];
      PointGroup::Member& made = group->members.emplace_back(step.op);
      made.output = step.output;
      made.is_stored = std::ranges::find(stores, member) != stores.end();
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
  const PointRules& rules_;
  std::vector<WrittenValue> values_;
  std::vector<Makers> makers_;
  std::vector<bool> gone_;
  std::vector<std::unique_ptr<const PointGroup>>& groups_;
};

}  // namespace

Step PointGroup::step_of(std::size_t index, std::span<const Operand> inputs) const {
  const Member& member = members[index];
  Step step;
  step.kind = Step::Kind::op;
  step.op = member.op;
  step.output = member.output;
  for (const Source& source : member.sources) {
    step.inputs.push_back(source.is_member ? members[source.index].output : inputs[source.index]);
  }
  return step;
}

std::vector<std::unique_ptr<const PointGroup>> group_points(const Lowered& program,
                                                            std::span<const Step> steps,
                                                            std::vector<Step>& own,
                                                            const PointRules& rules) {
  std::vector<std::unique_ptr<const PointGroup>> groups;
  for_each_body(program, steps, own,
                [&](auto& body, auto leaves) { Fuser(body, leaves, rules, groups).run(); });
  return groups;
}

}  // namespace lowering
}  // namespace tenon
