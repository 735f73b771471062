#include "saved_network.hpp"

#include <tenon/calibration.hpp>
#include <tenon/error.hpp>

#include <bit>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace tenon::npu {
namespace {

/// Counts changes of what the bytes mean, the places of constants included.
constexpr std::uint64_t format_version = 2;

struct Capability {
  std::string_view name;
  std::uint64_t value;
};

std::vector<Capability> capabilities(const isa::Caps& caps) {
  return {{"the number of rows of the array", caps.array_rows},
          {"the number of columns of the array", caps.array_cols},
          {"the size of OCM", caps.ocm_bytes},
          {"the size of ACC", caps.acc_bytes},
          {"the flow", static_cast<std::uint64_t>(caps.flow)},
          {"the number of weight buffers", caps.wbuf},
          {"profile m8", caps.m8}};
}

[[noreturn]] void refuse(std::string message) {
  throw Error(Errc::corrupt, "npu", fmt::format("a saved network: {}", message));
}

/// Numbers of 64 bits, little-endian; bytes and texts behind their length.
class Writer {
 public:
  void number(std::uint64_t value) {
    for (int i = 0; i < 8; ++i) bytes_.push_back(static_cast<std::byte>(value >> (8 * i)));
  }
  void bytes(std::span<const std::byte> value) {
    number(value.size());
    bytes_.insert(bytes_.end(), value.begin(), value.end());
  }
  void text(std::string_view value) { bytes(std::as_bytes(std::span(value))); }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : rest_(bytes) {}

  std::uint64_t number() {
    const auto from = take(8);
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < 8; ++i) {
      value |= std::to_integer<std::uint64_t>(from[i]) << (8 * i);
    }
    return value;
  }
  /// A number up to `limit`.
  std::uint64_t number(std::uint64_t limit, std::string_view what) {
    const std::uint64_t value = number();
    if (value > limit) refuse(fmt::format("{} is {}", what, value));
    return value;
  }
  /// How many items follow, each of 8 bytes at least.
  std::size_t count() {
    return static_cast<std::size_t>(number(rest_.size() / 8, "a number of items"));
  }
  std::span<const std::byte> bytes() { return take(number(rest_.size(), "a length")); }
  std::string text() {
    const auto from = bytes();
    return {reinterpret_cast<const char*>(from.data()), from.size()};
  }
  bool at_end() const noexcept { return rest_.empty(); }

 private:
  std::span<const std::byte> take(std::uint64_t count) {
    if (count > rest_.size()) refuse("it is cut short");
    const auto taken = rest_.first(static_cast<std::size_t>(count));
    rest_ = rest_.subspan(static_cast<std::size_t>(count));
    return taken;
  }

  std::span<const std::byte> rest_;
};

// ---- the header: format, capabilities, calibration ------------------------------------------------

void write_header(Writer& writer, const isa::Caps& caps, const std::string& calibration) {
  writer.number(format_version);
  for (const Capability& capability : capabilities(caps)) writer.number(capability.value);
  writer.text(calibration);
}

/// Reads it; throws for other capabilities than those of `caps`, unless that is null.
std::string read_header(Reader& reader, const isa::Caps* caps) {
  if (const std::uint64_t format = reader.number(); format != format_version) {
    throw Error(
        Errc::incompatible, "npu",
        fmt::format("the format of saved programs was {}, and is {}", format, format_version));
  }
  for (const Capability& capability : capabilities(caps != nullptr ? *caps : isa::Caps())) {
    const std::uint64_t was = reader.number();
    if (caps == nullptr || was == capability.value) continue;
    throw Error(Errc::incompatible, "npu",
                fmt::format("{} was {} when the programs were saved, and is {}", capability.name,
                            was, capability.value));
  }
  return reader.text();
}

// ---- layers and stages ----------------------------------------------------------------------------

void write(Writer& writer, const std::optional<WindowPlace>& window) {
  writer.number(window ? 1 : 0);
  if (!window) return;
  writer.number(static_cast<std::uint64_t>(window->place.kind));
  writer.number(window->place.index);
}

std::optional<WindowPlace> read_window(Reader& reader, const Lowered& program) {
  if (reader.number(1, "a window") == 0) return std::nullopt;
  Place place;
  place.kind = static_cast<Place::Kind>(
      reader.number(static_cast<std::uint64_t>(Place::Kind::shared_scratch), "a window's kind"));
  place.index = static_cast<std::uint32_t>(reader.number(~std::uint32_t{0}, "a window"));
  const auto bytes = bytes_of(place, program);
  if (!bytes) refuse("a window into memory that the program does not have");
  return WindowPlace{place, *bytes};
}

void write(Writer& writer, const Stage& stage) {
  write(writer, stage.input);
  write(writer, stage.output);
  writer.number(stage.layers.size());
  for (const std::size_t layer : stage.layers) writer.number(layer);
  writer.bytes(stage.bytes);
}

Stage read_stage(Reader& reader, const Lowered& program, std::size_t layers) {
  Stage stage;
  stage.input = read_window(reader, program);
  stage.output = read_window(reader, program);
  stage.layers.resize(reader.count());
  for (std::size_t& layer : stage.layers) {
    layer = reader.number();
    if (layer >= layers) refuse(fmt::format("layer {} of {}", layer, layers));
  }
  const auto bytes = reader.bytes();
  stage.bytes.assign(bytes.begin(), bytes.end());
  try {
    stage.program = isa::parse_program(bytes);
  } catch (const Error& error) {
    refuse(error.what());
  }
  for (const isa::Instruction& instruction : stage.program.instructions) {
    const std::size_t layer = isa::common(instruction).layer;
    if (layer >= layers) refuse(fmt::format("an instruction of layer {} of {}", layer, layers));
  }
  return stage;
}

