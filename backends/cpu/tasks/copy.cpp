#include "copy.hpp"

#include <tenon/ops/after.hpp>
#include <tenon/ops/axes.hpp>
#include <tenon/ops/bitcast.hpp>
#include <tenon/ops/broadcast_to.hpp>
#include <tenon/ops/permute.hpp>
#include <tenon/ops/reshape.hpp>
#include <tenon/ops/slice.hpp>
#include <tenon/ops/stop_gradient.hpp>

#include <algorithm>

namespace tenon::cpu {
namespace {

/// The axis that is divided among threads: an outer one that is long enough for all of them, else
/// the longest. The innermost axis of block types is not divided.
int shared_axis(const Shape& shape, int threads) noexcept {
  const int last = is_block(shape.dtype()) ? shape.rank() - 1 : shape.rank();
  int longest = 0;
  for (int i = 0; i < last; ++i) {
    if (shape[i] >= 4 * threads) return i;
    if (shape[i] > shape[longest]) longest = i;
  }
  return last == 0 ? -1 : longest;
}

/// One step's copy: the operand may be seen through a view first.
class CopyTask final : public PartwiseTask {
 public:
  CopyTask(const Operand& from, const Operand& to) : from_(from), to_(to) {}
  void run(const TaskContext& context) const noexcept override {
    copy_share(context, context.frame.view(from_), context.frame.view(to_));
  }

 private:
  Operand from_, to_;
};

std::unique_ptr<Task> make_view(const Step& step, Compiler&) {
  Operand from = step.inputs[0], to = step.output;
  HostView input;
  input.shape = from.shape;
  input.strides = from.strides;
  ViewPlacement placement;
  if (step.op.def()->view(step.op.attributes(), input, to.shape, placement)) {
    from.place.offset += placement.offset_bytes;
    from.strides = placement.strides;
    from.shape = to.shape;
  } else {
    // Only ops that keep the bits in row-major order refuse strides: the output is the input, made
    // dense.
    to.shape = from.shape;
    to.strides = dense_strides(to.shape);
  }
  return std::make_unique<CopyTask>(from, to);
}

}  // namespace

void copy_share(const TaskContext& context, HostView from, HostView to) noexcept {
  constexpr std::int64_t page = 4096;
  if (to.shape.elements() == 0) return;
  const int axis = to.shape.bytes() <= page ? -1 : shared_axis(to.shape, context.worker.threads);
  if (axis < 0) {
    if (context.worker.thread == 0) copy_elements(from, to);
    return;
  }
  const Range part = context.share(to.shape[axis]);
  if (part.begin >= part.end) return;
  from.data += part.begin * from.strides[static_cast<std::size_t>(axis)];
  to.data += part.begin * to.strides[static_cast<std::size_t>(axis)];
  to.shape = to.shape.with_dim(axis, part.end - part.begin);
  from.shape = to.shape;
  copy_elements(from, to);
}

std::unique_ptr<Task> make_copy(const Step& step) {
  return std::make_unique<CopyTask>(step.inputs[0], step.output);
}

#define TENON_VIEW(id, Struct)     \
  extern const Kernel id##_kernel; \
  constinit const Kernel id##_kernel { op_def<Struct>, takes_everything, make_view }

TENON_VIEW(reshape, Reshape);
TENON_VIEW(permute, Permute);
TENON_VIEW(slice, Slice);
TENON_VIEW(broadcast_to, BroadcastTo);
TENON_VIEW(squeeze, Squeeze);
TENON_VIEW(unsqueeze, Unsqueeze);
TENON_VIEW(split_axis, SplitAxis);
TENON_VIEW(merge_axes, MergeAxes);
TENON_VIEW(stop_gradient, StopGradient);
TENON_VIEW(bitcast, Bitcast);
TENON_VIEW(after, After);

#undef TENON_VIEW

}  // namespace tenon::cpu
