// Functions of narrow types on elements as they are stored, on every instruction set: the bits of widening, computing and
// narrowing; sums against plain C++.
#include "backends/cpu/elementwise/stored_pairs.hpp"

#include "backends/cpu/elementwise/elementwise.hpp"
#include "backends/cpu/elementwise/stored_folds.hpp"
#include "support.hpp"

#include <tenon/dtype.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon::cpu::narrow_types_test {
namespace {

template <class Body>
void on_each_level(Body body) {
  const Isa before = active_isa();
  for (const Isa isa : test::supported_isas()) {
    INFO("on " << name(isa));
    set_active_isa(isa);
    body();
  }
  set_active_isa(before);
}

constexpr DType narrow_types[] = {DType::i8,  DType::u8,  DType::i16, DType::u16,
                                  DType::u32, DType::f16, DType::bf16};
constexpr Arithmetic operations[] = {Arithmetic::add, Arithmetic::sub,     Arithmetic::mul,
                                     Arithmetic::div, Arithmetic::minimum, Arithmetic::maximum};
constexpr Binary binaries[] = {Binary::add, Binary::sub,     Binary::mul,
                               Binary::div, Binary::minimum, Binary::maximum};

using Bytes = std::vector<std::byte>;

/// Elements of 16 bits of every kind: signs, zeros, subnormal numbers, infinities and NaNs of both halves, in random order.
Bytes elements(DType dtype, std::int64_t count, std::uint64_t seed) {
  constexpr std::uint16_t special[] = {0x0000, 0x8000, 0x0001, 0x8001, 0x7C00, 0xFC00, 0x7C01,
                                       0xFE01, 0x7F80, 0xFF80, 0x7F81, 0xFFC1, 0x3C00, 0xBC00,
                                       0x3F80, 0xBF80, 0x7FFF, 0xFFFF, 0x7BFF, 0x7F7F};
  const std::int64_t unit = block_bytes(dtype);
  Bytes bytes(static_cast<std::size_t>(count * unit));
  for (std::int64_t i = 0; i < count; ++i) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    auto bits = static_cast<std::uint32_t>(seed >> 32);
    if ((seed >> 20) % 4 == 0) bits = special[bits % std::size(special)];
    std::memcpy(bytes.data() + i * unit, &bits, static_cast<std::size_t>(unit));
  }
  return bytes;
}

struct Wide {
  alignas(8) std::byte bytes[4096];
};

Wide widened(DType dtype, const Bytes& x, std::int64_t count) {
  Wide wide;
  widen(dtype, x.data(), wide.bytes, count);
  return wide;
}

/// What a kernel computed before there were any for stored elements.
Bytes computed(DType dtype, std::size_t operation, const Bytes& a, std::int64_t a_step,
               const Bytes& b, std::int64_t b_step, std::int64_t count) {
  const Wide p = widened(dtype, a, a_step != 0 ? count : 1);
  const Wide q = widened(dtype, b, b_step != 0 ? count : 1);
  Wide wide;
  const Compute type = compute_type(dtype);
  if (type == Compute::f32) {
    binary(binaries[operation], reinterpret_cast<const float*>(p.bytes), a_step,
           reinterpret_cast<const float*>(q.bytes), b_step, reinterpret_cast<float*>(wide.bytes),
           count);
  } else {
    arithmetic(type, operations[operation], p.bytes, a_step, q.bytes, b_step, wide.bytes, count);
  }
  Bytes y(static_cast<std::size_t>(count * block_bytes(dtype)));
  narrow(dtype, wide.bytes, y.data(), count);
  return y;
}

bool is_nan(DType dtype, const std::byte* x) {
  float value = 0;
  if (compute_type(dtype) == Compute::f32) widen(dtype, x, &value, 1);
  return value != value;
}

/// The same bits, but for which NaN it is.
bool are_equal(DType dtype, const Bytes& a, const Bytes& b) {
  const auto unit = static_cast<std::size_t>(block_bytes(dtype));
  for (std::size_t i = 0; i < a.size(); i += unit) {
    if (std::memcmp(a.data() + i, b.data() + i, unit) == 0) continue;
    if (!is_nan(dtype, a.data() + i) || !is_nan(dtype, b.data() + i)) return false;
  }
  return true;
}

