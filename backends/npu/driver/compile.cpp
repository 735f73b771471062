#include "compile.hpp"

#include "dependencies.hpp"
#include "emit.hpp"
#include "placement.hpp"
#include "tiling.hpp"

#include <tenon/error.hpp>
#include <tenon/npu/isa/structures.hpp>

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

namespace tenon::npu {
namespace {

constexpr std::size_t max_layers = 65536;
/// A program is closed at the next layer when it has so many instructions.
constexpr std::size_t long_program = std::size_t{1} << 18;

bool is_edge(const Layer& layer) {
  return layer.kind == Layer::Kind::quantize || layer.kind == Layer::Kind::dequantize;
}

bool same_storage(const WindowPlace& window, const Place& place) {
  return window.place.kind == place.kind &&
         (place.kind == Place::Kind::slab || window.place.index == place.index);
}

/// Divides the layers into stages: a new one where a third part of the session's memory is
/// accessed.
class StageBuilder {
 public:
  StageBuilder(const Lowered& program, const EmitContext& context, bool merge)
      : program_(program), context_(context), merge_(merge) {}

  std::vector<Stage> build() {
    const std::vector<Layer>& layers = context_.bound.graph.layers;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      if (!stage_.layers.empty() && (!merge_ || instructions_.size() > long_program)) close();
      if (is_edge(layers[i])) {
        const isa::Segment segment = window(layers[i]);
        emit_edge(context_, i, segment, instructions_);
      } else {
        emit_layer(context_, i, instructions_);
      }
      stage_.layers.push_back(i);
    }
    if (!stage_.layers.empty()) close();
    return std::move(stages_);
  }

 private:
  isa::Segment window(const Layer& layer) {
    const Place& place = layer.edge.place;
    if (stage_.input && same_storage(*stage_.input, place)) return isa::Segment::input;
    if (stage_.output && same_storage(*stage_.output, place)) return isa::Segment::output;
    const bool reads = layer.kind == Layer::Kind::quantize;
    if (stage_.input && stage_.output) close();
    WindowPlace window;
    window.place.kind = place.kind;
    window.place.index = place.index;
    window.bytes = bytes_of(place, program_).value();
    if ((reads && !stage_.input) || stage_.output) {
      stage_.input = window;
      return isa::Segment::input;
    }
    stage_.output = window;
    return isa::Segment::output;
  }

  void close() {
    set_tokens(instructions_);
    stage_.program.instructions = std::move(instructions_);
    stage_.program.instructions.emplace_back(isa::Halt());
    stage_.program.ocm_bytes = context_.caps.ocm_bytes;
    stage_.program.acc_bytes = context_.caps.acc_bytes;
    stages_.push_back(std::exchange(stage_, {}));
    instructions_.clear();
  }

  const Lowered& program_;
  const EmitContext& context_;
  bool merge_;
  Stage stage_;
  Instructions instructions_;
  std::vector<Stage> stages_;
};

class NetworkCompiler {
 public:
  NetworkCompiler(CompiledNetwork& network, const Lowered& program, const isa::Caps& caps,
                  const CompileOptions& options)
      : network_(network), program_(program), caps_(caps), options_(options) {}

  void compile() {
    network_.image = make_weight_image(network_.bound, network_.places);
    if (options_.work_bytes > 0) return use(options_.placement, options_.work_bytes);
    if (options_.placement == Placement::none) return use(Placement::none, caps_.ocm_bytes);
    std::vector<Placement> strategies{options_.placement};
    if (options_.placement == Placement::best) {
      strategies = {Placement::none, Placement::global, Placement::dp, Placement::evict};
    }
    std::optional<CompiledNetwork> best;
    for (const Placement strategy : strategies) {
      for (const std::int64_t work : work_sizes(strategy)) {
        try {
          use(strategy, work);
        } catch (const Error& error) {
          if (error.code() != Errc::out_of_device_memory) throw;
          continue;  // too little work memory: another size may be enough
        }
        if (!best || network_.predicted.cycles < best->predicted.cycles) {
          best = std::move(network_);
          network_ = {};
          network_.bound = best->bound;
          network_.image = best->image;
          network_.places = best->places;
        }
      }
    }
    if (!best) return use(Placement::none, caps_.ocm_bytes);  // throws
    network_ = std::move(*best);
  }

