#include "support/expect_error.hpp"

#include <tenon/buffer.hpp>
#include <tenon/host_buffer.hpp>
#include <tenon/quant.hpp>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon {
namespace {

using testing::expect_error;
using Ownership = HostBuffer::Ownership;

HostBuffer counting(const Shape& shape) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(shape.elements()));
  std::iota(values.begin(), values.end(), 0);
  return HostBuffer::of<std::int32_t>(shape.with_dtype(i32), values)
      .to(shape.dtype())
      .with_shape(shape);
}

std::vector<double> elements(const HostBuffer& array) {
  std::vector<double> values;
  for_each_index(array.shape(), [&](std::span<const std::int64_t> i) {
    values.push_back(load_as_double(array.shape().dtype(), array.view().at(i)));
  });
  return values;
}

const std::array<std::int64_t, 2> two_by_three{2, 3};

}  // namespace

TEST_CASE("HostBuffer: zeros are zero, aligned and ours") {
  for (const std::int64_t size : {1, 5, 1000, 3'000'000}) {
    HostBuffer array = HostBuffer::zeros(Shape({size}, f32));
    CHECK(array.ownership() == Ownership::owned);
    CHECK(reinterpret_cast<std::uintptr_t>(array.bytes()) % 64 == 0);
    bool all_zero = true;
    for (const float value : array.values<float>()) all_zero = all_zero && value == 0;
    CHECK(all_zero);
    array.mutable_values<float>().back() = 7;
    CHECK(array.at({size - 1}) == 7);
  }
  CHECK(HostBuffer::zeros(Shape()).at({}) == 0);
  CHECK(HostBuffer::zeros(Shape({0, 4}, f32)).values<float>().empty());
}

TEST_CASE("HostBuffer: more than the machine has") {
  expect_error(Errc::out_of_memory, [] { HostBuffer::zeros(Shape({std::int64_t{1} << 62}, i8)); });
  expect_error(Errc::out_of_memory, [] {
    HostBuffer::uninitialized(Shape({std::numeric_limits<std::int64_t>::max() - 1}, i8));
  });
  expect_error(Errc::bad_shape, [] { HostBuffer::zeros(Shape({symbol("S")}, f32)); });
}

TEST_CASE("HostBuffer: of values") {
  const HostBuffer array = HostBuffer::of<float>(Shape({2, 3}, f32), {1, 2, 3, 4, 5, 6});
  CHECK(array.at({1, 0}) == 4);
  CHECK(array.values<float>()[5] == 6);
  const auto of_two = [](const Shape& shape) { return HostBuffer::of<float>(shape, {1, 2}); };
  expect_error(Errc::shape_mismatch, [&] { of_two(Shape({3}, f32)); });
  expect_error(Errc::shape_mismatch, [&] { of_two(Shape({2}, i32)); });
  CHECK(HostBuffer::of<float>(Shape({0}, f32), {}).shape().elements() == 0);
}

TEST_CASE("HostBuffer: handles share the bytes") {
  HostBuffer a = HostBuffer::zeros(Shape({4}, i32));
  const HostBuffer b = a;
  a.mutable_values<std::int32_t>()[2] = 9;
  CHECK(b.at({2}) == 9);
}

TEST_CASE("HostBuffer: no array") {
  const HostBuffer none;
  CHECK(none.is_empty());
  CHECK(to_string(none) == "(no array)");
  const float nan = std::bit_cast<float>(0xFFC00000u);  // of either sign
  CHECK(to_string(HostBuffer::of<float>(Shape({2}, f32), {nan, -nan})) == "[nan, nan] f32[2]");
  expect_error(Errc::call_order, [&] { none.at({}); });
  expect_error(Errc::call_order, [&] { none.values<float>(); });
  expect_error(Errc::call_order, [&] { none.contiguous(); });
  expect_error(Errc::call_order, [&] { none.to(f16); });
  expect_error(Errc::call_order, [&] { none.slice(0, 0, 0); });
  expect_error(Errc::call_order, [&] { none.reshape(two_by_three); });
  expect_error(Errc::call_order, [&] { none.to_device(cpu_device()); });
}

