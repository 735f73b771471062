#include <tenon/dtype.hpp>
#include <tenon/host_buffer.hpp>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <set>
#include <string>

#include <catch2/catch.hpp>

namespace tenon {
namespace {

/// The value of a small float by its definition: sign, exponent and fraction as numbers.
double value_by_definition(std::uint16_t bits, int exponent_bits, int fraction_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int top = (1 << exponent_bits) - 1;
  const int exponent = (bits >> fraction_bits) & top;
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == top) return fraction != 0 ? std::nan("") : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
  return sign * std::ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits);
}

/// Round to nearest, ties to even, in units in the last place of a format.
double rounded_by_definition(double value, int min_exponent, int fraction_bits, double overflow) {
  if (std::isnan(value) || std::isinf(value) || value == 0) return value;
  const int exponent = std::max(std::ilogb(value), min_exponent);
  const double scaled = std::ldexp(value, fraction_bits - exponent);  // exact
  const double result = std::ldexp(std::nearbyint(scaled), exponent - fraction_bits);
  return std::fabs(result) >= overflow ? std::copysign(INFINITY, value) : result;
}

bool same(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
}

/// Every pattern of a float that lies on, just below or just above a rounding boundary of 16-bit
/// formats, and a sample of all others.
template <class Check>
void for_interesting_floats(const Check& check) {
  for (std::uint32_t upper = 0; upper < 0x10000; ++upper) {
    for (const std::uint32_t lower : {0x0000u, 0x0001u, 0x0FFFu, 0x1000u, 0x1001u, 0x1FFFu, 0x2000u,
                                      0x3000u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu}) {
      check(std::bit_cast<float>(upper << 16 | lower));
    }
  }
  const std::uint32_t seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 1'000'000; ++i)
    check(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
}

}  // namespace

TEST_CASE("dtype: names are unique and lead back to their type") {
  std::set<std::string_view> names;
  for (int i = 0; i < dtype_count; ++i) {
    const auto dtype = static_cast<DType>(i);
    CHECK(names.insert(name(dtype)).second);
    CHECK(find_dtype(name(dtype)) == dtype);
  }
  CHECK(name(DType::boolean) == "bool");
  CHECK(find_dtype("q4_k") == DType::q4_k);
  CHECK_FALSE(find_dtype("q4_K"));
  CHECK_FALSE(find_dtype(""));
}

TEST_CASE("dtype: kinds and sizes") {
  CHECK(block_bytes(DType::f64) == 8);
  CHECK(block_bytes(DType::bf16) == 2);
  CHECK(block_size(DType::q4_0) == 32);
  CHECK(block_bytes(DType::q4_0) == 18);
  CHECK(block_size(DType::q6_k) == 256);
  CHECK(block_bytes(DType::q6_k) == 210);
  CHECK(is_block(DType::iq4_xs));
  CHECK_FALSE(is_block(DType::f16));
  CHECK(is_floating(DType::bf16));
  CHECK_FALSE(is_floating(DType::q8_0));
  CHECK(is_integer(DType::u32));
  CHECK_FALSE(is_integer(DType::boolean));
  for (int i = 0; i < dtype_count; ++i) {
    const auto dtype = static_cast<DType>(i);
    CHECK(is_block(dtype) == (block_size(dtype) > 1));
  }
}

