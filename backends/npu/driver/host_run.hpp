// The layers on the CPU: what the network means, and, bit for bit, what the device must give.
#pragma once

#include "bound_graph.hpp"

#include <tenon/host_view.hpp>
#include <tenon/lowered.hpp>
#include <tenon/npu/mode.hpp>

#include <functional>

namespace tenon::npu {

/// Where an operand of the program lies now.
using EdgeView = std::function<HostView(const Operand& edge)>;

/// Runs every layer in order. Reads and writes the f32 arrays of quantize and dequantize layers
/// through `edges`. Not for Mode::device.
void run_on_host(const BoundGraph& bound, const EdgeView& edges, Mode mode);

}  // namespace tenon::npu
