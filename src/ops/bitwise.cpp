#include "ops/broadcast.hpp"
#include "ops/checks.hpp"
#include "ops/pointwise.hpp"

#include <tenon/ops/bitwise.hpp>

namespace tenon {
namespace {

void require_bits(std::string_view op, const Shape& shape, bool takes_bool) {
  if (is_integer(shape.dtype()) || (takes_bool && shape.dtype() == boolean)) return;
  fail(Errc::unsupported_dtype, op,
       fmt::format("needs an integer type{}, got {}", takes_bool ? " or bool" : "",
                   to_string(shape)));
}

constexpr bool shifts_all(std::int64_t count) noexcept { return count < 0 || count > 63; }

}  // namespace

template <class Op>
Shape BitwiseOp<Op>::infer(std::span<const Shape> in) const {
  require_same_dtype(Op::name, in);                      // C1
  require_bits(Op::name, in[0], Op::takes_bool);         // C2
  return broadcast_shapes(Op::name, in, in[0].dtype());  // C3
}

template <class Op>
void BitwiseOp<Op>::reference(std::span<const HostView> in, const HostView& out) const {
  zip_integers(broadcast_view(in[0], out.shape), broadcast_view(in[1], out.shape), out,
               [](std::int64_t x, std::int64_t y) { return Op::of_integer(x, y); });
}

#define TENON_DEFINE_BITWISE(id, Struct)                                           \
  template struct BitwiseOp<Struct>;                                               \
  TENON_DEFINE_OP(id, Struct);                                                     \
  Tensor id(const Tensor& a, const Tensor& b, const std::source_location& where) { \
    return record(Struct{}, {a, b}, where);                                        \
  }                                                                                \
  static_assert(true, "lets the use end in a semicolon")

std::int64_t BitwiseAnd::of_integer(std::int64_t a, std::int64_t b) noexcept { return a & b; }
TENON_DEFINE_BITWISE(bitwise_and, BitwiseAnd);

std::int64_t BitwiseOr::of_integer(std::int64_t a, std::int64_t b) noexcept { return a | b; }
TENON_DEFINE_BITWISE(bitwise_or, BitwiseOr);

std::int64_t BitwiseXor::of_integer(std::int64_t a, std::int64_t b) noexcept { return a ^ b; }
TENON_DEFINE_BITWISE(bitwise_xor, BitwiseXor);

std::int64_t ShiftLeft::of_integer(std::int64_t a, std::int64_t b) noexcept {
  return shifts_all(b) ? 0 : static_cast<std::int64_t>(static_cast<std::uint64_t>(a) << b);
}
TENON_DEFINE_BITWISE(shift_left, ShiftLeft);

std::int64_t ShiftRight::of_integer(std::int64_t a, std::int64_t b) noexcept {
  return a >> (shifts_all(b) ? 63 : b);
}
TENON_DEFINE_BITWISE(shift_right, ShiftRight);

TENON_DEFINE_OP(bitwise_not, BitwiseNot);

Shape BitwiseNot::infer(std::span<const Shape> in) const {
  require_bits(name, in[0], true);  // C1
  return in[0];
}

void BitwiseNot::reference(std::span<const HostView> in, const HostView& out) const {
  const bool is_bool = out.shape.dtype() == boolean;
  map_integers(in[0], out, [is_bool](std::int64_t x) { return is_bool ? 1 - x : ~x; });
}

Tensor bitwise_not(const Tensor& x, const std::source_location& where) {
  return record(BitwiseNot{}, {x}, where);
}

}  // namespace tenon