TEST_CASE("pairs of stored elements give the bits of computing them widened", "[elementwise]") {
  constexpr std::int64_t most = 509;
  on_each_level([] {
    int found = 0;
    for (const DType dtype : narrow_types) {
      const Bytes a = elements(dtype, most, 1), b = elements(dtype, most, 2);
      for (std::size_t operation = 0; operation < std::size(operations); ++operation) {
        const StoredPairs run = stored_pair_kernels().arithmetic(dtype, operations[operation]);
        if (run == nullptr) continue;
        ++found;
        for (int steps = 0; steps < 4; ++steps) {
          const int a_step = steps & 1, b_step = steps >> 1;
          for (const std::int64_t count : {1, 7, 16, 45, 509}) {
            INFO(name(dtype) << ", operation " << operation << ", steps " << a_step << " and "
                             << b_step << ", " << count << " elements");
            const Bytes want = computed(dtype, operation, a, a_step, b, b_step, count);
            Bytes y = a_step != 0 ? a : b;  // in place where an operand is as long as y
            const std::byte* const first = a_step != 0 ? y.data() : a.data();
            const std::byte* const second = a_step == 0 && b_step != 0 ? y.data() : b.data();
            const Bytes untouched = y;
            run(first, a_step, second, b_step, y.data(), count);
            CHECK(std::equal(y.begin() + static_cast<std::ptrdiff_t>(want.size()), y.end(),
                             untouched.begin() + static_cast<std::ptrdiff_t>(want.size())));
            y.resize(want.size());
            CHECK(are_equal(dtype, y, want));
          }
        }
      }
    }
    CHECK(found >= 5 * 5 + 6);  // whole numbers, and bf16 on every level
  });
}

TEST_CASE("comparisons of stored elements are those of widened ones", "[elementwise]") {
  constexpr Comparison comparisons[] = {Comparison::eq, Comparison::ne, Comparison::lt,
                                        Comparison::le, Comparison::gt, Comparison::ge};
  constexpr std::int64_t most = 509;
  on_each_level([&] {
    for (const DType dtype : narrow_types) {
      const Bytes a = elements(dtype, most, 3), b = elements(dtype, most, 4);
      for (const Comparison comparison : comparisons) {
        const StoredPairs run = stored_pair_kernels().comparison(dtype, comparison);
        REQUIRE(run != nullptr);
        for (int steps = 0; steps < 4; ++steps) {
          const int a_step = steps & 1, b_step = steps >> 1;
          for (const std::int64_t count : {1, 33, 509}) {
            const Wide p = widened(dtype, a, count), q = widened(dtype, b, count);
            std::vector<std::uint8_t> want(most, 7), y(most, 7);
            compare(compute_type(dtype), comparison, p.bytes, a_step, q.bytes, b_step, want.data(),
                    count);
            run(a.data(), a_step, b.data(), b_step, y.data(), count);
            INFO(name(dtype) << ", comparison " << static_cast<int>(comparison) << ", steps "
                             << a_step << " and " << b_step << ", " << count << " elements");
            CHECK(y == want);
          }
        }
      }
    }
  });
}

TEST_CASE("sums of narrow whole numbers are exact", "[elementwise]") {
  on_each_level([] {
    for (const DType dtype : {DType::boolean, DType::i8, DType::u8, DType::i16, DType::u16}) {
      const std::int64_t unit = block_bytes(dtype);
      const StoredFold* const sums = stored_fold(dtype, Gathering::sum);
      REQUIRE(sums != nullptr);
      // Extremes first, where 32 bits would not do; the largest magnitude of every type is in them.
      std::int64_t count = 70'001;
      Bytes x = elements(dtype, count, 5);
      std::fill_n(x.begin(), 66'000 * unit,
                  dtype == DType::i16 ? std::byte{0x80} : std::byte{0xFF});
      const auto value = [&](std::int64_t i) -> std::int64_t {
        if (dtype == DType::boolean) return x[static_cast<std::size_t>(i)] != std::byte{0};
        std::int32_t wide = 0;
        widen(dtype, x.data() + i * unit, &wide, 1);
        return wide;
      };
      INFO(name(dtype));
      for (const std::int64_t length :
           {std::int64_t{0}, std::int64_t{1}, std::int64_t{65}, count}) {
        std::int64_t want = 0, got = 0;
        for (std::int64_t i = 0; i < length; ++i) want += value(i);
        sums->rows(x.data(), 0, 1, length, &got);
        CHECK(got == want);
      }
      // Rows of 75 columns, 77 elements apart.
      constexpr std::int64_t columns = 75, apart = 77;
      const std::int64_t rows = count / apart;
      std::vector<std::int64_t> want(columns, 3), got(columns, 3);
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t c = 0; c < columns; ++c) {
          want[static_cast<std::size_t>(c)] += value(r * apart + c);
        }
      }
      sums->columns(x.data(), columns, rows, apart * unit, got.data());
      CHECK(got == want);
    }
    CHECK(stored_fold(DType::i32, Gathering::sum) == nullptr);
    CHECK(stored_fold(DType::boolean, Gathering::max) == nullptr);
  });
}

