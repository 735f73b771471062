#include "run_graph.hpp"

#include <algorithm>
#include <utility>
#include <variant>

namespace tenon::cuda {
namespace {

constexpr std::size_t min_launches = 2, max_launches = 20000;

/// Whether all of the instructions became launches.
bool unroll(const std::vector<Instruction>& instructions, UnrolledLaunch at,
            std::vector<UnrolledLaunch>& out) {
  for (const Instruction& instruction : instructions) {
    if (const auto* launch = std::get_if<Launch>(&instruction)) {
      at.launch = launch;
      out.push_back(at);
      if (out.size() > max_launches) return false;
      continue;
    }
    const auto& loop = std::get<Loop>(instruction);
    if (loop.step->condition() != nullptr) return false;
    const auto depth = static_cast<std::size_t>(loop.step->depth);
    for (std::int64_t i = 0; i < loop.step->count; ++i) {
      at.iteration[depth] = i;
      at.loop_index[depth] = loop.step->first + i;
      if (!unroll(loop.body, at, out)) return false;
    }
    at.iteration[depth] = at.loop_index[depth] = 0;
  }
  return true;
}

}  // namespace

std::vector<UnrolledLaunch> unrolled(const LaunchPlan& plan) {
  std::vector<UnrolledLaunch> launches;
  if (!unroll(plan.instructions, {}, launches) || launches.size() < min_launches) return {};
  return launches;
}

RunGraph::RunGraph(DriverPtr driver, std::span<const UnrolledLaunch> launches, bool overlaps)
    : driver_(std::move(driver)), launches_(launches), overlaps_(overlaps) {
  args_begin_.push_back(0);
  for (const UnrolledLaunch& one : launches_) {
    args_begin_.push_back(args_begin_.back() + one.launch->args.size());
  }
  args_.resize(args_begin_.back());
}
RunGraph::~RunGraph() {
  if (graph_) driver_->destroy(*graph_);
}

std::span<std::byte> RunGraph::args_of(std::size_t i) {
  return std::span(args_).subspan(args_begin_[i], args_begin_[i + 1] - args_begin_[i]);
}
bool RunGraph::lies_as_before(const DeviceFrame& frame) const {
  return std::ranges::equal(frame.inputs, inputs_) && std::ranges::equal(frame.outputs, outputs_) &&
         frame.slab == slab_;
}

void RunGraph::launch(StreamId stream, const DeviceFrame& frame, const Fill& fill) {
  if (!graph_) {
    std::vector<Work> work;
    for (std::size_t i = 0; i < launches_.size(); ++i) {
      work.push_back(fill(launches_[i], args_of(i)));
    }
    graph_ = driver_->create_graph(work, overlaps_);
  } else if (!lies_as_before(frame)) {
    update(fill);
  }
  inputs_.assign(frame.inputs.begin(), frame.inputs.end());
  outputs_.assign(frame.outputs.begin(), frame.outputs.end());
  slab_ = frame.slab;
  driver_->launch(stream, *graph_);
}

void RunGraph::update(const Fill& fill) {
  inputs_.clear();  // an update that fails is repeated
  slab_ = {};
  std::vector<std::byte> args;
  for (std::size_t i = 0; i < launches_.size(); ++i) {
    const std::span<std::byte> before = args_of(i);
    args.resize(before.size());
    const Work work = fill(launches_[i], args);
    if (std::ranges::equal(args, before)) continue;
    driver_->update(*graph_, i, work);
    std::ranges::copy(args, before.begin());
  }
}

}  // namespace tenon::cuda
