#include "program/findings.hpp"

#include <tenon/error.hpp>
#include <tenon/program.hpp>

#include <fmt/format.h>

namespace tenon {
namespace checking {

std::vector<Finding> check(Program& program, bool fill) {
  Findings findings;
  check_structure(program, findings);
  if (!findings.empty()) return findings.take();
  const std::vector<int> order = check_calls(program, findings);
  if (!findings.empty()) return findings.take();
  check_linearity(program, order, findings);
  check_constants(program, findings);
  check_types(program, fill && findings.empty(), findings);
  return findings.take();
}

std::string_view spelling(const Instruction& instruction) noexcept {
  switch (instruction.kind) {
    case Instruction::Kind::op:
      return instruction.op.def() != nullptr ? instruction.op.def()->name : "an op";
    case Instruction::Kind::constant:
      return "const";
    case Instruction::Kind::scope:
      return "scope";
    case Instruction::Kind::pack:
      return "pack";
    case Instruction::Kind::item:
      return "item";
    case Instruction::Kind::repeat:
      return "repeat";
    case Instruction::Kind::call:
      return instruction.function;
  }
  return "an instruction";
}

namespace {

SourceLine line_of(const Program& program, const Spot& spot) {
  if (spot.function < 0 || spot.instruction < 0) return {};
  return program.functions[static_cast<std::size_t>(spot.function)]
      .body[static_cast<std::size_t>(spot.instruction)]
      .line;
}

std::string where_of(const Program& program, const Spot& spot) {
  const SourceLine line = line_of(program, spot);
  if (line.line > 0) {
    const std::string place =
        fmt::format("{}:{}", line.file.empty() ? "line" : line.file, line.line);
    return line.column > 0 ? fmt::format("{}:{}", place, line.column) : place;
  }
  if (spot.function < 0) return program.name;
  return program.functions[static_cast<std::size_t>(spot.function)].name;
}

/// The op or callee of an instruction, for messages.
std::string described(const Program& program, const Finding& finding) {
  const Spot& spot = finding.spot;
  if (spot.function < 0 || spot.instruction < 0) return finding.message;
  const Function& function = program.functions[static_cast<std::size_t>(spot.function)];
  const Instruction& instruction = function.body[static_cast<std::size_t>(spot.instruction)];
  return fmt::format("{}: {}", spelling(instruction), finding.message);
}

}  // namespace
}  // namespace checking

void verify(Program& program) {
  const std::vector<checking::Finding> findings = checking::check(program, true);
  if (findings.empty()) return;
  throw Error(findings[0].code, checking::where_of(program, findings[0].spot),
              checking::described(program, findings[0]));
}

std::vector<Diagnostic> check_program(Program& program) {
  std::vector<Diagnostic> result;
  for (const checking::Finding& finding : checking::check(program, true)) {
    result.push_back({finding.code, checking::line_of(program, finding.spot),
                      checking::described(program, finding)});
  }
  return result;
}

}  // namespace tenon
