#include "encoding.hpp"

#include <tenon/error.hpp>

#include <bit>
#include <optional>

#include <fmt/format.h>

namespace tenon::npu::isa {
namespace {

void put(Word& word, unsigned lsb, unsigned width, std::uint64_t value) noexcept {
  word[lsb / 64] |= value << lsb % 64;
  if (lsb % 64 + width > 64) word[lsb / 64 + 1] |= value >> (64 - lsb % 64);
}

std::uint64_t take(const Word& word, unsigned lsb, unsigned width) noexcept {
  std::uint64_t value = word[lsb / 64] >> lsb % 64;
  if (lsb % 64 + width > 64) value |= word[lsb / 64 + 1] << (64 - lsb % 64);
  return value & ((std::uint64_t{1} << width) - 1);
}

std::optional<std::uint64_t> to_bits(field_kind::u, std::uint32_t value, unsigned width) {
  if (std::uint64_t{value} >> width != 0) return std::nullopt;
  return value;
}
std::optional<std::uint64_t> to_bits(field_kind::n, std::uint32_t value, unsigned width) {
  if (value == 0) return std::nullopt;
  return to_bits(field_kind::u{}, value - 1, width);
}
std::optional<std::uint64_t> to_bits(field_kind::s, std::int32_t value, unsigned width) {
  const std::int64_t half = std::int64_t{1} << (width - 1);
  if (value < -half || value >= half) return std::nullopt;
  return static_cast<std::uint64_t>(value) & ((std::uint64_t{1} << width) - 1);
}
std::optional<std::uint64_t> to_bits(field_kind::f, float value, unsigned) {
  return std::bit_cast<std::uint32_t>(value);
}

std::uint32_t from_bits(field_kind::u, std::uint64_t bits, unsigned) {
  return static_cast<std::uint32_t>(bits);
}
std::uint32_t from_bits(field_kind::n, std::uint64_t bits, unsigned) {
  return static_cast<std::uint32_t>(bits + 1);
}
std::int32_t from_bits(field_kind::s, std::uint64_t bits, unsigned width) {
  const std::int64_t half = std::int64_t{1} << (width - 1);
  return static_cast<std::int32_t>((static_cast<std::int64_t>(bits) ^ half) - half);
}
float from_bits(field_kind::f, std::uint64_t bits, unsigned) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
}

std::uint64_t deps_bits(const Deps& deps) noexcept {
  return std::uint64_t{deps.pop_prev} | std::uint64_t{deps.pop_next} << 1 |
         std::uint64_t{deps.push_prev} << 2 | std::uint64_t{deps.push_next} << 3;
}

template <class Type>
Word encode_as(const Type& value) {
  Word word{};
  put(word, 0, 8, static_cast<std::uint64_t>(Type::opcode));
  put(word, deps_lsb, 4, deps_bits(value.deps));
  put(word, flags_lsb, 4, value.flags);
  put(word, layer_lsb, 16, value.layer);
  for_each_field<Type>([&](const auto& field, unsigned lsb) {
    const auto bits = to_bits(field.kind, value.*field.member, field.width);
    if (!bits) {
      throw Error(Errc::out_of_range, std::string(Type::mnemonic),
                  fmt::format("{} = {} does not fit its {} bits", field.name, value.*field.member,
                              field.width));
    }
    put(word, lsb, field.width, *bits);
  });
  return word;
}

template <class Type>
Decoded decode_as(const Word& word) noexcept {
  Type value;
  const auto deps = static_cast<unsigned>(take(word, deps_lsb, 4));
  value.deps = {(deps & 1) != 0, (deps & 2) != 0, (deps & 4) != 0, (deps & 8) != 0};
  value.flags = static_cast<std::uint8_t>(take(word, flags_lsb, 4));
  value.layer = static_cast<std::uint16_t>(take(word, layer_lsb, 16));
  const unsigned end = for_each_field<Type>([&](const auto& field, unsigned lsb) {
    value.*field.member = from_bits(field.kind, take(word, lsb, field.width), field.width);
  });
  for (unsigned bit = end; bit < word_bits; ++bit) {
    if (take(word, bit, 1) != 0) return {false, value, "a reserved bit is set"};
  }
  const Instruction instruction = value;
  if (const std::string_view rule = broken_rule(instruction); !rule.empty()) {
    return {false, instruction, rule};
  }
  return {true, instruction, {}};
}

}  // namespace

Word encode(const Instruction& instruction) {
  if (const std::string_view rule = broken_rule(instruction); !rule.empty()) {
    throw Error(Errc::bad_attribute, std::string(mnemonic(instruction)), std::string(rule));
  }
  return std::visit([](const auto& value) { return encode_as(value); }, instruction);
}

Decoded try_decode(const Word& word) noexcept {
  switch (static_cast<Opcode>(word[0] & 0xFF)) {
#define TENON_NPU_OP(Type, id, code, engine, flags) \
  case Opcode::id:                                  \
    return decode_as<Type>(word);
#include <tenon/npu/isa/isa.def>
  }
  return {false, {}, "an unknown opcode"};
}

Instruction decode(const Word& word) {
  const Decoded decoded = try_decode(word);
  if (!decoded.legal) {
    throw Error(Errc::corrupt, "npu instruction", std::string(decoded.reason));
  }
  return decoded.instruction;
}

}  // namespace tenon::npu::isa
