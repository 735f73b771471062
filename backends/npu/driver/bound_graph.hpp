// A graph with its constants in int8 and all multipliers: what the device executes, or the host in
// its place.
#pragma once

#include "graph.hpp"

#include <tenon/host_buffer.hpp>
#include <tenon/npu/isa/structures.hpp>
#include <tenon/npu/quantize.hpp>

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

namespace tenon::npu {

/// Limits of a result in int8.
struct Limits {
  std::int32_t lo = -128;
  std::int32_t hi = 127;
};

/// limit(rs(a * m1 + b * m2, s)) and the like; the fields of isa::Elementwise and isa::Pool.
struct Scaling {
  std::int32_t m1 = 1;
  std::int32_t m2 = 0;
  std::uint32_t s = 0;
};

struct BoundPost {
  Scaling scaling;
  Limits limits;
  std::array<std::int8_t, 256> table{};  ///< lut
};

struct BoundLayer {
  // conv, depthwise, linear: row-major [O, ...] as the program's weights.
  std::vector<std::int8_t> weights;
  std::vector<float> real_weights;
  std::vector<float> real_bias;           ///< empty without bias
  std::vector<double> weight_steps;       ///< per output channel, over the step of the input
  std::vector<double> input_ratios;       ///< normratio folded into weights, per input channel
  std::vector<isa::QuantRecord> records;  ///< per output channel, matmul too
  Limits limits;                          ///< of the main operation
  std::uint32_t neg_m = 0;                ///< slope of the main operation, in 32768ths; 0: none
  Scaling scaling;                        ///< pools
  std::vector<BoundPost> posts;
};

struct BoundGraph {
  Graph graph;  ///< with the steps of constants
  std::vector<BoundLayer> layers;
  /// Per map that is a constant: its values, pixel by pixel, then channel.
  std::vector<std::vector<std::int8_t>> constants;
  std::vector<std::vector<float>> real_constants;
};

struct BindOptions {
  Profile profile = Profile::m15;
  bool per_channel = true;  ///< a weight step per output channel
};

/// The bytes of a constant of the program, as f32 of any strides.
using ConstantSource = std::function<HostBuffer(const Operand& constant)>;

/// Errc::bad_input for weights that are not finite, Errc::out_of_range for factors that the profile
/// cannot express; both name the layer's value.
BoundGraph bind_graph(const Graph& graph, const ConstantSource& constants,
                      const BindOptions& options);

}  // namespace tenon::npu
