// The constants that a program reads by name.
#pragma once

#include "lower/flat.hpp"

#include <tenon/program.hpp>

#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tenon::lowering {

/// Finds the types of constants, and gives each set of them that a step reads its slots.
class ConstantSlots {
 public:
  ConstantSlots(const Program& program, const ConstantTypes& types)
      : program_(program), types_(types) {}

  /// The slots of what `value` is read from: one name, or one for each iteration of the loops around
  /// it. Throws Errc::bad_reference where no type is known, Errc::shape_mismatch where the names have
  /// different types, or one is declared otherwise elsewhere, and Errc::alias for objects that change.
  std::vector<ConstantSlot> slots(std::vector<std::string> names, const Value& value,
                                  const SourceLine& line);

  /// Puts slots of one type into `flat`, one after the other, where there are no equal ones yet;
  /// returns the first's number.
  std::uint32_t place(Flat& flat, std::vector<ConstantSlot> slots);

 private:
  Shape type_of(const Value& value, const SourceLine& line,
                std::span<const std::string> names) const;

  using Key = std::pair<bool, std::string>;  // whether it is computed, and its name

  const Program& program_;
  const ConstantTypes& types_;
  std::map<std::vector<Key>, std::uint32_t> placed_;  // the first slot of each set
  std::unordered_map<std::string, Shape> declared_;   // types of constants so far
};

}  // namespace tenon::lowering
