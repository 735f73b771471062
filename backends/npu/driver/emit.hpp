// Layers as instructions.
#pragma once

#include "layout.hpp"
#include "tiling.hpp"

#include <tenon/npu/isa/caps.hpp>
#include <tenon/npu/isa/instruction.hpp>

#include <cstdint>
#include <functional>
#include <vector>

namespace tenon::npu {

/// A run of OCM that a layer may use for its tiles.
struct WorkRegion {
  std::int64_t begin = 0;  ///< bytes, a multiple of 32
  std::int64_t size = 0;
};

struct EmitContext {
  const BoundGraph& bound;
  const std::vector<MapPlace>& places;
  const WeightImage& image;
  const isa::Caps& caps;
  WorkRegion work;
};

using Instructions = std::vector<isa::Instruction>;

/// Appends the layer's instructions, without tokens. Not for quantize and dequantize.
void emit_layer(const EmitContext& context, std::size_t layer, Instructions& out);

/// Appends the conversions of a quantize or dequantize layer whose plain side lies in `segment`.
void emit_edge(const EmitContext& context, std::size_t layer, isa::Segment segment,
               Instructions& out);

}  // namespace tenon::npu
