#include "isa_random.hpp"

#include "npu/isa/encoding.hpp"

#include <bit>

namespace tenon::npu::testing {
namespace {

using namespace isa;

std::uint64_t draw(std::mt19937_64& random, unsigned width) {
  const std::uint64_t all = (std::uint64_t{1} << width) - 1;
  switch (random() % 6) {
    case 0:
      return 0;
    case 1:
      return all;
    case 2:
      return std::uint64_t{1} << random() % width;
    case 3:
      return random() & 7 & all;
    default:
      return random() & all;
  }
}

std::uint32_t value(field_kind::u, std::uint64_t bits, unsigned) {
  return static_cast<std::uint32_t>(bits);
}
std::uint32_t value(field_kind::n, std::uint64_t bits, unsigned) {
  return static_cast<std::uint32_t>(bits + 1);
}
std::int32_t value(field_kind::s, std::uint64_t bits, unsigned width) {
  return static_cast<std::int32_t>(static_cast<std::int64_t>(bits) -
                                   (std::int64_t{1} << (width - 1)));
}
float value(field_kind::f, std::uint64_t bits, unsigned) {
  return bits % 3 == 0 ? 0.0F : std::bit_cast<float>(static_cast<std::uint32_t>(bits) & 0x7F7FFFFF);
}

template <class Type>
Instruction random_of(std::mt19937_64& random) {
  for (;;) {  // a draw that breaks a rule is drawn again
    Type result;
    const auto tokens = static_cast<unsigned>(random());
    if (Type::engine != Engine::all) {
      result.deps = {(tokens & 1) != 0, (tokens & 2) != 0, (tokens & 4) != 0, (tokens & 8) != 0};
    }
    result.flags = static_cast<std::uint8_t>(random() & Type::allowed_flags);
    result.layer = static_cast<std::uint16_t>(draw(random, 16));
    for_each_field<Type>([&](const auto& field, unsigned) {
      result.*field.member = value(field.kind, draw(random, field.width), field.width);
    });
    if (broken_rule(result).empty()) return result;
  }
}

using Maker = Instruction (*)(std::mt19937_64&);
constexpr Maker makers[] = {
#define TENON_NPU_OP(Type, id, code, engine, flags) random_of<Type>,
#include <tenon/npu/isa/isa.def>
};

}  // namespace

Instruction random_instruction(std::mt19937_64& random) {
  return makers[random() % std::size(makers)](random);
}

}  // namespace tenon::npu::testing