TEST_CASE("HostBuffer: borrowed memory, strides of any sign") {
  std::array<float, 6> data{1, 2, 3, 4, 5, 6};
  HostBuffer array = HostBuffer::borrow(data.data(), Shape({2, 3}, f32));
  CHECK(array.ownership() == Ownership::borrowed);
  array.mutable_values<float>()[0] = 10;
  CHECK(data[0] == 10);

  // The columns backwards, as numpy's x[::-1].T has them.
  const HostBuffer flipped = HostBuffer::borrow(data.data() + 3, Shape({3, 2}, f32), {4, -12});
  CHECK(elements(flipped) == std::vector<double>{4, 10, 5, 2, 6, 3});
  CHECK(elements(flipped.contiguous()) == elements(flipped));
  CHECK(flipped.contiguous().is_contiguous());
  expect_error(Errc::bad_argument, [&] { flipped.values<float>(); });
}

TEST_CASE("HostBuffer: what cannot be borrowed") {
  std::array<float, 64> data{};
  constexpr auto most = std::numeric_limits<std::int64_t>::max();
  constexpr auto least = std::numeric_limits<std::int64_t>::min();
  expect_error(Errc::bad_argument, [] { HostBuffer::borrow(nullptr, Shape({1}, f32)); });
  CHECK_NOTHROW(HostBuffer::borrow(nullptr, Shape({0}, f32)));
  expect_error(Errc::out_of_range,
               [&] { HostBuffer::borrow(data.data(), Shape({3}, f32), Strides{most}); });
  expect_error(Errc::out_of_range,
               [&] { HostBuffer::borrow(data.data(), Shape({3}, f32), Strides{least}); });
  expect_error(Errc::out_of_range, [&] {
    HostBuffer::borrow(data.data(), Shape({2, 2, 2}, f32), Strides{least / 2, most / 2, most / 2});
  });
  CHECK_NOTHROW(HostBuffer::borrow(data.data(), Shape({1}, f32), Strides{least}));
  expect_error(Errc::bad_argument,
               [&] { HostBuffer::borrow(data.data(), Shape({64}, DType::q8_0), Strides{36}); });
}

TEST_CASE("HostBuffer: mapped memory is kept alive and cannot be written") {
  auto file = std::make_shared<std::vector<float>>(std::vector<float>{1, 2, 3});
  const std::weak_ptr<std::vector<float>> alive = file;
  {
    HostBuffer view;
    {
      HostBuffer array = HostBuffer::mapped(file->data(), Shape({3}, f32), file);
      file.reset();
      CHECK(array.is_read_only());
      CHECK(array.ownership() == Ownership::mapped);
      expect_error(Errc::bad_argument, [&] { array.mutable_values<float>(); });
      view = array.slice(0, 1, 3);
    }
    CHECK_FALSE(alive.expired());
    CHECK(view.is_read_only());
    CHECK(view.at({1}) == 3);
    CHECK(view.contiguous().ownership() == Ownership::owned);
  }
  CHECK(alive.expired());
}

TEST_CASE("HostBuffer: values need the right type") {
  HostBuffer array = HostBuffer::zeros(Shape({2}, f32));
  expect_error(Errc::bad_type, [&] { array.values<std::int32_t>(); });
  expect_error(Errc::bad_type, [&] { array.mutable_values<double>(); });
}

TEST_CASE("HostBuffer: one element") {
  const HostBuffer array = counting(Shape({2, 3}, f16));
  CHECK(array.at({1, 2}) == 5);
  expect_error(Errc::out_of_range, [&] { array.at({2, 0}); });
  expect_error(Errc::out_of_range, [&] { array.at({0, -1}); });
  expect_error(Errc::out_of_range, [&] { array.at({0}); });
  expect_error(Errc::out_of_range, [&] { array.at({0, 0, 0}); });
  expect_error(Errc::unsupported_dtype,
               [] { HostBuffer::zeros(Shape({32}, DType::q4_0)).at({0}); });
}

