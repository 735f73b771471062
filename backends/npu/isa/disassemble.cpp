#include "encoding.hpp"

#include <tenon/npu/isa/program.hpp>

#include <iterator>

#include <fmt/format.h>

namespace tenon::npu::isa {
namespace {

std::string tokens(const Deps& deps) {
  std::string text;
  const auto add = [&](bool set, std::string_view word) {
    if (!set) return;
    if (!text.empty()) text += ' ';
    text += word;
  };
  add(deps.pop_prev, "pop_prev");
  add(deps.pop_next, "pop_next");
  add(deps.push_prev, "push_prev");
  add(deps.push_next, "push_next");
  return text.empty() ? text : " [" + text + "]";
}

template <class Type>
std::string line(const Type& value) {
  std::string text = fmt::format("{:<9} l={}{}", Type::mnemonic, value.layer, tokens(value.deps));
  for (const EnumValue& flag : values(Flag{})) {
    if (value.has(static_cast<Flag>(flag.value)))
      fmt::format_to(std::back_inserter(text), " {}", flag.name);
  }
  for_each_field<Type>([&](const auto& field, unsigned) {
    fmt::format_to(std::back_inserter(text), " {}={}", field.name, value.*field.member);
  });
  return text;
}

}  // namespace

std::string_view name(Engine engine) noexcept {
  switch (engine) {
    case Engine::ld:
      return "LD";
    case Engine::ex:
      return "EX";
    case Engine::st:
      return "ST";
    case Engine::all:
      break;
  }
  return "front end";
}

Opcode opcode(const Instruction& instruction) noexcept {
  return std::visit([](const auto& value) { return value.opcode; }, instruction);
}

Engine engine(const Instruction& instruction) noexcept {
  return std::visit([](const auto& value) { return value.engine; }, instruction);
}

std::string_view mnemonic(const Instruction& instruction) noexcept {
  return std::visit([](const auto& value) { return value.mnemonic; }, instruction);
}

const Common& common(const Instruction& instruction) noexcept {
  return std::visit([](const auto& value) -> const Common& { return value; }, instruction);
}

Common& common(Instruction& instruction) noexcept {
  return std::visit([](auto& value) -> Common& { return value; }, instruction);
}

std::string disassemble(const Instruction& instruction) {
  return std::visit([](const auto& value) { return line(value); }, instruction);
}

std::string disassemble(const Program& program) {
  std::string text;
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    fmt::format_to(std::back_inserter(text), "{:>6}  {}\n", i,
                   disassemble(program.instructions[i]));
  }
  return text;
}

}  // namespace tenon::npu::isa
