#include "support/expect_error.hpp"

#include <tenon/host_buffer.hpp>
#include <tenon/host_view.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon {
namespace {

constexpr auto least64 = std::numeric_limits<std::int64_t>::min();
constexpr auto most64 = std::numeric_limits<std::int64_t>::max();
constexpr double infinity = std::numeric_limits<double>::infinity();

template <class T>
T stored(double value) {
  std::array<std::byte, 8> bytes{};
  store_double(dtype_of<T>(), bytes.data(), value);
  T result;
  std::memcpy(&result, bytes.data(), sizeof(T));
  return result;
}

template <class T>
T stored(std::int64_t value) {
  std::array<std::byte, 8> bytes{};
  store_int64(dtype_of<T>(), bytes.data(), value);
  T result;
  std::memcpy(&result, bytes.data(), sizeof(T));
  return result;
}

template <class T>
double loaded(T value) {
  return load_as_double(dtype_of<T>(), reinterpret_cast<const std::byte*>(&value));
}

template <class T>
std::int64_t loaded_int(T value) {
  return load_as_int64(dtype_of<T>(), reinterpret_cast<const std::byte*>(&value));
}

}  // namespace

TEST_CASE("dense_strides: bytes, innermost last") {
  CHECK(dense_strides(Shape({2, 3, 4}, f32)) == Strides{48, 16, 4});
  CHECK(dense_strides(Shape({2, 512}, DType::q4_0)) == Strides{16 * 18, 18});
  CHECK(dense_strides(Shape({2, 0, 4}, f32)) == Strides{16, 16, 4});
  CHECK(dense_strides(Shape()) == Strides{});
  // No bytes, but strides that no address could be stepped by.
  testing::expect_error(Errc::shape_overflow,
                        [] { dense_strides(Shape({2, std::int64_t{1} << 62, 0}, DType::q8_0)); });
  testing::expect_error(Errc::bad_shape, [] { dense_strides(Shape({symbol("S"), 2}, f32)); });
}

TEST_CASE("HostView: contiguity") {
  std::array<float, 64> data{};
  const auto contiguous = [&](const Shape& shape, const Strides& strides) {
    return HostView(data.data(), shape, strides).is_contiguous();
  };
  CHECK(contiguous(Shape({2, 3}, f32), {12, 4}));
  CHECK_FALSE(contiguous(Shape({2, 3}, f32), {4, 8}));
  CHECK_FALSE(contiguous(Shape({2, 3}, f32), {16, 4}));
  CHECK(contiguous(Shape({1, 3}, f32), {999, 4}));  // an axis of 1 is never stepped along
  CHECK(contiguous(Shape({3, 1}, f32), {4, -7}));
  CHECK(contiguous(Shape({0, 3}, f32), {1, 1}));  // nothing is dense
  CHECK_FALSE(contiguous(Shape({3}, f32), {-4}));
  CHECK(contiguous(Shape({2, 64}, DType::q8_0), {68, 34}));
  CHECK_FALSE(contiguous(Shape({2, 64}, DType::q8_0), {70, 34}));
}

TEST_CASE("store_double: integers truncate, saturate, and have no NaN") {
  CHECK(stored<std::int8_t>(-1.9) == -1);
  CHECK(stored<std::int8_t>(127.9) == 127);
  CHECK(stored<std::int8_t>(128.0) == 127);
  CHECK(stored<std::int8_t>(-128.9) == -128);
  CHECK(stored<std::int8_t>(-129.0) == -128);
  CHECK(stored<std::uint8_t>(-0.9) == 0);
  CHECK(stored<std::uint8_t>(-5.0) == 0);
  CHECK(stored<std::uint8_t>(255.5) == 255);
  CHECK(stored<std::uint32_t>(1e30) == 4294967295u);
  CHECK(stored<std::int32_t>(std::nan("")) == 0);
  CHECK(stored<std::int32_t>(-infinity) == std::numeric_limits<std::int32_t>::min());
  CHECK(stored<std::int64_t>(infinity) == most64);
  CHECK(stored<std::int64_t>(0x1p63) == most64);
  CHECK(stored<std::int64_t>(-0x1p63) == least64);
  CHECK(stored<std::int64_t>(0x1.fffffffffffffp62) == 0x7FFFFFFFFFFFFC00);
}

