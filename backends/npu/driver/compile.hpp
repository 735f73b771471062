// A bound graph as programs for a device.
#pragma once

#include "layout.hpp"
#include "predict.hpp"

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
  std::int64_t constant_bytes = 0;
  std::uint32_t constant_crc = 0;
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

/// The network as bytes: the device it is for, the choices that the compiler searched for, and the
/// programs. Constants follow from the weights and are there as a checksum.
std::vector<std::byte> save_network(const CompiledNetwork& network, const isa::Caps& caps);

/// Compiles again with the choices of a saved network, without the search, and compares. Nothing of
/// what is saved reaches a device unchecked. Errc::incompatible naming what differs (capabilities,
/// weights or calibration, programs), Errc::corrupt for bytes that are no saved network.
CompiledNetwork restore_network(BoundGraph bound, const Lowered& program, const isa::Caps& caps,
                                bool merge, std::span<const std::byte> saved);

/// Which stage runs a layer's instructions, for people: layers, places, bytes, predicted cycles.
std::string describe(const CompiledNetwork& network);

/// All programs, annotated with the layers' names.
std::string disassemble(const CompiledNetwork& network);

}  // namespace tenon::npu