TEST_CASE("dtype: half widens to the value its bits define, all 65536") {
  int wrong = 0;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto stored = static_cast<std::uint16_t>(bits);
    if (!same(static_cast<double>(to_float(half{stored})), value_by_definition(stored, 5, 10)))
      ++wrong;
    if (!same(static_cast<double>(to_float(bfloat16{stored})), value_by_definition(stored, 8, 7))) {
      ++wrong;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("dtype: what a 16-bit float widens to narrows back to its bits, NaNs quietened") {
  int wrong = 0;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto stored = static_cast<std::uint16_t>(bits);
    const bool half_nan = (bits & 0x7FFF) > 0x7C00;
    if (to_half(to_float(half{stored})).bits != (half_nan ? (bits | 0x200) : bits)) ++wrong;
    const bool bfloat_nan = (bits & 0x7FFF) > 0x7F80;
    if (to_bfloat16(to_float(bfloat16{stored})).bits != (bfloat_nan ? (bits | 0x40) : bits))
      ++wrong;
  }
  CHECK(wrong == 0);
}

TEST_CASE("dtype: floats round to the nearest half, ties to even") {
  for_interesting_floats([](float value) {
    const double got = static_cast<double>(to_float(to_half(value)));
    const double want = rounded_by_definition(static_cast<double>(value), -14, 10, 65536);
    if (!same(got, want)) FAIL_CHECK("to_half(" << value << ") = " << got << ", not " << want);
  });
}

TEST_CASE("dtype: floats round to the nearest bfloat16, ties to even") {
  for_interesting_floats([](float value) {
    const double got = static_cast<double>(to_float(to_bfloat16(value)));
    const double want =
        rounded_by_definition(static_cast<double>(value), -126, 7, std::ldexp(1, 128));
    if (!same(got, want)) FAIL_CHECK("to_bfloat16(" << value << ") = " << got << ", not " << want);
  });
}

TEST_CASE("dtype: roundings worth knowing") {
  CHECK(to_half(65519.0f).bits == 0x7BFF);  // the largest half
  CHECK(to_half(65520.0f).bits == 0x7C00);  // the tie above it goes to infinity
  CHECK(to_half(0x1p-24f).bits == 0x0001);
  CHECK(to_half(0x1p-25f).bits == 0x0000);  // a tie between 0 and the least subnormal
  CHECK(to_half(0x1.8p-25f).bits == 0x0001);
  CHECK(to_half(-0.0f).bits == 0x8000);
  CHECK(to_half(1.00048828125f).bits == 0x3C00);   // 1 + 2^-11, a tie
  CHECK(to_bfloat16(1.00390625f).bits == 0x3F80);  // 1 + 2^-8, a tie
  CHECK(to_bfloat16(1.01171875f).bits == 0x3F82);  // 1 + 3 * 2^-8, the other way
}

TEST_CASE("dtype: 8-bit floating point, every code and the middle between two") {
  const auto number = [](int code, int mantissa, int bias) {  // of a code without sign
    const int exponent = code >> mantissa, rest = code & ((1 << mantissa) - 1);
    if (exponent == 0) return std::ldexp(static_cast<float>(rest), 1 - bias - mantissa);
    return std::ldexp(1.0f + std::ldexp(static_cast<float>(rest), -mantissa), exponent - bias);
  };
  const auto check = [&](auto narrow, auto widen, int mantissa, int bias, int largest) {
    for (int code = 0; code <= largest; ++code) {
      const float value = number(code, mantissa, bias);
      CHECK(widen(static_cast<std::uint8_t>(code)) == value);
      CHECK(widen(static_cast<std::uint8_t>(code | 0x80)) == -value);
      CHECK(narrow(value) == code);
      CHECK(narrow(-value) == (code | 0x80));
      const float next = number(code + 1, mantissa, bias), middle = (value + next) / 2;
      CHECK(narrow(std::nextafter(middle, value)) == code);
      CHECK(narrow(middle) == code + code % 2);
      CHECK(narrow(std::nextafter(middle, next)) == code + 1);
    }
  };
  const auto e4m3 = [](float x) { return int{to_float8_e4m3(x).bits}; };
  const auto e5m2 = [](float x) { return int{to_float8_e5m2(x).bits}; };
  check(e4m3, [](std::uint8_t code) { return to_float(float8_e4m3{code}); }, 3, 7, 0x7E);
  check(e5m2, [](std::uint8_t code) { return to_float(float8_e5m2{code}); }, 2, 15, 0x7B);
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(to_float(float8_e4m3{0x7E}) == 448);
  CHECK(to_float(float8_e5m2{0x7B}) == 57344);
  CHECK(to_float(float8_e5m2{0xFC}) == -infinity);
  for (const int code : {0x7F, 0xFF}) {
    CHECK(std::isnan(to_float(float8_e4m3{static_cast<std::uint8_t>(code)})));
    CHECK(std::isnan(to_float(float8_e5m2{static_cast<std::uint8_t>(code)})));
  }
  // Too large: NaN in e4m3, infinite in e5m2.
  for (const float x : {465.0f, 1e30f, infinity, nan}) CHECK(e4m3(x) == 0x7F);
  for (const float x : {61440.0f, 1e30f, infinity}) CHECK(e5m2(-x) == 0xFC);
  CHECK(std::isnan(to_float(to_float8_e5m2(nan))));
}

TEST_CASE("dtype: u64 above the range of i64") {
  const std::uint64_t most = ~std::uint64_t{0};
  const HostBuffer x = HostBuffer::of<std::uint64_t>(Shape({3}, u64), {1, most, most - 1024});
  CHECK(x.to(i64).values<std::int64_t>()[1] == std::numeric_limits<std::int64_t>::max());
  CHECK(x.to(f32).values<float>()[1] == 0x1p64f);
  CHECK(x.to(f64).values<double>()[2] == 0x1p64 - 2048);
  CHECK(x.to(u8).values<std::uint8_t>()[1] == 255);
  const HostBuffer y = HostBuffer::of<double>(Shape({3}, f64), {-1, 1e30, 0x1p63});
  CHECK(y.to(u64).values<std::uint64_t>()[0] == 0);
  CHECK(y.to(u64).values<std::uint64_t>()[1] == most);
  CHECK(y.to(u64).values<std::uint64_t>()[2] == std::uint64_t{1} << 63);
}

}  // namespace tenon
