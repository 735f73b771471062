// Small networks, calibrated and run: on a device, on the CPU in its integers, and in f32.
#pragma once

#include "support/op_testing.hpp"

#include <tenon/backends/npu.hpp>
#include <tenon/graph.hpp>
#include <tenon/session.hpp>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tenon::npu::testing {

using namespace tenon::testing;

/// A program with random weights and samples for its inputs.
struct Network {
  Program program;
  std::shared_ptr<const WeightSet> weights;
  std::vector<Shape> inputs;
  std::shared_ptr<const CalibrationTable> calibration;

  std::vector<HostBuffer> sample(std::uint64_t seed) const;
};

/// `record` makes the outputs from the inputs; constants it asks for by name get values around
/// zero of about 1 / sqrt(inputs per output), biases (rank 1) of about 0.1.
using Record = std::function<std::vector<Tensor>(Graph& graph, const std::vector<Tensor>& inputs)>;
Network make_network(const std::vector<Shape>& inputs, const Record& record, std::uint64_t seed,
                     const CalibrationOptions& options = {});

/// Runs it on one backend, the reference behind it.
std::vector<HostBuffer> run(const Network& network, const BackendPtr& backend,
                            const std::vector<HostBuffer>& inputs);
/// On the reference alone, in f32.
std::vector<HostBuffer> run_reference(const Network& network,
                                      const std::vector<HostBuffer>& inputs);

/// As `Options`, for a network.
Options options_for(const Network& network, Mode mode = Mode::device);

/// 1 for equal directions.
double cosine(const HostBuffer& a, const HostBuffer& b);
bool same_bits(const std::vector<HostBuffer>& a, const std::vector<HostBuffer>& b);

}  // namespace tenon::npu::testing
