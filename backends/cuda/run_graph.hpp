#pragma once

#include "driver/driver.hpp"
#include "plan/launch.hpp"

#include <tenon/lowered.hpp>

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace tenon::cuda {

/// A launch in one iteration of the loops around it.
struct UnrolledLaunch {
  const Launch* launch = nullptr;
  LoopSteps iteration{}, loop_index{};
};

/// The launches of a plan with its loops unrolled; none where a loop has a condition, and where they
/// are too many or too few for a graph to pay.
std::vector<UnrolledLaunch> unrolled(const LaunchPlan& plan);

/// The launches of a plan as one CUDA graph. Addresses that differ from those of the run before are
/// updated in it.
class RunGraph {
 public:
  /// Fills in the arguments of a launch, and says what is launched with them.
  using Fill = std::function<Work(const UnrolledLaunch& launch, std::span<std::byte> args)>;

  /// `overlaps`: as of Driver::create_graph.
  RunGraph(DriverPtr driver, std::span<const UnrolledLaunch> launches, bool overlaps);
  ~RunGraph();
  RunGraph(const RunGraph&) = delete;
  RunGraph& operator=(const RunGraph&) = delete;

  /// `frame`: where inputs, outputs and activations are.
  void launch(StreamId stream, const DeviceFrame& frame, const Fill& fill);

 private:
  bool lies_as_before(const DeviceFrame& frame) const;
  void update(const Fill& fill);
  std::span<std::byte> args_of(std::size_t i);

  DriverPtr driver_;
  std::span<const UnrolledLaunch> launches_;
  bool overlaps_;
  std::optional<GraphId> graph_;
  std::vector<std::byte> args_;          ///< of all launches, as the graph has them
  std::vector<std::size_t> args_begin_;  ///< one more than there are launches
  std::vector<MemPtr> inputs_, outputs_;
  MemPtr slab_;
};

}  // namespace tenon::cuda
