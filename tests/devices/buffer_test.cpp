#include "host_region.hpp"
#include "support/catch_chunk.hpp"
#include "support/expect_error.hpp"
#include "support/fake_device.hpp"

#include <tenon/buffer.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon {
namespace {

using namespace std::chrono_literals;
using testing::expect_error;
using testing::FakeDevice;

HostBuffer ramp(std::int64_t size) {
  std::vector<float> values(static_cast<std::size_t>(size));
  std::iota(values.begin(), values.end(), 0.0f);
  return HostBuffer::of<float>(Shape({size}, f32), values);
}

bool equal(const HostBuffer& a, const HostBuffer& b) {
  const auto x = a.values<float>(), y = b.values<float>();
  return std::equal(x.begin(), x.end(), y.begin(), y.end());
}

}  // namespace

TEST_CASE("Buffer: a type on memory") {
  const Shape shape = Shape({1, 416, 416, 3}, f32).with_layout("NHWC");
  const MemChunk chunk = host().malloc(static_cast<std::uint64_t>(shape.bytes()));
  const Buffer buffer(shape, chunk);
  CHECK(buffer.has_data());
  CHECK(buffer.data() == chunk.begin());
  CHECK(buffer.is_ready());
  CHECK(buffer.is_on(host()));
  CHECK(&buffer.region() == &host());
  CHECK(buffer.shape().layout() == Name("NHWC"));

  const Buffer same = buffer.to(host());
  CHECK(same.chunk() == buffer.chunk());
}

TEST_CASE("Buffer: a type without data") {
  int deleted = 0;
  {
    char bytes[8];
    const Shape shape({8}, i8);
    Buffer outer(shape);
    CHECK_FALSE(outer.has_data());
    CHECK(outer.is_ready());
    CHECK_FALSE(outer.is_on(host()));
    expect_error(Errc::call_order, [&] { outer.data(); });
    expect_error(Errc::call_order, [&] { outer.region(); });
    expect_error(Errc::call_order, [&] { outer.to_host(); });
    {
      Buffer inner(shape);
      const MemChunk chunk = host().malloc_at(MemPtr(bytes), 8, [&](const MemPtr&) { ++deleted; });
      inner.set_data(chunk);
      outer.set_data(chunk);
      CHECK(inner.has_data());
    }
    CHECK(deleted == 0);  // outer still holds the chunk
  }
  CHECK(deleted == 1);
  CHECK_FALSE(Buffer().has_data());
  CHECK(Buffer().is_ready());
}

TEST_CASE("Buffer: an offset into a chunk, within its bounds") {
  const MemChunk chunk = host().malloc(100);
  const Buffer buffer(Shape({5}, f32), chunk, 80);
  CHECK(buffer.data() - chunk.begin() == 80);
  CHECK(buffer.offset_bytes() == 80);
  expect_error(Errc::out_of_range, [&] { Buffer(Shape({5}, f32), chunk, 81); });
  expect_error(Errc::out_of_range, [&] { Buffer(Shape({26}, f32), chunk); });
  expect_error(Errc::out_of_range, [&] { Buffer(Shape({1}, f32), chunk, ~std::uint64_t{0}); });
  expect_error(Errc::call_order, [&] { Buffer(Shape({1}, f32), MemChunk()); });
  CHECK(Buffer(Shape({0}, f32), chunk, 100).to_host().shape()[0] == 0);
}

TEST_CASE("Buffer: ready when its check says so") {
  bool done = false;
  int asked = 0;
  Buffer buffer(Shape({1, 2, 3, 4}, f16), [&] {
    ++asked;
    return done;
  });
  buffer.malloc_on(host());
  const Buffer copy = buffer;
  CHECK_FALSE(buffer.is_ready());
  const auto start = std::chrono::steady_clock::now();
  CHECK_FALSE(buffer.wait_for(20ms, 1ms));
  const auto waited = std::chrono::steady_clock::now() - start;
  CHECK(waited >= 20ms);
  CHECK(asked >= 2);
  CHECK_FALSE(buffer.wait_for(0ms));
  CHECK_FALSE(buffer.wait_for(-5ms));
  done = true;
  CHECK(copy.wait_for(1000ms));
  CHECK(buffer.is_ready());
  done = false;
  CHECK(buffer.is_ready());  // readiness is not taken back, and the check is not asked again
}

TEST_CASE("Buffer: a check may hold other arrays, and lets go of them when done") {
  Buffer input = Buffer::allocate(Shape({4}, f32), host());
  const Buffer output(Shape({4}, f32), [input] { return true; });
  CHECK_FALSE(input.is_unique());
  output.wait();
  CHECK(input.is_unique());
}

TEST_CASE("Buffer: waiting for another thread") {
  std::atomic<bool> done = false;
  const Buffer buffer(Shape({1}, f32), host().malloc(4), 0, [&] { return done.load(); });
  std::thread worker([&, view = buffer.data()] {
    std::this_thread::sleep_for(5ms);
    *reinterpret_cast<float*>(view.cptr()) = 42;
    done = true;
  });
  std::vector<std::thread> readers;
  std::atomic<int> right = 0;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] { right += *buffer.host_view().as<float>() == 42 ? 1 : 0; });
  }
  CHECK(buffer.to_host().at({0}) == 42);
  worker.join();
  for (auto& reader : readers) reader.join();
  CHECK(right == 3);
}