/// Elements of a narrow type, and of f16 and bf16 with a NaN at `nan`, -1 for none.
Bytes elements_with_nan(DType dtype, std::int64_t count, std::int64_t nan) {
  Bytes x = elements(dtype, count, 6);
  if (dtype != DType::f16 && dtype != DType::bf16) return x;
  for (std::int64_t i = 0; i < count;
       ++i) {  // numbers of one sign and of few exponents, but for that
    const std::size_t high = 2 * static_cast<std::size_t>(i) + 1;
    x[high] = i == nan ? std::byte{0x7F} : (x[high] & std::byte{0x83}) | std::byte{0x3C};
    if (i == nan) x[high - 1] = std::byte{0xFF};
  }
  return x;
}

/// Folds of stored elements and of widened ones, which are equal but for a NaN's bits.
template <class Sum>
void check_folds(DType dtype, Gathering op, std::int64_t nan) {
  constexpr std::int64_t rows = 23, apart = 211;
  const std::int64_t unit = block_bytes(dtype);
  const StoredFold* const fold = stored_fold(dtype, op);
  REQUIRE(fold != nullptr);
  const Bytes x = elements_with_nan(dtype, rows * apart, nan);
  std::vector<std::byte> computed(rows * apart * 4);
  widen(dtype, x.data(), computed.data(), rows * apart);
  const auto are_same = [](const std::vector<Sum>& a, const std::vector<Sum>& b) {
    return std::equal(a.begin(), a.end(), b.begin(),
                      [](Sum p, Sum q) { return p == q || (p != p && q != q); });
  };
  const Compute type = compute_type(dtype);
  for (const std::int64_t count : {1, 7, 15, 16, 31, 37, 64, 129, 211}) {
    INFO(name(dtype) << ", op " << static_cast<int>(op) << ", " << count << " columns, NaN at "
                     << nan);
    std::vector<Sum> want(rows), got(rows);
    // In the order of the elements where less than 16 are summed, which changes nothing exact.
    if (count >= 16 || op != Gathering::sum) {
      fold_rows(type, op, computed.data(), apart * 4, rows, count, want.data());
      fold->rows(x.data(), apart * unit, rows, count, got.data());
      CHECK(are_same(got, want));
    }
    want.assign(static_cast<std::size_t>(count), Sum{1});
    got = want;
    accumulate_columns(type, op, computed.data(), count, rows, apart * 4, want.data());
    fold->columns(x.data(), count, rows, apart * unit, got.data());
    CHECK(are_same(got, want));
  }
}

TEST_CASE("extremes and sums of stored elements are those of widened ones", "[elementwise]") {
  on_each_level([] {
    for (const Gathering op : {Gathering::max, Gathering::min}) {
      for (const DType dtype : {DType::i8, DType::u8, DType::i16, DType::u16}) {
        check_folds<std::int32_t>(dtype, op, -1);
      }
      for (const DType dtype : {DType::f16, DType::bf16}) {
        for (const std::int64_t nan : {-1, 0, 17, 16 * 211 + 129}) {
          check_folds<float>(dtype, op, nan);
        }
      }
    }
    for (const DType dtype : {DType::f16, DType::bf16}) {
      for (const std::int64_t nan : {-1, 20}) check_folds<double>(dtype, Gathering::sum, nan);
    }
  });
}

}  // namespace
}  // namespace tenon::cpu::narrow_types_test
