#pragma once

#include <tenon/npu/isa/enums.hpp>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <variant>

namespace tenon::npu::isa {

inline constexpr std::uint16_t version_major = 1;
inline constexpr std::uint16_t version_minor = 0;
/// Version of this instruction set, as registers and program headers hold it.
inline constexpr std::uint32_t version = std::uint32_t{version_major} << 16 | version_minor;

inline constexpr std::uint32_t lanes = 32;  ///< channels of a line and of an ACC row
/// Blocks of `lanes` that hold so many channels.
constexpr std::uint32_t blocks_of(std::uint32_t channels) noexcept {
  return channels / lanes + std::uint32_t{channels % lanes != 0};
}
inline constexpr std::uint32_t line_bytes = 32;      ///< a line of OCM: one pixel of 32 channels
inline constexpr std::uint32_t acc_row_bytes = 128;  ///< a row of ACC: 32 int32
inline constexpr std::uint32_t instruction_bytes = 32;
inline constexpr std::uint32_t max_reduction = 131072;  ///< longest sum of one instruction
inline constexpr std::uint32_t ocm_place = 7;           ///< CVT: "OCM" where a segment could stand

/// An instruction as it lies in memory: 256 bits, the least significant 64 first, little-endian.
using Word = std::array<std::uint64_t, 4>;

/// The engines form a ring ld -> ex -> st -> ld; `all` stands for the front end.
enum class Engine : std::uint8_t { ld, ex, st, all };
inline constexpr std::size_t engine_count = 3;
std::string_view name(Engine engine) noexcept;
constexpr Engine next(Engine engine) noexcept {
  return engine == Engine::ld ? Engine::ex : engine == Engine::ex ? Engine::st : Engine::ld;
}
constexpr Engine previous(Engine engine) noexcept { return next(next(engine)); }

enum class Opcode : std::uint8_t {
#define TENON_NPU_OP(Type, id, code, engine, flags) id = code,
#include <tenon/npu/isa/isa.def>
};

/// The tokens an instruction takes before it begins and gives after it ended: bits 8 to 11.
struct Deps {
  bool pop_prev = false;   ///< takes one that the previous engine gave
  bool pop_next = false;   ///< takes one that the next engine gave
  bool push_prev = false;  ///< gives one to the previous engine
  bool push_next = false;  ///< gives one to the next engine
  friend bool operator==(const Deps&, const Deps&) = default;
};

constexpr std::uint8_t flag_bit(Flag flag) noexcept {
  return static_cast<std::uint8_t>(1U << static_cast<unsigned>(flag));
}

/// What every instruction has.
struct Common {
  Deps deps;
  std::uint8_t flags = 0;   ///< flag_bit()s
  std::uint16_t layer = 0;  ///< for counters, traces and error reports
  bool has(Flag flag) const noexcept { return (flags & flag_bit(flag)) != 0; }
  friend bool operator==(const Common&, const Common&) = default;
};

namespace field_kind {
struct u {
  using Value = std::uint32_t;
  static constexpr Value initial = 0;
};
struct n {
  using Value = std::uint32_t;
  static constexpr Value initial = 1;
};
struct s {
  using Value = std::int32_t;
  static constexpr Value initial = 0;
};
struct f {
  using Value = float;
  static constexpr Value initial = 0;
};
}  // namespace field_kind

// One struct per instruction, with a member per field: Load, LoadP, Gemm, Conv, Depthwise, Requant,
// Elementwise, Pool, Store, Convert, Barrier, Fence, Halt. isa.def says what the members mean.
#define TENON_NPU_OP(Type, id, code, unit, flag_mask) \
  struct Type : Common {                              \
    static constexpr Opcode opcode = Opcode::id;      \
    static constexpr Engine engine = Engine::unit;    \
    static constexpr std::string_view mnemonic = #id; \
    static constexpr std::uint8_t allowed_flags = (flag_mask);
#define TENON_NPU_FIELD(name, width, kind, meaning) \
  field_kind::kind::Value name = field_kind::kind::initial;
#define TENON_NPU_END(Type)                                   \
  friend bool operator==(const Type&, const Type&) = default; \
  }                                                           \
  ;
#include <tenon/npu/isa/isa.def>

/// A field of an instruction: its place, its kind and the member that holds it.
template <class Type, class Kind>
struct Field {
  std::string_view name;
  unsigned width;
  Kind kind;
  typename Kind::Value Type::* member;
  std::string_view meaning;
};

/// `Fields<Type>::list` is a tuple of a leading Nothing and then every Field in the order of
/// isa.def.
template <class Type>
struct Fields;
struct Nothing {};
#define TENON_NPU_OP(Type, id, code, engine, flags) \
  template <>                                       \
  struct Fields<Type> {                             \
    using Self = Type;                              \
    static constexpr auto list = std::tuple {       \
      Nothing {}
#define TENON_NPU_FIELD(name, width, kind, meaning) \
  , Field<Self, field_kind::kind> { #name, width, {}, &Self::name, meaning }
#define TENON_NPU_END(Type) \
  }                         \
  ;                         \
  }                         \
  ;
#include <tenon/npu/isa/isa.def>

using Instruction = std::variant<Load, LoadP, Gemm, Conv, Depthwise, Requant, Elementwise, Pool,
                                 Store, Convert, Barrier, Fence, Halt>;

Opcode opcode(const Instruction& instruction) noexcept;
Engine engine(const Instruction& instruction) noexcept;
std::string_view mnemonic(const Instruction& instruction) noexcept;
const Common& common(const Instruction& instruction) noexcept;
Common& common(Instruction& instruction) noexcept;

/// Errc::out_of_range naming the field whose value its bits cannot hold, Errc::bad_attribute with
/// the rule of broken_rule() otherwise.
Word encode(const Instruction& instruction);

/// What `word` holds, or why it is no instruction (`reason`): an unknown opcode, a reserved bit, a
/// flag that the instruction has not, or a broken rule.
struct Decoded {
  bool legal = false;
  Instruction instruction;
  std::string_view reason;
};
Decoded try_decode(const Word& word) noexcept;

/// try_decode(), or Errc::corrupt with the reason.
Instruction decode(const Word& word);

/// The first rule of the instruction set, beyond widths of fields, that `instruction` breaks, as a
/// phrase such as "kernel at most 11"; empty when it is legal on some device.
std::string_view broken_rule(const Instruction& instruction) noexcept;

/// One line: "conv l=3 [pop_prev push_next] accumulate in_line=0 in_log2c=5 ...".
std::string disassemble(const Instruction& instruction);

}  // namespace tenon::npu::isa
