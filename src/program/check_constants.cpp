#include "program/constant_names.hpp"
#include "program/findings.hpp"

#include <tenon/error.hpp>

#include <unordered_map>

#include <fmt/format.h>

// A constant is one array, however it is named: directly, through a scope, or in an iteration of a
// loop. The types that the program declares for one name must not contradict each other, nor the
// folded value of that name.

namespace tenon::checking {
namespace {

/// Whether both types can be those of one array; symbolic sizes match any.
bool may_agree(const Shape& a, const Shape& b) {
  if (a.rank() != b.rank() || a.dtype() != b.dtype()) return false;
  for (int i = 0; i < a.rank(); ++i) {
    if (is_static(a[i]) && is_static(b[i]) && a[i] != b[i]) return false;
  }
  return true;
}

const Value& value_of(const Program& program, const ConstantPlace& use) {
  const Function& function = program.functions[use.function];
  return function.values[function.body[use.instruction].result];
}

std::string line_text(const Program& program, const ConstantPlace& use) {
  const SourceLine& line = program.functions[use.function].body[use.instruction].line;
  return line.line > 0 ? fmt::format(" at line {}", line.line) : std::string();
}

}  // namespace

void check_constants(const Program& program, Findings& findings) {
  std::unordered_map<std::string, ConstantPlace> first;
  for_each_constant(program, [&](const ConstantPlace& use, const std::string& name) {
    const Value& value = value_of(program, use);
    if (!value.shape) return;
    const Spot spot{static_cast<int>(use.function), static_cast<int>(use.instruction),
                    Spot::nowhere};
    const auto folded = program.folded.find(name);
    if (folded != program.folded.end() && !may_agree(*value.shape, folded->second.shape())) {
      findings.add(Errc::shape_mismatch, spot,
                   fmt::format("'{}' takes constant '{}' for {}, its value is {}", value.name, name,
                               to_string(*value.shape), to_string(folded->second.shape())));
    }
    const auto [known, added] = first.emplace(name, use);
    if (added) return;
    const Value& other = value_of(program, known->second);
    if (may_agree(*value.shape, *other.shape)) return;
    findings.add(Errc::shape_mismatch, spot,
                 fmt::format("'{}' takes constant '{}' for {}, '{}'{} for {}", value.name, name,
                             to_string(*value.shape), other.name, line_text(program, known->second),
                             to_string(*other.shape)));
  });
}

}  // namespace tenon::checking
