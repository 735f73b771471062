#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <tuple>

namespace tenon::npu::isa {

namespace member_type {
using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using i32 = std::int32_t;
}  // namespace member_type

inline constexpr std::uint32_t program_magic = 0x50504E54;   ///< "TNPP"
inline constexpr std::uint32_t max_instructions = 1U << 20;  ///< of one program
inline constexpr std::uint32_t fence_irq = 1;                ///< flag of the command fence

// ProgramHeader, QuantRecord, Descriptor: what isa.def says of them. `size_bytes` is their size in
// memory, where they lie little-endian and without the compiler's padding.
#define TENON_NPU_STRUCT(Type, size, meaning) \
  struct Type {                               \
    static constexpr std::size_t size_bytes = size;
#define TENON_NPU_MEMBER(name, offset, type, meaning) member_type::type name = 0;
#define TENON_NPU_STRUCT_END(Type)                            \
  friend bool operator==(const Type&, const Type&) = default; \
  }                                                           \
  ;
#include <tenon/npu/isa/isa.def>

/// A member of such a structure.
template <class Type, class Value>
struct Member {
  std::string_view name;
  std::size_t offset;
  Value Type::* member;
  std::string_view meaning;
};

/// `Members<Type>::list`: a tuple of every Member.
template <class Type>
struct Members;
template <class... Parts>
constexpr auto member_list(int, Parts... members) {
  return std::tuple{members...};
}
#define TENON_NPU_STRUCT(Type, size, meaning) \
  template <>                                 \
  struct Members<Type> {                      \
    using Self = Type;                        \
    static constexpr auto list = member_list(0
#define TENON_NPU_MEMBER(name, offset, type, meaning) \
  , Member<Self, member_type::type> { #name, offset, &Self::name, meaning }
#define TENON_NPU_STRUCT_END(Type) \
  );                               \
  }                                \
  ;
#include <tenon/npu/isa/isa.def>

/// The structure's bytes, and back. unpack() reads exactly `Type::size_bytes` bytes at `from` and
/// says through `reserved_clear` whether the bytes that no member covers are zero.
template <class Type>
std::array<std::byte, Type::size_bytes> pack(const Type& value) noexcept;
template <class Type>
Type unpack(const std::byte* from, bool* reserved_clear = nullptr) noexcept;

/// CRC-32C (polynomial 0x1EDC6F41 reflected, initial and final value all ones). `seed` is the CRC
/// of the bytes before, for checksums over several pieces.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t seed = 0) noexcept;

#define TENON_NPU_STRUCT(Type, size, meaning)                                         \
  extern template std::array<std::byte, Type::size_bytes> pack(const Type&) noexcept; \
  extern template Type unpack(const std::byte*, bool*) noexcept;
#include <tenon/npu/isa/isa.def>

}  // namespace tenon::npu::isa