 private:
  // Sizes of work memory, from the least that every layer can run with to all of OCM.
  std::vector<std::int64_t> work_sizes(Placement strategy) {
    const std::int64_t all = caps_.ocm_bytes;
    if (strategy == Placement::none) return {all};
    std::int64_t least = 1024;
    place_maps(network_.bound.graph, Placement::none, 0, 0, network_.places);
    for (std::size_t i = 0; i < network_.bound.graph.layers.size(); ++i) {
      if (is_edge(network_.bound.graph.layers[i])) continue;
      least = std::max(least, min_work_bytes(LayerShape(network_.bound.graph, network_.places, i)));
    }
    std::vector<std::int64_t> sizes;
    for (const std::int64_t size : {least * 2, all / 8, all / 4, all / 2, all * 3 / 4}) {
      const std::int64_t lines = size / 64 * 64;
      if (lines >= least && lines < all) sizes.push_back(lines);
    }
    std::ranges::sort(sizes);
    const auto [first, last] = std::ranges::unique(sizes);
    sizes.erase(first, last);
    return sizes;
  }

  void use(Placement strategy, std::int64_t work_bytes) {
    network_.placement = strategy;
    network_.work_bytes = work_bytes;
    network_.ftmp_bytes = place_maps(network_.bound.graph, strategy, work_bytes,
                                     caps_.ocm_bytes - work_bytes, network_.places);
    const EmitContext context{
        network_.bound, network_.places, network_.image, caps_, {0, work_bytes}};
    network_.stages = StageBuilder(program_, context, options_.merge).build();
    network_.predicted = {};
    for (const Stage& stage : network_.stages) {
      predict(caps_, stage.program.instructions, network_.predicted);
    }
  }

  CompiledNetwork& network_;
  const Lowered& program_;
  const isa::Caps& caps_;
  const CompileOptions& options_;
};

std::string place_text(const FeatureMap& map, const MapPlace& place) {
  const char* where = place.where == MapPlace::Where::ocm      ? "ocm"
                      : place.where == MapPlace::Where::weight ? "weight"
                                                               : "ftmp";
  return fmt::format("{}+{:#x} NCHWc{} {}x{}x{}x{} step {:.6g}", where, place.offset,
                     1U << place.log2c, map.dims.n, map.dims.c, map.dims.h, map.dims.w, map.step);
}

/// For people: layers, places, bytes, predicted cycles.
std::string describe(const CompiledNetwork& network) {
  const Graph& graph = network.bound.graph;
  std::string text = fmt::format(
      "{} layers in {} programs, placement {}, {} bytes of constants, {} of ftmp, {} for tiles; "
      "predicted {} cycles, {} bytes read, {} written, {} MACs\n",
      graph.layers.size(), network.stages.size(), to_string(network.placement),
      network.image.bytes.size(), network.ftmp_bytes, network.work_bytes, network.predicted.cycles,
      network.predicted.ddr_read, network.predicted.ddr_write, network.predicted.macs);
  for (std::size_t i = 0; i < graph.layers.size(); ++i) {
    const Layer& layer = graph.layers[i];
    text += fmt::format("{:4} {:10}", i, to_string(layer.kind));
    for (const Post& post : layer.posts) text += fmt::format(" +{}", to_string(post.kind));
    text += fmt::format(" [{}]", fmt::join(layer.values, " "));
    const MapId id = layer.kind == Layer::Kind::dequantize ? layer.input : layer.output;
    text += "  " + place_text(graph.map(id), network.places[static_cast<std::size_t>(id)]);
    if (i < network.predicted.layers.size()) {
      const auto& share = network.predicted.layers[i];
      text += fmt::format("  {} cycles, {} bytes", share.end - share.begin,
                          share.ddr_read + share.ddr_write);
    }
    text += '\n';
  }
  return text;
}

std::string kind_of(const Layer& layer) {
  std::string kind(to_string(layer.kind));
  for (const Post& post : layer.posts) kind += fmt::format(" +{}", to_string(post.kind));
  return kind;
}

std::int64_t on_chip_bytes(const CompiledNetwork& network) {
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < network.places.size(); ++i) {
    if (network.places[i].where != MapPlace::Where::ocm) continue;
    bytes += map_bytes(network.bound.graph.maps[i].dims, network.places[i].log2c);
  }
  return bytes;
}

}  // namespace

