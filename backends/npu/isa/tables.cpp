#include "tables.hpp"

#include "encoding.hpp"

#include <tenon/error.hpp>
#include <tenon/npu/isa/registers.hpp>
#include <tenon/npu/isa/structures.hpp>

#include <functional>
#include <iterator>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

namespace tenon::npu::isa {
namespace {

template <class... Parts>
void add(std::string& to, fmt::format_string<Parts...> text, Parts&&... parts) {
  fmt::format_to(std::back_inserter(to), text, std::forward<Parts>(parts)...);
}

std::string_view letter(field_kind::u) { return "u"; }
std::string_view letter(field_kind::n) { return "n"; }
std::string_view letter(field_kind::s) { return "s"; }
std::string_view letter(field_kind::f) { return "f"; }

template <class Type>
std::string fields_table() {
  std::string text = "| bits | field | kind | meaning |\n|---|---|---|---|\n";
  for_each_field<Type>([&](const auto& field, unsigned lsb) {
    add(text, "| {}-{} | `{}` | {} | {} |\n", lsb, lsb + field.width - 1, field.name,
        letter(field.kind), field.meaning);
  });
  return text;
}

template <class Type>
std::string struct_table() {
  std::string text = "| byte | size | member | meaning |\n|---|---|---|---|\n";
  std::apply(
      [&](const auto&... member) {
        const Type value{};
        (add(text, "| {} | {} | `{}` | {} |\n", member.offset, sizeof(value.*member.member),
             member.name, member.meaning),
         ...);
      },
      Members<Type>::list);
  return text;
}

std::string enum_table(std::span<const EnumValue> all) {
  std::string text = "| value | name | meaning |\n|---|---|---|\n";
  for (const EnumValue& value : all) {
    add(text, "| {} | `{}` | {} |\n", value.value, value.name, value.meaning);
  }
  return text;
}

std::string opcode_table() {
  std::string text =
      "| opcode | instruction | mnemonic | engine | flags |\n|---|---|---|---|---|\n";
  const auto line = [&](std::string_view type, std::string_view mnemonic, Opcode code, Engine unit,
                        unsigned allowed) {
    std::string flags;
    for (const EnumValue& flag : values(Flag{})) {
      if ((allowed >> flag.value & 1U) == 0) continue;
      if (!flags.empty()) flags += ", ";
      flags += flag.name;
    }
    add(text, "| {:#04x} | {} | `{}` | {} | {} |\n", static_cast<unsigned>(code), type, mnemonic,
        name(unit), flags);
  };
#define TENON_NPU_OP(Type, id, code, unit, flag_mask) \
  line(#Type, Type::mnemonic, Type::opcode, Type::engine, Type::allowed_flags);
#include <tenon/npu/isa/isa.def>
  return text;
}

std::string_view letters(Access access) {
  switch (access) {
    case Access::ro:
      return "RO";
    case Access::rw:
      return "RW";
    case Access::wo:
      return "WO";
    case Access::w1c:
      break;
  }
  return "W1C";
}

std::string register_table() {
  std::string text = "| offset | name | access | meaning |\n|---|---|---|---|\n";
  for (const RegisterInfo& info : registers()) {
    add(text, "| {:03X} | `{}` | {} | {} |\n", info.offset, info.name, letters(info.access),
        info.meaning);
  }
  return text;
}

std::string bits_table() {
  std::string text = "| register | bits | name | meaning |\n|---|---|---|---|\n";
#define TENON_NPU_BITS(reg, id, lsb, width, meaning) \
  add(text, "| `{}` | {}-{} | `{}` | {} |\n", #reg, lsb, lsb + width - 1, #id, meaning);
#include <tenon/npu/isa/isa.def>
  return text;
}

std::string counter_table() {
  std::string text = "| offset | name | meaning |\n|---|---|---|\n";
  for (const RegisterInfo& info : counters()) {
    add(text, "| {:03X} | `{}` | {} |\n", info.offset, info.name, info.meaning);
  }
  return text;
}

struct Table {
  std::string_view name;
  std::string (*make)();
};

constexpr Table tables[] = {
    {"opcodes", opcode_table},
    {"registers", register_table},
    {"bits", bits_table},
    {"counters", counter_table},
#define TENON_NPU_OP(Type, id, code, engine, flags) {#Type, fields_table<Type>},
#define TENON_NPU_STRUCT(Type, size, meaning) {#Type, struct_table<Type>},
#define TENON_NPU_ENUM(Type, meaning) {#Type, [] { return enum_table(values(Type{})); }},
#include <tenon/npu/isa/isa.def>
};

}  // namespace

std::vector<std::string> table_names() {
  std::vector<std::string> names;
  for (const Table& known : tables) names.emplace_back(known.name);
  return names;
}

std::string table(std::string_view name) {
  for (const Table& known : tables) {
    if (known.name == name) return known.make();
  }
  return {};
}

std::string fill_tables(std::string_view page) {
  constexpr std::string_view begin_mark = "<!-- table: ";
  constexpr std::string_view close = " -->\n";
  constexpr std::string_view end_mark = "<!-- end -->";
  std::string result;
  for (std::size_t at = 0;;) {
    const std::size_t begin = page.find(begin_mark, at);
    if (begin == std::string_view::npos) return result += page.substr(at);
    const std::size_t word = begin + begin_mark.size();
    const std::size_t closed = page.find(close, word);
    const std::size_t end = page.find(end_mark, word);
    if (closed == std::string_view::npos || end == std::string_view::npos || end < closed) {
      throw Error(Errc::syntax, fmt::format("page:{}", begin), "a table mark without its end");
    }
    const std::string_view name = page.substr(word, closed - word);
    const std::string text = table(name);
    if (text.empty()) {
      throw Error(Errc::syntax, fmt::format("page:{}", begin), fmt::format("no table '{}'", name));
    }
    result += page.substr(at, closed + close.size() - at);
    result += text;
    at = end;
  }
}

}  // namespace tenon::npu::isa
