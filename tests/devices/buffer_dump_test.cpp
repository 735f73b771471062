#include "host_region.hpp"
#include "support/expect_error.hpp"
#include "support/fake_device.hpp"

#include <tenon/buffer.hpp>

#include <clocale>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon {
namespace {

using testing::expect_error;
using testing::FakeDevice;

std::string dump(const Buffer& buffer, std::string_view format = {}) {
  std::ostringstream out;
  buffer.dump(out, format);
  return out.str();
}

template <class T>
std::vector<T> numbers(const std::string& bytes) {
  REQUIRE(bytes.size() % sizeof(T) == 0);
  std::vector<T> result(bytes.size() / sizeof(T));
  std::memcpy(result.data(), bytes.data(), bytes.size());
  return result;
}

/// Three channels at two places, in blocks of two on a device: channels 0 and 1, then 2 and none.
Buffer blocked(MemRegion& region) {
  Buffer buffer = Buffer::allocate(Shape({1, 2, 1, 2, 2}, i8).with_layout("NCHWc2"), region);
  constexpr std::int8_t lanes[] = {10, 20, 11, 21, 30, 0, 31, 0};
  buffer.fill<std::int8_t>([&](std::size_t i) { return lanes[i]; });
  return buffer.set_format(
      {.extent = 3,
       .software = Layout("NHWC"),
       .quant = QuantParams{.scale = {0.5f, 0.25f, 2.0f}, .normratio = {2.0f}}});
}

}  // namespace

TEST_CASE("Buffer: fill by position, on any memory") {
  const auto fake = std::make_shared<FakeDevice>();
  for (MemRegion* region : {&host(), static_cast<MemRegion*>(&fake->dram())}) {
    INFO(region->name());
    Buffer buffer = Buffer::allocate(Shape({300, 77}, f32), *region);  // more than one piece
    CHECK(&buffer.fill<float>([](std::size_t i) { return static_cast<float>(i); }) == &buffer);
    const HostBuffer array = buffer.to_host();
    const auto values = array.values<float>();
    bool right = true;
    for (std::size_t i = 0; i < values.size(); ++i) right = right && values[i] == float(i);
    CHECK(right);
    expect_error(Errc::bad_type, [&] { buffer.fill<double>([](std::size_t) { return 0; }); });
  }
  // Only its own bytes, at its own offset.
  const MemChunk chunk = host().malloc(12);
  Buffer(Shape({12}, i8), chunk).fill<std::int8_t>([](std::size_t) { return 9; });
  Buffer(Shape({4}, i8), chunk, 4).fill<std::int8_t>([](std::size_t) { return 1; });
  CHECK(dump(Buffer(Shape({12}, i8), chunk), "SQT") == "9\n9\n9\n9\n1\n1\n1\n1\n9\n9\n9\n9\n");

  Buffer none(Shape({2}, f32));
  expect_error(Errc::call_order, [&] { none.fill<float>([](std::size_t) { return 0; }); });
  Buffer empty = Buffer::allocate(Shape({0}, f32), host());
  empty.fill<float>([](std::size_t) -> float { throw std::runtime_error("asked"); });
}

TEST_CASE("Buffer: the nine dumps of a blocked, quantised array") {
  const auto fake = std::make_shared<FakeDevice>();
  const std::vector<std::int8_t> lanes{10, 20, 11, 21, 30, 0, 31, 0};
  const std::vector<std::int8_t> values{10, 20, 30, 11, 21, 31};
  const std::vector<float> real_lanes{10, 10, 11, 10.5, 120, 0, 124, 0};
  const std::vector<float> reals{10, 10, 120, 11, 10.5, 124};
  for (MemRegion* region : {&host(), static_cast<MemRegion*>(&fake->dram())}) {
    INFO(region->name());
    const Buffer buffer = blocked(*region);
    CHECK(numbers<std::int8_t>(dump(buffer)) == lanes);
    CHECK(numbers<std::int8_t>(dump(buffer, "HQB")) == lanes);
    CHECK(numbers<std::int8_t>(dump(buffer, "SQB")) == values);
    CHECK(numbers<float>(dump(buffer, "HFB")) == real_lanes);
    CHECK(numbers<float>(dump(buffer, "SFB")) == reals);
    CHECK(dump(buffer, "HQT") == "10\n20\n11\n21\n30\n0\n31\n0\n");
    CHECK(dump(buffer, "SQT") == "10\n20\n30\n11\n21\n31\n");
    CHECK(dump(buffer, "HFT") == "10\n10\n11\n10.5\n120\n0\n124\n0\n");
    CHECK(dump(buffer, "SFT") == "10\n10\n120\n11\n10.5\n124\n");
  }
  // A copy on other memory says the same.
  CHECK(dump(blocked(fake->dram()).to(host()), "SFT") == "10\n10\n120\n11\n10.5\n124\n");
}

TEST_CASE("Buffer: the ways back are closed") {
  Buffer plain = Buffer::allocate(Shape({2}, f16), host());
  plain.fill<half>([](std::size_t i) { return to_half(i == 0 ? 1.5f : -65504.0f); });
  CHECK(dump(plain).size() == 4);
  CHECK(numbers<float>(dump(plain, "SFB")) == std::vector<float>{1.5f, -65504.0f});
  CHECK(dump(plain, "SFT") == "1.5\n-65504\n");
  for (const char* format : {"SQB", "SQT"}) {
    INFO(format);
    expect_error(Errc::bad_argument, [&] { dump(plain, format); });  // no fixed point
  }
  Buffer integers = Buffer::allocate(Shape({2}, i8), host());
  integers.fill<std::int8_t>([](std::size_t i) { return i; });
  CHECK(dump(integers, "SFT") == "0\n1\n");
  for (const char* format : {"HQB", "HQT", "HFB", "HFT"}) {
    INFO(format);
    expect_error(Errc::bad_argument, [&] { dump(integers, format); });  // no blocks
  }
  for (const char* format : {"S", "SQ", "SQBB", "sqb", "QSB", "SQX", "BQS", " SQB"}) {
    INFO(format);
    expect_error(Errc::bad_argument, [&] { dump(integers, format); });
  }
}