TEST_CASE("store_double: bool is whether it is not 0") {
  CHECK(stored<bool>(0.25));
  CHECK(stored<bool>(std::nan("")));
  CHECK_FALSE(stored<bool>(-0.0));
}

TEST_CASE("store_double: small floats round once") {
  // By way of float, these ties would be broken before the last rounding sees what lies beyond
  // them.
  CHECK(stored<half>(1 + 0x1p-11 + 0x1p-40).bits == 0x3C01);
  CHECK(stored<half>(1 + 0x1p-11).bits == 0x3C00);
  CHECK(stored<half>(1 + 3 * 0x1p-11 - 0x1p-40).bits == 0x3C01);
  CHECK(stored<half>(-(1 + 0x1p-11 + 0x1p-40)).bits == 0xBC01);
  CHECK(stored<bfloat16>(1 + 0x1p-8 + 0x1p-40).bits == 0x3F81);
  CHECK(stored<bfloat16>(1 + 0x1p-8).bits == 0x3F80);
  CHECK(stored<half>(0x1p-25 + 0x1p-60).bits == 0x0001);
  CHECK(stored<half>(1e300).bits == 0x7C00);
  CHECK(stored<bfloat16>(-1e300).bits == 0xFF80);
  CHECK(stored<bfloat16>(1e-300).bits == 0x0000);
  CHECK(std::isnan(to_float(stored<half>(std::nan("")))));
  CHECK(stored<float>(1 + 0x1p-24) == 1.0f);
}

TEST_CASE("store_int64: saturates, and small floats round once") {
  CHECK(stored<std::int8_t>(std::int64_t{300}) == 127);
  CHECK(stored<std::int16_t>(least64) == -32768);
  CHECK(stored<std::uint16_t>(std::int64_t{-1}) == 0);
  CHECK(stored<std::uint32_t>(most64) == 4294967295u);
  CHECK(stored<std::int64_t>(least64) == least64);
  CHECK(stored<bool>(std::int64_t{-3}));
  CHECK_FALSE(stored<bool>(std::int64_t{0}));
  CHECK(stored<half>(std::int64_t{2049}).bits == to_half(2048.0f).bits);
  CHECK(stored<half>(most64).bits == 0x7C00);
  // 2^62 + 2^54 is a tie for bfloat16; one more is not, and neither float nor double can tell.
  const std::int64_t tie = (std::int64_t{1} << 62) + (std::int64_t{1} << 54);
  CHECK(stored<bfloat16>(tie).bits == 0x5E80);
  CHECK(stored<bfloat16>(tie + 1).bits == 0x5E81);
  CHECK(stored<bfloat16>(-tie - 1).bits == 0xDE81);
  CHECK(stored<float>(tie + 1) == 0x1.01p62f);
}

TEST_CASE("load: as double and as int64") {
  CHECK(loaded(true) == 1);
  CHECK(loaded(std::int8_t{-3}) == -3);
  CHECK(loaded(std::uint32_t{4294967295u}) == 4294967295.0);
  CHECK(loaded(half{0x3E00}) == 1.5);
  CHECK(loaded(bfloat16{0xBFC0}) == -1.5);
  CHECK(loaded(1e-300) == 1e-300);
  CHECK(loaded_int(most64) == most64);  // as double it would be 2^63
  CHECK(loaded_int(std::uint32_t{4294967295u}) == 4294967295);
  CHECK(loaded_int(-2.7f) == -2);
  CHECK(loaded_int(infinity) == most64);
  CHECK(loaded_int(half{0x7E00}) == 0);
  const std::byte two{2};  // files hold what they like
  CHECK(load_as_double(DType::boolean, &two) == 1);
  CHECK(load_as_int64(DType::boolean, &two) == 1);
}