TEST_CASE("Buffer: failed work surfaces at the wait, in every handle, again and again") {
  Buffer buffer(Shape({2}, f32), host().malloc(8), 0,
                []() -> bool { throw Error(Errc::device_error, "softmax", "the kernel faulted"); });
  const Buffer copy = buffer;
  for (int i = 0; i < 2; ++i) {
    CHECK(copy.is_ready());  // there is nothing to wait for
    expect_error(Errc::device_error, [&] { copy.wait(); });
    expect_error(Errc::device_error, [&] { buffer.wait_for(1ms); });
    expect_error(Errc::device_error, [&] { buffer.to_host(); });
    expect_error(Errc::device_error, [&] { buffer.host_view(); });
  }
}

TEST_CASE("Buffer: poison ends the waiting; the first error stays") {
  Buffer buffer(Shape({2}, f32), host().malloc(8), 0, [] { return false; });
  const Buffer copy = buffer;
  CHECK_FALSE(copy.wait_for(1ms));
  buffer.poison(std::make_exception_ptr(Error(Errc::device_lost, "npu", "no answer")));
  buffer.poison(std::make_exception_ptr(Error(Errc::cancelled, "npu", "too late")));
  expect_error(Errc::device_lost, [&] { copy.wait(); });
  expect_error(Errc::device_lost, [&] { copy.to_host(); });
  expect_error(Errc::bad_argument, [&] { buffer.poison(nullptr); });
}

TEST_CASE("Buffer: unique means that nothing else can access the bytes") {
  Buffer buffer = Buffer::allocate(Shape({4}, f32), host());
  CHECK(buffer.is_unique());
  {
    const Buffer copy = buffer;
    CHECK_FALSE(buffer.is_unique());
  }
  CHECK(buffer.is_unique());
  {
    const HostBuffer seen = buffer.to_host();
    CHECK_FALSE(buffer.is_unique());
  }
  CHECK(buffer.is_unique());
  CHECK_FALSE(Buffer(Shape({4}, f32)).is_unique());
  std::array<float, 4> mine{};
  CHECK_FALSE(Buffer(Shape({4}, f32), host().malloc_at(MemPtr(mine.data()), 16)).is_unique());
}

TEST_CASE("Buffer: to_host shares what the CPU can address") {
  Buffer buffer = Buffer::allocate(Shape({4}, f32), host());
  HostBuffer array = buffer.to_host();
  array.mutable_values<float>()[1] = 5;
  CHECK(buffer.host_view().as<float>()[1] == 5);
  // And goes back without a copy, onto the very chunk.
  CHECK(array.slice(0, 1, 3).to_device(cpu_device()).chunk() == buffer.chunk());
  buffer = {};
  CHECK(array.at({1}) == 5);
}

TEST_CASE("Buffer: memory that only the device addresses") {
  const auto fake = std::make_shared<FakeDevice>();
  const HostBuffer array = ramp(1000);
  const Buffer on_device = array.to_device(fake);
  CHECK(on_device.is_on(fake->dram()));
  CHECK(on_device.data().kind() == MemPtr::Kind::addr);
  expect_error(Errc::bad_argument, [&] { on_device.host_view(); });
  const HostBuffer back = on_device.to_host();
  CHECK(back.bytes() != array.bytes());
  CHECK(equal(back, array));
  CHECK(on_device.is_unique());

  const Buffer exchanged = on_device.to(fake->xchg());
  CHECK(exchanged.data().kind() == MemPtr::Kind::both);
  CHECK(equal(exchanged.to_host(), array));
  CHECK(exchanged.to_host().bytes() == exchanged.data().cptr());  // shared
  CHECK(equal(exchanged.to(host()).to_host(), array));
  CHECK(equal(array.to_device(cpu_device()).to(fake->dram()).to_host(), array));

  const int before = fake->dram().transfers;
  CHECK(on_device.to(fake->dram()).chunk() == on_device.chunk());
  CHECK(fake->dram().transfers == before);
}

TEST_CASE("Buffer: a copy waits for the data, and fails with it") {
  const auto fake = std::make_shared<FakeDevice>();
  Buffer failed(Shape({2}, f32), fake->dram().malloc(8), 0,
                []() -> bool { throw Error(Errc::device_error, "matmul", "bad"); });
  expect_error(Errc::device_error, [&] { failed.to(host()); });
}

TEST_CASE("Buffer: an array outlives its device's handle") {
  HostBuffer array;
  {
    const Buffer buffer =
        ramp(10).to_device(std::make_shared<FakeDevice>()).with_shape(Shape({2, 5}, f32));
    array = buffer.to_host();
  }
  CHECK(array.at({1, 4}) == 9);
}

TEST_CASE("Buffer: freed memory is not read") {
  Buffer buffer = Buffer::allocate(Shape({4}, f32), host());
  MemChunk chunk = buffer.chunk();
  chunk.free();
  expect_error(Errc::stale_handle, [&] { buffer.data(); });
  expect_error(Errc::stale_handle, [&] { buffer.host_view(); });
  expect_error(Errc::stale_handle, [&] { buffer.to_host(); });
}

TEST_CASE("Buffer: the same bytes under another shape") {
  const Buffer buffer = Buffer::allocate(Shape({4, 6}, f32), host());
  CHECK(buffer.with_shape(Shape({24}, i32)).data() == buffer.data());
  CHECK(buffer.with_shape(Shape({2, 48}, i8)).shape().rank() == 2);
  expect_error(Errc::shape_mismatch, [&] { buffer.with_shape(Shape({25}, f32)); });
}

TEST_CASE("Buffer: no elements, but a region") {
  const Buffer buffer = Buffer::allocate(Shape({0, 3}, f32), host());
  CHECK(buffer.is_on(host()));
  CHECK(buffer.to_host().shape() == Shape({0, 3}, f32));
  const auto fake = std::make_shared<FakeDevice>();
  CHECK(buffer.to(fake->dram()).to_host().shape() == Shape({0, 3}, f32));
}

}  // namespace tenon