TEST_CASE("Buffer: what numbers look like in a dump") {
  Buffer f32s = Buffer::allocate(Shape({6}, f32), host());
  const float special[] = {0.1f,          -0.0f,       1e-45f,
                           3.4028235e38f, 16777217.0f, std::numeric_limits<float>::infinity()};
  f32s.fill<float>([&](std::size_t i) { return special[i]; });
  const std::string text = dump(f32s, "SFT");
  CHECK(text.starts_with("0.1\n-0\n1e-45\n"));
  std::istringstream lines(text);
  std::string line;
  for (const float value : special) {
    std::getline(lines, line);
    CHECK(std::strtof(line.c_str(), nullptr) == value);
  }
  Buffer f64s = Buffer::allocate(Shape({1}, f64), host());
  f64s.fill<double>([](std::size_t) { return 0.1; });
  CHECK(dump(f64s, "SFT") == "0.1\n");
  CHECK(numbers<double>(dump(f64s, "SFB")) == std::vector<double>{0.1});
  // Where people write 0,1.
  const std::string before = std::setlocale(LC_ALL, nullptr);
  if (std::setlocale(LC_ALL, "de_DE.UTF-8") != nullptr) CHECK(dump(f64s, "SFT") == "0.1\n");
  std::setlocale(LC_ALL, before.c_str());
}

TEST_CASE("Buffer: block-quantised weights are real numbers") {
  const HostBuffer row = HostBuffer::zeros(Shape({1, 32}, f32)).to(DType::q8_0);
  const Buffer buffer = row.to_device(cpu_device());
  CHECK(dump(buffer).size() == 34);
  CHECK(numbers<float>(dump(buffer, "SFB")) == std::vector<float>(32, 0.0f));
  expect_error(Errc::bad_argument, [&] { dump(buffer, "SQB"); });
}

TEST_CASE("Buffer: a dump waits, and fails with the work or the stream") {
  Buffer failed(Shape({2}, f32), host().malloc(8), 0,
                []() -> bool { throw Error(Errc::device_error, "matmul", "bad"); });
  expect_error(Errc::device_error, [&] { dump(failed); });
  expect_error(Errc::call_order, [] { dump(Buffer(Shape({2}, f32)), "SFB"); });
  Buffer buffer = Buffer::allocate(Shape({2}, i8), host());
  std::ostringstream closed;
  closed.setstate(std::ios::badbit);
  for (const char* format : {"", "SQB", "SQT"}) {
    expect_error(Errc::io_error, [&] { buffer.dump(closed, format); });
  }
}

TEST_CASE("Buffer: formats that do not fit") {
  const auto refused = [](Errc code, const Shape& shape, BufferFormat format) {
    Buffer buffer = Buffer::allocate(shape, host());
    return expect_error(code, [&] { buffer.set_format(std::move(format)); });
  };
  const Shape blocks = Shape({1, 2, 1, 2, 2}, i8).with_layout("NCHWc2");
  refused(Errc::bad_shape, blocks, {.extent = 2});
  refused(Errc::bad_shape, blocks, {.extent = 5});
  refused(Errc::bad_shape, Shape({1, 2, 1, 2}, i8).with_layout("NCHWc2"), {});
  refused(Errc::bad_argument, blocks, {.software = Layout("HWC")});
  refused(Errc::bad_argument, blocks, {.software = Layout("NHWCc4")});
  refused(Errc::bad_argument, Shape({4}, i8), {.extent = 4});
  refused(Errc::syntax, Shape({4}, i8).with_layout("rows"), {});

  const auto quant = [](std::vector<float> scale, std::vector<float> ratio = {1}, char axis = 'C') {
    return BufferFormat{.quant = QuantParams{std::move(scale), std::move(ratio), axis}};
  };
  const Shape nhwc = Shape({1, 2, 2, 3}, i8).with_layout("NHWC");
  refused(Errc::bad_argument, nhwc, quant({1, 2}));
  refused(Errc::bad_argument, nhwc, quant({}));
  refused(Errc::bad_argument, nhwc, quant({1}, {1, 2}));
  refused(Errc::bad_argument, nhwc, quant({0}));
  refused(Errc::bad_argument, nhwc, quant({-1}));
  refused(Errc::bad_argument, nhwc, quant({std::numeric_limits<float>::quiet_NaN()}));
  refused(Errc::bad_argument, nhwc, quant({1, 2, 3}, {1}, 'O'));
  refused(Errc::bad_argument, Shape({3}, i8), quant({1, 2, 3}));  // no axis has a letter
  refused(Errc::bad_argument, nhwc.with_dtype(f32), quant({1}));
  Buffer good = Buffer::allocate(nhwc, host());
  CHECK_FALSE(good.format().quant);
  good.set_format(quant({1, 2, 3}, {1, 2, 1}));
  CHECK(good.format().quant->factor(1) == 4);
  CHECK(to_string(*good.format().quant) == "scale of 3 channels C, normratio of 3 channels C");
  CHECK(to_string(QuantParams{.scale = {0.5f}}) == "scale 0.5");
  CHECK_FALSE(good.with_shape(Shape({12}, i8)).format().quant);
}

}  // namespace tenon