void write(Writer& writer, const DeviceLayer& layer) {
  writer.number(layer.values.size());
  for (const std::string& value : layer.values) writer.text(value);
  writer.text(layer.kind);
  writer.text(layer.op);
}

DeviceLayer read_layer(Reader& reader) {
  DeviceLayer layer;
  layer.values.resize(reader.count());
  if (layer.values.empty()) refuse("a layer without values");
  for (std::string& value : layer.values) value = reader.text();
  layer.kind = reader.text();
  layer.op = reader.text();
  return layer;
}

// ---- the form of a value --------------------------------------------------------------------------

void write(Writer& writer, const std::vector<float>& factors) {
  writer.number(factors.size());
  for (const float factor : factors) writer.number(std::bit_cast<std::uint32_t>(factor));
}

std::vector<float> read_factors(Reader& reader) {
  std::vector<float> factors(reader.count());
  for (float& factor : factors) {
    factor = std::bit_cast<float>(
        static_cast<std::uint32_t>(reader.number(~std::uint32_t{0}, "a factor")));
  }
  return factors;
}

void write(Writer& writer, const std::optional<StoredForm>& form) {
  writer.number(form ? 1 : 0);
  if (!form) return;
  writer.number(form->software == stored_form(true).software ? 1 : 0);
  write(writer, form->quant.scale);
  write(writer, form->quant.normratio);
}

std::optional<StoredForm> read_form(Reader& reader, std::span<const Step> steps) {
  if (reader.number(1, "a form") == 0) return std::nullopt;
  if (steps.size() != 1) refuse("the form of one value of several");
  const Shape& shape = steps.front().output.shape;
  const bool is_image = reader.number(1, "a form's layout") == 1;
  if (shape.rank() < 1 || (is_image && shape.rank() != 4)) refuse("a form of another shape");
  StoredForm form = stored_form(is_image);
  form.quant.scale = read_factors(reader);
  form.quant.normratio = read_factors(reader);
  try {
    form.quant.check(is_image ? shape[1] : shape[shape.rank() - 1]);
  } catch (const Error& error) {
    refuse(error.what());
  }
  return form;
}

}  // namespace

std::vector<std::byte> save_network(const DeviceCode& code, std::span<const std::byte> constants,
                                    const std::optional<StoredForm>& form,
                                    const std::string& calibration, const isa::Caps& caps) {
  Writer writer;
  write_header(writer, caps, calibration);
  writer.number(static_cast<std::uint64_t>(code.placement));
  writer.number(static_cast<std::uint64_t>(code.ftmp_bytes));
  writer.number(static_cast<std::uint64_t>(code.on_chip_bytes));
  for (const std::uint64_t predicted : {code.predicted.cycles, code.predicted.ddr_read,
                                        code.predicted.ddr_write, code.predicted.macs}) {
    writer.number(predicted);
  }
  writer.text(code.text);
  writer.number(code.layers.size());
  for (const DeviceLayer& layer : code.layers) write(writer, layer);
  writer.number(code.stages.size());
  for (const Stage& stage : code.stages) write(writer, stage);
  write(writer, form);
  writer.bytes(constants);
  return writer.take();
}

StoredForm stored_form(bool is_image) {
  return {.software = Layout(is_image ? "NCHW" : "*C"),
          .hardware = Layout(is_image ? "NCHWc32" : "*Cc32"),
          .quant = {}};
}

SavedNetwork restore_network(std::span<const std::byte> saved, const Lowered& program,
                             std::span<const Step> steps, const isa::Caps& caps) {
  constexpr std::uint64_t most = std::uint64_t{1} << 40;
  Reader reader(saved);
  SavedNetwork network;
  network.calibration = read_header(reader, &caps);
  DeviceCode& code = network.code;
  code.placement = static_cast<Placement>(
      reader.number(static_cast<std::uint64_t>(Placement::evict), "the placement"));
  code.ftmp_bytes = static_cast<std::int64_t>(reader.number(most, "the size of ftmp"));
  code.on_chip_bytes = static_cast<std::int64_t>(reader.number(most, "a size on chip"));
  for (std::uint64_t* const predicted : {&code.predicted.cycles, &code.predicted.ddr_read,
                                         &code.predicted.ddr_write, &code.predicted.macs}) {
    *predicted = reader.number();
  }
  code.text = reader.text();
  const std::size_t layers = reader.count();
  for (std::size_t i = 0; i < layers; ++i) code.layers.push_back(read_layer(reader));
  const std::size_t stages = reader.count();
  if (stages == 0) refuse("it has no programs");
  for (std::size_t i = 0; i < stages; ++i) {
    code.stages.push_back(read_stage(reader, program, layers));
  }
  network.form = read_form(reader, steps);
  const auto constants = reader.bytes();
  code.constants.assign(constants.begin(), constants.end());
  if (!reader.at_end()) refuse("something follows its end");
  code.overwritten = overwritten_inputs(program, steps, /*is_stepped=*/false);
  return network;
}

std::string describe(const isa::Caps& caps) {
  std::string text = fmt::format("format {}", format_version);
  for (const Capability& capability : capabilities(caps)) {
    text += fmt::format(", {} {}", capability.name, capability.value);
  }
  return text;
}

CalibrationTable calibration_of(std::span<const std::byte> saved) {
  Reader reader(saved);
  return CalibrationTable::from_text(read_header(reader, nullptr), "saved calibration");
}

}  // namespace tenon::npu