std::optional<std::int64_t> bytes_of(const Place& place, const Lowered& program) noexcept {
  switch (place.kind) {
    case Place::Kind::input:
      if (place.index < program.inputs.size()) return program.inputs[place.index].shape.bytes();
      return std::nullopt;
    case Place::Kind::output:
      if (place.index < program.outputs.size()) return program.outputs[place.index].shape.bytes();
      return std::nullopt;
    case Place::Kind::slab:
      return program.slab_bytes;
    default:
      return std::nullopt;
  }
}

CompiledNetwork compile_network(BoundGraph bound, const Lowered& program, const isa::Caps& caps,
                                const CompileOptions& options) {
  if (bound.graph.layers.size() > max_layers) {
    throw Error(Errc::limit_exceeded, "npu",
                fmt::format("{} layers, at most {}", bound.graph.layers.size(), max_layers));
  }
  CompiledNetwork network;
  network.bound = std::move(bound);
  NetworkCompiler(network, program, caps, options).compile();
  for (Stage& stage : network.stages) stage.bytes = isa::assemble(stage.program);
  return network;
}

std::vector<OverwrittenInput> overwritten_inputs(const Lowered& program,
                                                 std::span<const Step> steps, bool is_stepped) {
  std::vector<OverwrittenInput> found;
  const auto look_at = [&](std::span<const Step> together, int number) {
    const StepEdges edge = edges(program, together);
    for (const Operand& read : edge.reads) {
      const ByteRange range = byte_range(read);
      const auto writes_over = [&](const Operand& written) {
        return tenon::same_storage(read.place, written.place) &&
               (read.place.byte_step != written.place.byte_step ||
                byte_range(written).overlaps(range));
      };
      if (!std::ranges::any_of(edge.writes, writes_over)) continue;
      Place place = read.place;
      place.offset = range.begin;
      found.push_back({place, range.size(), number});
    }
  };
  if (!is_stepped) {
    look_at(steps, 0);
    return found;
  }
  for (std::size_t i = 0; i < steps.size(); ++i) look_at(steps.subspan(i, 1), static_cast<int>(i));
  return found;
}

DeviceCode take_code(CompiledNetwork& network) {
  DeviceCode code;
  code.text = describe(network);
  for (const Layer& layer : network.bound.graph.layers) {
    code.layers.push_back({layer.values, kind_of(layer), layer.op, layer.step});
  }
  code.on_chip_bytes = on_chip_bytes(network);
  code.stages = std::move(network.stages);
  code.constants = std::move(network.image.bytes);
  code.ftmp_bytes = network.ftmp_bytes;
  code.placement = network.placement;
  code.predicted = std::move(network.predicted);
  code.is_stepped = !network.bound.graph.shown.empty();
  return code;
}

std::string disassemble(const DeviceCode& code) {
  std::string text;
  for (std::size_t s = 0; s < code.stages.size(); ++s) {
    const Stage& stage = code.stages[s];
    text += fmt::format("program {}:\n", s);
    int layer = -1;
    std::size_t index = 0;
    for (const isa::Instruction& instruction : stage.program.instructions) {
      const bool last = isa::engine(instruction) == isa::Engine::all;
      const int number = isa::common(instruction).layer;
      if (!last && number != layer) {
        layer = number;
        const DeviceLayer& of = code.layers[static_cast<std::size_t>(number)];
        text += fmt::format("; layer {} {} [{}]\n", number, of.kind, fmt::join(of.values, " "));
      }
      text += fmt::format("{:6}  {}\n", index++, isa::disassemble(instruction));
    }
  }
  return text;
}

}  // namespace tenon::npu
