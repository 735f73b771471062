#include <tenon/npu/isa/structures.hpp>

#include <type_traits>

namespace tenon::npu::isa {
namespace {

template <class Value>
void store(std::byte* to, Value value) noexcept {
  const auto raw = static_cast<std::make_unsigned_t<Value>>(value);
  for (std::size_t i = 0; i < sizeof(Value); ++i) {
    to[i] = static_cast<std::byte>(static_cast<std::uint64_t>(raw) >> (8 * i));
  }
}

template <class Value>
Value fetch(const std::byte* from) noexcept {
  std::uint64_t raw = 0;
  for (std::size_t i = 0; i < sizeof(Value); ++i) {
    raw |= std::uint64_t{std::to_integer<std::uint8_t>(from[i])} << (8 * i);
  }
  return static_cast<Value>(raw);
}

constexpr std::array<std::uint32_t, 256> crc_table = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ ((value & 1) != 0 ? 0x82F63B78U : 0U);
    table[i] = value;
  }
  return table;
}();

}  // namespace

template <class Type>
std::array<std::byte, Type::size_bytes> pack(const Type& value) noexcept {
  std::array<std::byte, Type::size_bytes> bytes{};
  std::apply(
      [&](const auto&... member) {
        (store(bytes.data() + member.offset, value.*member.member), ...);
      },
      Members<Type>::list);
  return bytes;
}

template <class Type>
Type unpack(const std::byte* from, bool* reserved_clear) noexcept {
  Type value;
  std::apply(
      [&](const auto&... member) {
        ((value.*member.member =
              fetch<std::remove_cvref_t<decltype(value.*member.member)>>(from + member.offset)),
         ...);
      },
      Members<Type>::list);
  if (reserved_clear != nullptr) {
    const auto again = pack(value);
    *reserved_clear = true;
    for (std::size_t i = 0; i < Type::size_bytes; ++i) {
      if (again[i] != from[i]) *reserved_clear = false;
    }
  }
  return value;
}

#define TENON_NPU_STRUCT(Type, size, meaning)                                  \
  template std::array<std::byte, Type::size_bytes> pack(const Type&) noexcept; \
  template Type unpack(const std::byte*, bool*) noexcept;
#include <tenon/npu/isa/isa.def>

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t seed) noexcept {
  std::uint32_t crc = ~seed;
  for (const std::byte byte : bytes) {
    crc = crc >> 8 ^ crc_table[(crc ^ std::to_integer<std::uint32_t>(byte)) & 0xFF];
  }
  return ~crc;
}

}  // namespace tenon::npu::isa
