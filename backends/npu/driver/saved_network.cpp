#include "compile.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace tenon::npu {
namespace {

constexpr std::uint64_t format_version = 1;

/// The header before the programs; each field is 64 bits, little-endian.
struct Field {
  std::string_view name;
  std::uint64_t value;
};

constexpr std::size_t choice_fields = 2;  // the last two: what the compiler chose

std::vector<Field> fields_of(const isa::Caps& caps, const CompiledNetwork& network) {
  return {{"the format", format_version},
          {"the number of rows of the array", caps.array_rows},
          {"the number of columns of the array", caps.array_cols},
          {"the size of OCM", caps.ocm_bytes},
          {"the size of ACC", caps.acc_bytes},
          {"the flow", static_cast<std::uint64_t>(caps.flow)},
          {"the number of weight buffers", caps.wbuf},
          {"profile m8", caps.m8},
          {"the number of layers", network.bound.graph.layers.size()},
          {"the checksum of weights and calibration", network.constant_crc},
          {"the placement", static_cast<std::uint64_t>(network.placement)},
          {"the memory for tiles", static_cast<std::uint64_t>(network.work_bytes)}};
}

std::uint64_t number_at(std::span<const std::byte> bytes, std::size_t index) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < 8; ++i) {
    value |= std::to_integer<std::uint64_t>(bytes[index * 8 + i]) << (8 * i);
  }
  return value;
}

}  // namespace

std::vector<std::byte> save_network(const CompiledNetwork& network, const isa::Caps& caps) {
  std::vector<std::byte> bytes;
  for (const Field& field : fields_of(caps, network)) {
    for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<std::byte>(field.value >> (8 * i)));
  }
  for (const Stage& stage : network.stages) {
    bytes.insert(bytes.end(), stage.bytes.begin(), stage.bytes.end());
  }
  return bytes;
}

CompiledNetwork restore_network(BoundGraph bound, const Lowered& program, const isa::Caps& caps,
                                bool merge, std::span<const std::byte> saved) {
  const std::size_t count = fields_of(caps, {}).size();
  if (saved.size() < count * 8) {
    throw Error(Errc::corrupt, "npu", fmt::format("a saved network of {} bytes", saved.size()));
  }
  const std::uint64_t placement = number_at(saved, count - choice_fields);
  const std::uint64_t work_bytes = number_at(saved, count - choice_fields + 1);
  if (placement > static_cast<std::uint64_t>(Placement::evict) || work_bytes == 0 ||
      work_bytes > caps.ocm_bytes) {
    throw Error(Errc::incompatible, "npu",
                fmt::format("saved with placement {} and {} bytes for tiles, of {} on chip",
                            placement, work_bytes, caps.ocm_bytes));
  }
  CompileOptions options;
  options.placement = static_cast<Placement>(placement);
  options.merge = merge;
  options.work_bytes = static_cast<std::int64_t>(work_bytes);
  CompiledNetwork network = compile_network(std::move(bound), program, caps, options);

  const std::vector<Field> fields = fields_of(caps, network);
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const std::uint64_t value = number_at(saved, i);
    if (value == fields[i].value) continue;
    throw Error(Errc::incompatible, "npu",
                fmt::format("{} was {} when the network was saved, and is {}", fields[i].name,
                            value, fields[i].value));
  }
  if (!std::ranges::equal(save_network(network, caps), saved)) {
    throw Error(Errc::incompatible, "npu", "the saved programs are not what this compiler makes");
  }
  return network;
}

}  // namespace tenon::npu