TEST_CASE("HostBuffer: reshape") {
  const HostBuffer array = counting(Shape({{"b", 3}, {"d", 2}}, f32));
  const HostBuffer other = array.reshape(two_by_three);
  CHECK(other.bytes() == array.bytes());
  CHECK(to_string(other.shape()) == "f32[2, 3]");
  CHECK(other.at({1, 0}) == 3);
  const std::array<std::int64_t, 1> seven{7};
  const std::array<std::int64_t, 2> negative{-1, 6};
  const std::string what = expect_error(Errc::bad_shape, [&] { array.reshape(seven); });
  CHECK(what.find("f32[b=3, d=2]") != std::string::npos);
  CHECK(what.find("f32[7]") != std::string::npos);
  expect_error(Errc::bad_shape, [&] { array.reshape(negative); });
  const std::array<int, 2> transposed{1, 0};
  expect_error(Errc::bad_argument, [&] { array.permute(transposed).reshape(two_by_three); });
  CHECK(array.slice(0, 1, 2).slice(1, 0, 1).reshape({}).at({}) == 2);
}

TEST_CASE("HostBuffer: permute") {
  const HostBuffer array = counting(Shape({{"b", 2}, {"s", 3}, {"d", 4}}, i32));
  const std::array<int, 3> order{2, 0, 1};
  const HostBuffer permuted = array.permute(order);
  CHECK(to_string(permuted.shape()) == "i32[d=4, b=2, s=3]");
  for_each_index(array.shape(), [&](std::span<const std::int64_t> i) {
    CHECK(array.at({i[0], i[1], i[2]}) == permuted.at({i[2], i[0], i[1]}));
  });
  for (const auto& bad : {std::vector<int>{0, 1}, {0, 1, 1}, {0, 1, 3}, {-1, 0, 1}, {0, 1, 2, 3}}) {
    expect_error(Errc::bad_argument, [&] { array.permute(bad); });
  }
  const HostBuffer blocks = HostBuffer::zeros(Shape({2, 3, 32}, DType::q8_0));
  const std::array<int, 3> rows{1, 0, 2};
  CHECK(to_string(blocks.permute(rows).shape()) == "q8_0[3, 2, 32]");
  expect_error(Errc::bad_argument, [&] { blocks.permute(order); });
}

TEST_CASE("HostBuffer: slice") {
  const HostBuffer array = counting(Shape({{"b", 3}, {"d", 4}}, i32));
  CHECK(elements(array.slice("d", 1, 3)) == std::vector<double>{1, 2, 5, 6, 9, 10});
  CHECK(elements(array.slice(-2, 2, 3)) == std::vector<double>{8, 9, 10, 11});
  CHECK(array.slice(0, 2, 3).is_contiguous());
  CHECK(array.slice(0, 3, 3).shape().elements() == 0);
  expect_error(Errc::out_of_range, [&] { array.slice(0, -1, 2); });
  expect_error(Errc::out_of_range, [&] { array.slice(0, 2, 1); });
  expect_error(Errc::out_of_range, [&] { array.slice(0, 0, 4); });
  expect_error(Errc::axis_out_of_range, [&] { array.slice(2, 0, 1); });

  const HostBuffer blocks = HostBuffer::zeros(Shape({4, 96}, DType::q8_0));
  CHECK(blocks.slice(1, 32, 96).bytes() == blocks.bytes() + 34);
  CHECK(blocks.slice(0, 2, 3).bytes() == blocks.bytes() + 2 * 3 * 34);
  expect_error(Errc::bad_argument, [&] { blocks.slice(1, 16, 32); });
}

