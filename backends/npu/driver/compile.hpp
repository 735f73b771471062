// A bound graph as programs for a device.
#pragma once

#include "layout.hpp"
#include "predict.hpp"

#include <tenon/lowered.hpp>
#include <tenon/npu/isa/caps.hpp>
#include <tenon/npu/isa/program.hpp>
#include <tenon/npu/placement.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tenon::npu {

/// Memory of the session that a program sees through the segment `input` or `output`.
struct WindowPlace {
  Place place;  ///< a kind and an index; the offset is 0
  std::int64_t bytes = 0;
};

/// One RUN: segments are set, then a program runs to its end.
struct Stage {
  std::optional<WindowPlace> input, output;
  isa::Program program;
  std::vector<std::byte> bytes;     ///< assembled
  std::vector<std::size_t> layers;  ///< graph layers in it, in order
};

struct CompileOptions {
  Placement placement = Placement::best;
  bool merge = true;  ///< one program for as many layers as possible, or one for each
  /// OCM for tiles; 0: as the compiler finds best.
  std::int64_t work_bytes = 0;
};

struct CompiledNetwork {
  BoundGraph bound;
  std::vector<MapPlace> places;
  WeightImage image;
  std::vector<Stage> stages;
  std::int64_t ftmp_bytes = 0;
  std::int64_t work_bytes = 0;            ///< OCM for the buffers of tiles
  Placement placement = Placement::none;  ///< the strategy that was used
  Prediction predicted;
};

/// Errors: Errc::out_of_device_memory naming the value whose smallest tile does not fit;
/// Errc::limit_exceeded for more layers than a program has numbers for.
/// `slab_bytes`, and shapes of inputs and outputs, are those of `program`.
CompiledNetwork compile_network(BoundGraph bound, const Lowered& program, const isa::Caps& caps,
                                const CompileOptions& options);

/// A layer, for messages and reports.
struct DeviceLayer {
  std::vector<std::string> values;  ///< of the program, in order
  std::string kind;                 ///< "conv +add"
  std::string op;                   ///< name of the main op
  int step = -1;                    ///< Layer::step
};

/// Bytes that steps read and write results over, as results in place are: a run that did not end may
/// have changed them, so that it is not repeated without what they were.
struct OverwrittenInput {
  Place place;
  std::int64_t bytes = 0;
  int step = 0;  ///< of a network that runs step by step, the one that does it (Layer::step)
};

/// Of all steps together, or of each by itself.
std::vector<OverwrittenInput> overwritten_inputs(const Lowered& program,
                                                 std::span<const Step> steps, bool is_stepped);

/// What a device needs of a network, and what people are told about it.
struct DeviceCode {
  std::vector<DeviceLayer> layers;  ///< by number
  std::vector<Stage> stages;
  std::vector<std::byte> constants;  ///< of the segment `weight`
  std::int64_t ftmp_bytes = 0;
  std::int64_t on_chip_bytes = 0;  ///< of feature maps that never leave the chip
  Placement placement = Placement::none;
  Prediction predicted;  ///< of a restored network without its layers
  /// It runs step by step: what lies between layers is memory of each session.
  bool is_stepped = false;
  std::vector<OverwrittenInput> overwritten;
  std::string text;  ///< layers, places, bytes, predicted cycles
};

/// Takes the constants and stages out of the network.
DeviceCode take_code(CompiledNetwork& network);

/// How many bytes an input, an output or the slab of a program has; nothing for any other place.
std::optional<std::int64_t> bytes_of(const Place& place, const Lowered& program) noexcept;

/// All programs, annotated with the layers' names.
std::string disassemble(const DeviceCode& code);

}  // namespace tenon::npu
