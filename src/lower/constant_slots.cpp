#include "lower/constant_slots.hpp"

#include "lower/flat_builder.hpp"

#include <tenon/error.hpp>
#include <tenon/object.hpp>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include <fmt/format.h>

namespace tenon::lowering {

Shape ConstantSlots::type_of(const Value& value, const SourceLine& line,
                             std::span<const std::string> names) const {
  if (value.shape && value.shape->is_static()) return *value.shape;
  const std::string where = place_text(line, value.name);
  std::optional<Shape> type;
  for (const std::string& name : names) {
    const std::optional<Shape> known = types_ ? types_(name) : std::nullopt;
    if (!known) {
      throw Error(Errc::bad_reference, where,
                  fmt::format("the type of constant '{}' is not known", name));
    }
    if (type && !(*type == *known)) {
      throw Error(Errc::shape_mismatch, where,
                  fmt::format("constant '{}' is {}, '{}' is {}: one loop needs one type", names[0],
                              to_string(*type), name, to_string(*known)));
    }
    type = known->without_tags();
  }
  return type.value_or(Shape());
}

std::vector<ConstantSlot> ConstantSlots::slots(std::vector<std::string> names, const Value& value,
                                               const SourceLine& line) {
  const Shape type = type_of(value, line, names);
  if (is_linear_object(type.dtype())) {
    throw Error(Errc::alias, place_text(line, value.name),
                fmt::format("a {} changes and is no constant", to_string(type)));
  }
  std::vector<ConstantSlot> slots;
  for (std::string& name : names) {
    const auto [declared, added] = declared_.emplace(name, type);
    if (!added && !(declared->second == type)) {
      throw Error(Errc::shape_mismatch, place_text(line, value.name),
                  fmt::format("constant '{}' is {} here and {} elsewhere", name, to_string(type),
                              to_string(declared->second)));
    }
    const bool folded = program_.folded.contains(name);
    slots.push_back({std::move(name), type, folded});
  }
  return slots;
}

std::uint32_t ConstantSlots::place(Flat& flat, std::vector<ConstantSlot> slots) {
  std::vector<Key> keys;
  keys.reserve(slots.size());
  for (const ConstantSlot& slot : slots) keys.emplace_back(slot.computed.has_value(), slot.name);
  const auto [first, added] =
      placed_.emplace(std::move(keys), static_cast<std::uint32_t>(flat.constants.size()));
  if (added) std::ranges::move(slots, std::back_inserter(flat.constants));
  return first->second;
}

}  // namespace tenon::lowering
