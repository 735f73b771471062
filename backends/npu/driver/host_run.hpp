// The layers on the CPU: what the network means, and, bit for bit, what the device must give.
#pragma once

#include "bound_graph.hpp"

#include <tenon/host_view.hpp>
#include <tenon/lowered.hpp>
#include <tenon/npu/mode.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>

namespace tenon::npu {

/// Where an operand of the program lies now.
using EdgeView = std::function<HostView(const Operand& edge)>;

/// Runs every layer in order. Reads and writes the f32 arrays of quantize and dequantize layers
/// through `edges`. Not for Mode::device.
void run_on_host(const BoundGraph& bound, const EdgeView& edges, Mode mode);

/// Runs the layers of one step (Layer::step) only. What earlier steps made, and later ones will
/// read, lies in kept_bytes() of memory at `kept`.
void run_step_on_host(const BoundGraph& bound, const EdgeView& edges, Mode mode, int step,
                      std::byte* kept);
std::int64_t kept_bytes(const Graph& graph, Mode mode);

}  // namespace tenon::npu