TEST_CASE("HostBuffer: other names for the same sizes") {
  const HostBuffer array = counting(Shape({2, 3}, f32));
  const HostBuffer named = array.with_shape(Shape({{"b", 2}, {"d", 3}}, f32));
  CHECK(named.bytes() == array.bytes());
  CHECK(named.slice("d", 0, 1).shape().elements() == 2);
  expect_error(Errc::shape_mismatch, [&] { array.with_shape(Shape({3, 2}, f32)); });
  expect_error(Errc::shape_mismatch, [&] { array.with_shape(Shape({2, 3}, i32)); });
}

TEST_CASE("HostBuffer: every plain type to every other, as one element at a time would") {
  const std::vector<double> samples{0,     1,     -1,       0.5,      -0.5,  2.5,     127,
                                    128,   -129,  255,      256,      65504, 65520,   -1e5,
                                    1e10,  -1e10, 1e20,     1e-30,    1e300, 0x1p-25, 1 + 0x1p-11,
                                    3.999, NAN,   INFINITY, -INFINITY};
  const Shape shape({static_cast<std::int64_t>(samples.size())}, f64);
  const HostBuffer doubles = HostBuffer::of<double>(shape, samples);
  for (int from = 0; from <= static_cast<int>(DType::f64); ++from) {
    const HostBuffer source = doubles.to(static_cast<DType>(from));
    for (int to = 0; to <= static_cast<int>(DType::f64); ++to) {
      const auto dtype = static_cast<DType>(to);
      const HostBuffer target = source.to(dtype);
      REQUIRE(target.shape() == shape.with_dtype(dtype));
      const bool whole = !is_floating(source.shape().dtype());
      for (std::int64_t i = 0; i < shape[0]; ++i) {
        std::array<std::byte, 8> want{};
        const std::byte* element = source.bytes() + i * block_bytes(source.shape().dtype());
        if (whole) {
          store_int64(dtype, want.data(), load_as_int64(source.shape().dtype(), element));
        } else {
          store_double(dtype, want.data(), load_as_double(source.shape().dtype(), element));
        }
        const double wanted = load_as_double(dtype, want.data());
        const double got = target.at({i});
        if (!(got == wanted || (std::isnan(got) && std::isnan(wanted)))) {
          FAIL_CHECK(name(source.shape().dtype()) << " to " << name(dtype) << ", element " << i
                                                  << ": " << got << ", not " << wanted);
        }
      }
    }
  }
}

TEST_CASE("HostBuffer: whole arrays convert to 16-bit floats, and back, as single values do") {
  std::vector<float> values;
  for (std::uint32_t upper = 0; upper < 0x10000; ++upper) {
    for (const std::uint32_t lower : {0x0000u, 0x0001u, 0x0FFFu, 0x1000u, 0x1001u, 0x3000u, 0x7FFFu,
                                      0x8000u, 0x8001u, 0xFFFFu}) {
      values.push_back(std::bit_cast<float>(upper << 16 | lower));
    }
  }
  const Shape shape({static_cast<std::int64_t>(values.size())}, f32);
  const HostBuffer floats = HostBuffer::of<float>(shape, values);
  const HostBuffer halves = floats.to(f16), bfloats = floats.to(bf16);
  const HostBuffer half_values = halves.to(f32), bfloat_values = bfloats.to(f32);
  const auto same_bits = [](float a, float b) {
    return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
  };
  int wrong = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const half h = halves.values<half>()[i];
    const bfloat16 b = bfloats.values<bfloat16>()[i];
    if (h.bits != to_half(values[i]).bits) ++wrong;
    if (b.bits != to_bfloat16(values[i]).bits) ++wrong;
    if (!same_bits(half_values.values<float>()[i], to_float(h))) ++wrong;
    if (!same_bits(bfloat_values.values<float>()[i], to_float(b))) ++wrong;
  }
  CHECK(wrong == 0);
}