TEST_CASE("for_each_index: row-major, and nothing for an empty shape") {
  std::vector<std::vector<std::int64_t>> seen;
  const auto visit = [&](std::span<const std::int64_t> i) {
    seen.emplace_back(i.begin(), i.end());
  };
  for_each_index(Shape({2, 1, 2}, f32), visit);
  CHECK(seen == std::vector<std::vector<std::int64_t>>{{0, 0, 0}, {0, 0, 1}, {1, 0, 0}, {1, 0, 1}});
  seen.clear();
  for_each_index(Shape({2, 0}, f32), visit);
  CHECK(seen.empty());
  for_each_index(Shape(), visit);
  CHECK(seen == std::vector<std::vector<std::int64_t>>{{}});
}

TEST_CASE("copy_elements: any strides to any strides, every element size") {
  const auto check = [](DType dtype) {
    INFO(name(dtype));
    const auto size = block_bytes(dtype);
    const Shape shape({2, 3, 1, 4}, dtype);
    std::vector<std::byte> from_bytes(static_cast<std::size_t>(24 * size));
    for (std::size_t i = 0; i < from_bytes.size(); ++i)
      from_bytes[i] = static_cast<std::byte>(i * 7);
    // Stored with the axes in the order 3, 1, 0, axis 1 backwards; written with gaps.
    HostView from(from_bytes.data() + 4 * size, shape, {size, -2 * size, 0, 6 * size});
    std::vector<std::byte> to_bytes(static_cast<std::size_t>(96 * size), std::byte{0xEE});
    const HostView to(to_bytes.data(), shape, {48 * size, 12 * size, 12345, 3 * size});
    copy_elements(from, to);
    std::size_t untouched = 0;
    for (const std::byte b : to_bytes) untouched += b == std::byte{0xEE} ? 1 : 0;
    CHECK(untouched >= to_bytes.size() - from_bytes.size());
    for_each_index(shape, [&](std::span<const std::int64_t> i) {
      CHECK(std::memcmp(from.at(i), to.at(i), static_cast<std::size_t>(size)) == 0);
    });
  };
  for (const DType dtype : {i8, f16, f32, f64}) check(dtype);
}

TEST_CASE("copy_elements: transposed axes of odd sizes") {
  // Larger than the tiles of such a copy, and not a multiple of them.
  const Shape shape({3, 70, 2, 45}, i32);
  std::vector<std::int32_t> from(3 * 70 * 2 * 45), to(from.size());
  std::iota(from.begin(), from.end(), 0);
  for (const std::array<std::size_t, 4>& order :
       {std::array<std::size_t, 4>{3, 2, 1, 0}, {0, 3, 2, 1}, {1, 0, 3, 2}, {2, 3, 0, 1}}) {
    // Axis order[k] of the view is the k-th outermost in memory.
    Strides strides{};
    std::int64_t step = 4;
    for (std::size_t k = 4; k-- > 0;) {
      strides[order[k]] = step;
      step *= shape[static_cast<int>(order[k])];
    }
    const HostView source(from.data(), shape, strides);
    const HostView target(to.data(), shape);
    copy_elements(source, target);
    int wrong = 0;
    for_each_index(shape, [&](std::span<const std::int64_t> i) {
      if (std::memcmp(source.at(i), target.at(i), 4) != 0) ++wrong;
    });
    CHECK(wrong == 0);
  }
}

