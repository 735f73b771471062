#include "../fused_points.hpp"

#include "point_task.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

namespace tenon::cpu {
namespace {

/// Every block through all members. Results that only members read lie in buffers, each of which
/// serves another member once its own result has been read.
class FusedPointsTask final : public PartwiseTask {
 public:
  FusedPointsTask(const Step& step, Compiler& compiler)
      : y_(step.output), count_(y_.shape.elements()) {
    const PointGroup& group = *step.op.as<FusedPoints>()->group;
    for (std::size_t i = 0; i < group.members.size(); ++i) add(i, group, step.inputs, compiler);
    assign_buffers(group);
  }

  void run(const TaskContext& context) const noexcept override {
    const Range range = flat_share(context, count_);
    Buffers buffers;
    Results results;
    for (const Member& member : members_) {
      for (const Source& source : member.sources) {
        if (source.reader) source.reader->begin(context);
      }
    }
    for (std::int64_t first = range.begin; first < range.end; first += block_elements) {
      const std::int64_t count = std::min(block_elements, range.end - first);
      for (std::size_t m = 0; m < members_.size(); ++m) {
        const Member& member = members_[m];
        results[m] = member.stored ? context.pointer<std::byte>(*member.stored) +
                                         first * block_bytes(member.dtype)
                                   : buffers[member.buffer].bytes;
        compute(member, context, first, count, results, results[m]);
      }
    }
  }

 private:
  /// One of the two: a member's result, or what a reader reads.
  struct Source {
    std::size_t member;
    DType widened_from;  ///< of a member's result; a type that is computed as stored: not widened
    std::optional<Reader> reader;
  };
  struct Member {
    OpInstance op;
    PointFunction function;
    std::vector<Source> sources;
    DType dtype;
    bool narrows;
    std::optional<Operand> stored;  ///< where the result lies, or
    std::size_t buffer = 0;
  };
  /// A buffer, and bytes so that what lies at one place of several does not share a set of L1.
  struct ApartBuffer : BlockBuffer {
    std::byte rest[320];
  };
  using Buffers = std::array<ApartBuffer, PointGroup::max_members - 1>;
  using Results = std::array<std::byte*, PointGroup::max_members>;

  void add(std::size_t index, const PointGroup& group, std::span<const Operand> inputs,
           Compiler& compiler) {
    const PointGroup::Member& member = group.members[index];
    const PointStep point = kernel_of(member.op.def())->point(group.step_of(index, inputs));
    Member& added = members_.emplace_back(member.op, point.function);
    added.dtype = member.output.shape.dtype();
    added.narrows = point.narrows();
    if (index + 1 == group.members.size()) {
      added.stored = y_;
    } else if (member.is_stored) {
      added.stored = member.output;
    }
    for (std::size_t i = 0; i < member.sources.size(); ++i) {
      const PointGroup::Source& source = member.sources[i];
      Source& from = added.sources.emplace_back(source.index, DType::f32);
      if (!source.is_member) {
        from.reader.emplace(point.step.inputs[i], y_.shape, point.inputs, compiler);
      } else if (point.inputs == Reader::As::computed) {
        from.widened_from = group.members[source.index].output.shape.dtype();
      }
    }
  }

  void assign_buffers(const PointGroup& group) {
    std::vector<std::size_t> last_use(members_.size());
    for (std::size_t m = 0; m < members_.size(); ++m) {
      for (const PointGroup::Source& source : group.members[m].sources) {
        if (source.is_member) last_use[source.index] = m;
      }
    }
    std::vector<std::size_t> used_until;  // by buffer
    for (std::size_t m = 0; m < members_.size(); ++m) {
      if (members_[m].stored) continue;
      const auto free =
          std::ranges::find_if(used_until, [&](std::size_t last) { return last < m; });
      members_[m].buffer = static_cast<std::size_t>(free - used_until.begin());
      if (free == used_until.end()) used_until.push_back(0);
      used_until[members_[m].buffer] = last_use[m];
    }
  }

  static void compute(const Member& member, const TaskContext& context, std::int64_t first,
                      std::int64_t count, const Results& results, std::byte* y) noexcept {
    std::array<BlockBuffer, PointCall::max_inputs> buffers;
    BlockBuffer wide;
    PointCall call{};
    call.count = count;
    for (std::size_t i = 0; i < member.sources.size(); ++i) {
      const Source& source = member.sources[i];
      if (source.reader) {
        const Reader::Block block = source.reader->read(context, first, count, buffers[i]);
        call.x[i] = block.data;
        call.step[i] = block.step;
        continue;
      }
      call.x[i] = results[source.member];
      call.step[i] = 1;
      if (is_computed_as_stored(source.widened_from)) continue;
      widen(source.widened_from, call.x[i], buffers[i].bytes, count);
      call.x[i] = buffers[i].bytes;
    }
    call.y = member.narrows ? wide.bytes : y;
    member.function(call, member.op);
    if (member.narrows) narrow(member.dtype, wide.bytes, y, count);
  }

  Operand y_;
  std::int64_t count_;
  std::vector<Member> members_;
};

}  // namespace

extern const Kernel fused_points_kernel;
constinit const Kernel fused_points_kernel{op_def<FusedPoints>, takes_everything,
                                           make_task<FusedPointsTask>};

}  // namespace tenon::cpu