TEST_CASE("HostBuffer: conversion of strided arrays keeps tags") {
  const std::array<int, 2> transposed{1, 0};
  const HostBuffer array = counting(Shape({{"b", 2}, {"d", 3}}, f32)).permute(transposed).to(i8);
  CHECK(to_string(array.shape()) == "i8[d=3, b=2]");
  CHECK(elements(array) == std::vector<double>{0, 3, 1, 4, 2, 5});
}

TEST_CASE("HostBuffer: blocks convert through f32") {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> values(3 * 2048 + 512);
  for (float& value : values) value = normal(random);
  const HostBuffer floats =
      HostBuffer::of<float>(Shape({static_cast<std::int64_t>(values.size())}, f32), values);

  for (const DType dtype : {DType::q4_0, DType::q8_0, DType::q6_k}) {
    INFO(name(dtype));
    const HostBuffer blocks = floats.to(dtype);
    std::vector<std::byte> want(static_cast<std::size_t>(blocks.shape().bytes()));
    quantize(dtype, values.data(), want.data(), floats.shape().elements());
    CHECK(std::equal(want.begin(), want.end(), blocks.bytes()));

    const HostBuffer back = blocks.to(f32);
    std::vector<float> wanted(values.size());
    dequantize(dtype, want.data(), wanted.data(), floats.shape().elements());
    CHECK(std::equal(wanted.begin(), wanted.end(), back.values<float>().begin()));
    CHECK(elements(blocks.to(f64)) == elements(back));
    CHECK(elements(blocks.to(bf16)) == elements(back.to(bf16)));

    expect_error(Errc::unsupported_dtype, [&] { blocks.to(i8); });
    expect_error(Errc::unsupported_dtype, [&] { blocks.to(DType::q5_0); });
    expect_error(Errc::unsupported_dtype, [&] { floats.to(f16).to(dtype); });
    expect_error(Errc::bad_shape, [&] { floats.slice(0, 0, 100).to(dtype); });
  }
}

TEST_CASE("HostBuffer: to a device without a copy, and back to the same array") {
  const HostBuffer array = counting(Shape({2, 3}, f32));
  const Buffer buffer = array.to_device(cpu_device());
  CHECK(buffer.data().cptr() == array.bytes());
  CHECK_FALSE(buffer.is_unique());  // the array still sees the bytes
  const HostBuffer back = buffer.to_host();
  CHECK(back.bytes() == array.bytes());

  // A strided array is copied into row-major order first.
  const std::array<int, 2> transposed{1, 0};
  const Buffer copied = array.permute(transposed).to_device(cpu_device());
  CHECK(elements(copied.to_host()) == std::vector<double>{0, 3, 1, 4, 2, 5});
  CHECK(HostBuffer::zeros(Shape({0}, f32)).to_device(cpu_device()).to_host().shape()[0] == 0);
  expect_error(Errc::bad_argument, [&] { array.to_device(nullptr); });
}

TEST_CASE("HostBuffer: the device's view of an array outlives it") {
  Buffer buffer;
  HostBuffer again;
  {
    const HostBuffer array = counting(Shape({1000}, i32));
    buffer = array.to_device(cpu_device());
  }
  again = buffer.to_host();
  buffer = {};
  CHECK(again.at({999}) == 999);
}

TEST_CASE("HostBuffer: mapped and borrowed arrays stay so on their way through a device") {
  const auto file = std::make_shared<std::vector<float>>(std::vector<float>{1, 2, 3, 4});
  const HostBuffer mapped = HostBuffer::mapped(file->data(), Shape({4}, f32), file);
  HostBuffer back = mapped.slice(0, 1, 3).to_device(cpu_device()).to_host();
  CHECK(back.is_read_only());
  CHECK(back.at({0}) == 2);
  expect_error(Errc::bad_argument, [&] { back.mutable_values<float>(); });

  const HostBuffer borrowed = HostBuffer::borrow(file->data(), Shape({4}, f32));
  CHECK(borrowed.to_device(cpu_device()).to_host().ownership() == Ownership::borrowed);
}

