#include <tenon/calibration.hpp>
#include <tenon/error.hpp>
#include <tenon/lowered.hpp>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace tenon::quant {

struct Calibration::Values {
  struct Entry {
    Observer tensor;
    std::vector<Observer> channels;
  };
  std::map<std::string, Entry, std::less<>> entries;
};

Calibration::Calibration(CalibrationOptions options)
    : options_(options), values_(std::make_unique<Values>()) {
  const Observer checked(options_.observer);
}
Calibration::~Calibration() = default;
Calibration::Calibration(Calibration&& other) noexcept = default;
Calibration& Calibration::operator=(Calibration&& other) noexcept = default;

void Calibration::observe(std::string_view value, const HostView& data) {
  const Shape& shape = data.shape;
  if (is_complex(shape.dtype()) && shape.rank() < max_rank) {  // devices see the parts
    HostView parts(data.data, shape.with_dtype(f32).with_axis(shape.rank(), Axis(2)), data.strides);
    parts.strides[static_cast<std::size_t>(shape.rank())] = block_bytes(f32);
    return observe(value, parts);
  }
  if (shape.dtype() != DType::f32 || shape.elements() == 0) return;
  if (data.data == nullptr) {
    throw Error(Errc::bad_argument, std::string(value),
                fmt::format("null for {}", to_string(shape)));
  }
  auto found = values_->entries.find(value);
  if (found == values_->entries.end()) {
    found =
        values_->entries.emplace(std::string(value), Values::Entry{Observer(options_.observer), {}})
            .first;
  }
  Values::Entry& entry = found->second;
  const int axis = shape.rank() == 4 ? 1 : shape.rank() - 1;
  const bool channels = options_.per_channel && axis >= 0;
  if (channels) {
    const auto count = static_cast<std::size_t>(shape[axis]);
    if (entry.channels.empty()) entry.channels.assign(count, Observer());
    if (entry.channels.size() != count) {
      throw Error(Errc::shape_mismatch, std::string(value),
                  fmt::format("{} channels were observed before, now {}", entry.channels.size(),
                              to_string(shape)));
    }
  }
  try {
    for_each_index(shape, [&](std::span<const std::int64_t> index) {
      const float x = *reinterpret_cast<const float*>(data.at(index));
      entry.tensor.observe(x);
      if (channels) {
        entry.channels[static_cast<std::size_t>(index[static_cast<std::size_t>(axis)])].observe(x);
      }
    });
  } catch (const Error& error) {
    throw Error(error.code(), std::string(value), error.message());
  }
}

CalibrationTable Calibration::table() const {
  CalibrationTable table;
  for (const auto& [name, entry] : values_->entries) {
    ValueRange& range = table.values[name];
    range.tensor = entry.tensor.range();
    for (const Observer& channel : entry.channels) range.channels.push_back(channel.range());
  }
  return table;
}

std::string value_name(std::string_view function, std::string_view value) {
  return fmt::format("{}{}{}", function, function.empty() ? "" : ".", value);
}
std::string value_name(const Step& step) { return value_name(step.function, step.value); }

std::string product_name(std::string_view value) { return std::string(value) + ".product"; }

const ValueRange* CalibrationTable::find(std::string_view value) const noexcept {
  const auto found = values.find(value);
  return found == values.end() ? nullptr : &found->second;
}

CalibrationTable CalibrationTable::of(const Lowered& program) const {
  CalibrationTable part;
  const auto take = [&](const std::string& name) {
    if (const ValueRange* range = find(name)) part.values.insert_or_assign(name, *range);
  };
  const auto take_steps = [&](auto&& self, std::span<const Step> steps) -> void {
    for (const Step& step : steps) {
      const std::string name = value_name(step);
      take(name);
      take(product_name(name));
      self(self, step.body);
    }
  };
  for (const InputSlot& input : program.inputs) take(input.name);
  for (const ConstantSlot& constant : program.constants) take(constant.name);
  take_steps(take_steps, program.steps);
  return part;
}

}  // namespace tenon::quant