TEST_CASE("copy_elements: transposed matrices, every element size") {
  const auto check = [](DType dtype, std::int64_t rows, std::int64_t columns,
                        std::int64_t skipped) {
    CAPTURE(name(dtype), rows, columns, skipped);
    const std::int64_t unit = block_bytes(dtype);
    const HostBuffer from = HostBuffer::zeros(Shape({columns, rows}, dtype));
    const HostBuffer to = HostBuffer::zeros(Shape({rows * columns + skipped}, dtype));
    std::byte* const x = from.view().data;
    std::byte* const y = to.view().data + skipped * unit;
    for (std::int64_t i = 0; i < rows * columns * unit; ++i) {
      x[i] = static_cast<std::byte>(i * 2654435761 >> 16);
    }
    const Shape shape({rows, columns}, dtype);
    copy_elements(HostView(x, shape, {unit, rows * unit}), HostView(y, shape));
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < columns; ++j) {
        wrong += std::memcmp(y + (i * columns + j) * unit, x + (j * rows + i) * unit,
                             static_cast<std::size_t>(unit)) != 0;
      }
    }
    CHECK(wrong == 0);
  };
  for (const DType dtype : {i8, f16, f32, f64}) {
    check(dtype, 64, 64, 0);
    check(dtype, 130, 67, 0);
    check(dtype, 3, 1000, 0);
    check(dtype, 1000, 3, 0);
    // Around the sides of squares of vectors and of lines.
    for (const std::int64_t rows : {15, 16, 17, 65, 79, 80}) {
      for (const std::int64_t columns : {4, 16, 33, 72}) check(dtype, rows, columns, 0);
    }
    // Past the caches where rows start at a line.
    check(dtype, 1030, 2112, 0);
    check(dtype, 1030, 2112, 1);
  }
}

TEST_CASE("copy_elements: rows of every length, forwards and backwards, and nothing around them") {
  for (const DType dtype : {u8, i16, f32, f64}) {
    const std::int64_t unit = block_bytes(dtype);
    for (const std::int64_t rows : {1, 2, 67}) {
      for (std::int64_t count = 1; count <= 70; ++count) {
        for (const std::int64_t step : {unit, -unit, std::int64_t{0}, 2 * unit}) {
          INFO(unit << " bytes, " << rows << " rows of " << count << ", step " << step);
          const std::int64_t from_row = (2 * count + 3) * unit, to_row = (count + 1) * unit;
          std::vector<std::uint8_t> from(static_cast<std::size_t>(rows * from_row));
          std::iota(from.begin(), from.end(), std::uint8_t{0});
          std::vector<std::uint8_t> to(static_cast<std::size_t>(rows * to_row), 0xA5), want(to);
          HostView x(reinterpret_cast<std::byte*>(from.data()), Shape({rows, count}, dtype));
          x.strides = {from_row, step};
          if (step < 0) x.data += (count - 1) * unit;
          HostView y(reinterpret_cast<std::byte*>(to.data()), x.shape);
          y.strides = {to_row, unit};
          for (std::int64_t r = 0; r < rows; ++r) {
            for (std::int64_t i = 0; i < count; ++i) {
              std::memcpy(want.data() + r * to_row + i * unit, x.data + r * from_row + i * step,
                          static_cast<std::size_t>(unit));
            }
          }
          copy_elements(x, y);
          REQUIRE(to == want);
        }
      }
    }
  }
}

TEST_CASE("copy_elements: scalars, nothing, and blocks") {
  float from = 3, to = 0;
  copy_elements(HostView(&from, Shape()), HostView(&to, Shape()));
  CHECK(to == 3);
  copy_elements(HostView(nullptr, Shape({0, 4}, f32)), HostView(nullptr, Shape({0, 4}, f32)));

  // Three rows of two blocks, the rows apart and backwards.
  const Shape shape({3, 64}, DType::q8_0);
  std::vector<std::byte> rows(300);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<std::byte>(i);
  std::vector<std::byte> dense(static_cast<std::size_t>(shape.bytes()));
  copy_elements(HostView(rows.data() + 200, shape, {-100, 34}), HostView(dense.data(), shape));
  for (std::size_t row = 0; row < 3; ++row) {
    CHECK(std::memcmp(dense.data() + row * 68, rows.data() + 200 - 100 * row, 68) == 0);
  }
}

}  // namespace tenon