TEST_CASE("HostBuffer: two devices' views of the same bytes") {
  const HostBuffer array = counting(Shape({8}, f32));
  const Buffer whole = array.to_device(cpu_device());
  const Buffer part = array.slice(0, 2, 5).to_device(cpu_device());
  CHECK(part.data() - whole.data() == 8);
}

TEST_CASE("HostBuffer: more than 2^31 elements") {
  // zeros takes pages only where somebody writes.
  constexpr std::int64_t size = (std::int64_t{1} << 31) + 17;
  HostBuffer array = HostBuffer::zeros(Shape({size}, i8));
  array.mutable_values<std::int8_t>().back() = 42;
  CHECK(array.at({size - 1}) == 42);
  const HostBuffer tail = array.slice(0, size - 20, size);
  CHECK(tail.at({19}) == 42);
  CHECK(tail.to(f32).at({19}) == 42);
  const std::array<std::int64_t, 2> columns{(size - 1) / 2, 2};
  CHECK(array.slice(0, 1, size).reshape(columns).slice(0, columns[0] - 1, columns[0]).at({0, 1}) ==
        42);
}

TEST_CASE("HostBuffer: a whole copy of more than 2^31 elements", "[.large]") {
  constexpr std::int64_t size = (std::int64_t{1} << 31) + 17;
  HostBuffer array = HostBuffer::zeros(Shape({size}, i8));
  for (const std::int64_t at : {std::int64_t{0}, size / 2, size - 1}) {
    array.mutable_values<std::int8_t>()[static_cast<std::size_t>(at)] = 7;
  }
  const HostBuffer copy = array.contiguous();
  std::int64_t sum = 0;
  for (const std::int8_t value : copy.values<std::int8_t>()) sum += value;
  CHECK(sum == 21);
  CHECK(copy.at({size - 1}) == 7);
}

TEST_CASE("HostBuffer: text") {
  CHECK(to_string(HostBuffer::of<float>(Shape({3}, f32), {1, -2.5f, 1e-7f})) ==
        "[    1,  -2.5, 1e-07] f32[3]");
  CHECK(to_string(counting(Shape({{"b", 2}, {"d", 2}}, i8))) == "[[0, 1],\n [2, 3]] i8[b=2, d=2]");
  CHECK(to_string(counting(Shape({2, 1, 2}, i8))) == "[[[0, 1]],\n\n [[2, 3]]] i8[2, 1, 2]");
  CHECK(to_string(counting(Shape({100}, i32))) == "[ 0,  1,  2, ..., 97, 98, 99] i32[100]");
  CHECK(to_string(counting(Shape({100, 2}, i32)), 1) ==
        "[[  0,   1],\n ...,\n [198, 199]] i32[100, 2]");
  CHECK(to_string(HostBuffer::of<bool>(Shape({2}, boolean), {true, false})) ==
        "[ true, false] bool[2]");
  CHECK(to_string(HostBuffer::zeros(Shape())) == "0 f32[]");
  CHECK(to_string(HostBuffer::zeros(Shape({2, 0}, f32))) == "[] f32[2, 0]");
  CHECK(to_string(HostBuffer::of<double>(Shape({3}, f64), {NAN, INFINITY, -INFINITY})) ==
        "[ nan,  inf, -inf] f64[3]");

  std::vector<float> ramp(64);
  std::iota(ramp.begin(), ramp.end(), -32.0f);
  const HostBuffer blocks = HostBuffer::of<float>(Shape({64}, f32), ramp).to(DType::q8_0);
  const HostBuffer exact = blocks.to(f32);
  const std::string floats = to_string(exact);
  CHECK(to_string(blocks) == floats.substr(0, floats.find(']') + 1) + " q8_0[64]");

  std::ostringstream out;
  out << counting(Shape({2}, i8));
  CHECK(out.str() == "[0, 1] i8[2]");
}

}  // namespace tenon
