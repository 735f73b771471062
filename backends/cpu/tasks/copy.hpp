// Moving elements without computing: what views that need a copy, concat, pad and select share.
#pragma once

#include "../task.hpp"

#include <tenon/host_view.hpp>

namespace tenon::cpu {

/// This thread's share of copying `from` to `to`, which have one shape and do not overlap. With
/// fewer than a page of bytes one thread does all of it.
void copy_share(const TaskContext& context, HostView from, HostView to) noexcept;

/// A step that copies its first input to its output: the task for Step::Kind::copy and for views
/// whose input's strides forbid sharing.
std::unique_ptr<Task> make_copy(const Step& step);

}  // namespace tenon::cpu
