// Graphs, memory and copies: what the driver's users do, and what the emulation finds in misuse.
#include "driver/driver.hpp"

#include "device.hpp"
#include "emulated.hpp"
#include "kernels/args.hpp"
#include "staging.hpp"
#include "support/expect_error.hpp"
#include "support/op_testing.hpp"

#include <tenon/buffer.hpp>
#include <tenon/graph.hpp>
#include <tenon/ops.hpp>
#include <tenon/repeat.hpp>
#include <tenon/session.hpp>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <sys/wait.h>
#include <unistd.h>

namespace tenon::testing {
namespace {

cuda::FillArgs fill_args(cuda::Address at, std::uint8_t value) {
  cuda::FillArgs args{};
  args.axes = {{8}, 8, 1};
  args.y = {at, {{1}}, DType::u8};
  args.bytes = 1;
  args.value[0] = value;
  return args;
}
cuda::Work fill_work(const cuda::FillArgs& args) { return {cuda::Kernel::fill, {1, 32}, &args}; }

/// An emulated driver with 16 bytes of memory, and what they are.
struct Rig {
  cuda::DriverPtr driver = cuda::open_emulated_driver({});
  cuda::StreamId stream = driver->create_stream();
  cuda::Address memory = driver->allocate(16);

  std::string bytes() {
    std::string read(16, '?');
    driver->read(stream, read.data(), memory, 16);
    driver->synchronize(stream);
    return read;
  }
  cuda::GraphId graph() {
    const cuda::FillArgs first = fill_args(memory, 'a'), second = fill_args(memory + 8, 'b');
    return driver->create_graph(std::vector<cuda::Work>{fill_work(first), fill_work(second)}, true);
  }
};

TEST_CASE("cuda graphs: launched as one, and updated for later launches") {
  Rig rig;
  const cuda::GraphId graph = rig.graph();
  rig.driver->launch(rig.stream, graph);
  const cuda::FillArgs other = fill_args(rig.memory + 8, 'c');
  rig.driver->update(graph, 1, fill_work(other));
  CHECK(rig.bytes() == "aaaaaaaabbbbbbbb");
  rig.driver->launch(rig.stream, graph);
  CHECK(rig.bytes() == "aaaaaaaacccccccc");
  rig.driver->destroy(graph);
  rig.driver->destroy(rig.stream);
}

TEST_CASE("cuda graphs: misuse ends the device") {
  const cuda::FillArgs args = fill_args(0, 0);
  SECTION("no nodes") {
    Rig rig;
    expect_error(Errc::device_error, [&] { rig.driver->create_graph({}, true); });
    expect_error(Errc::device_error, [&] { rig.driver->allocate(1); });
  }
  SECTION("a node that is none") {
    Rig rig;
    const cuda::GraphId graph = rig.graph();
    const std::string what =
        expect_error(Errc::device_error, [&] { rig.driver->update(graph, 2, fill_work(args)); });
    CHECK(what.find("node 2 of a graph of 2") != std::string::npos);
  }
  SECTION("another kernel") {
    Rig rig;
    const cuda::GraphId graph = rig.graph();
    const cuda::IotaArgs iota{};
    const std::string what = expect_error(Errc::device_error, [&] {
      rig.driver->update(graph, 0, {cuda::Kernel::iota, {1, 32}, &iota});
    });
    CHECK(what.find("fill, not iota") != std::string::npos);
  }
  SECTION("used after its end") {
    Rig rig;
    const cuda::GraphId graph = rig.graph();
    rig.driver->destroy(graph);
    expect_error(Errc::device_error, [&] { rig.driver->launch(rig.stream, graph); });
  }
  SECTION("destroyed while it runs") {
    Rig rig;
    const cuda::GraphId graph = rig.graph();
    rig.driver->launch(rig.stream, graph);
    rig.driver->destroy(graph);
    expect_error(Errc::device_error, [&] { rig.driver->synchronize(rig.stream); });
  }
}

/// sum over 3 iterations of (x * 2 + state), then rows of it by index: two results.
Program repeated() {
  Graph graph;
  const Graph::Recording recording(graph);
  const Tensor x = graph.input("x", Shape({4, 8}, f32));
  const Tensor ids = graph.input("ids", Shape({2}, i32));
  Tensor y = x;
  for (int i = 0; i < 3; ++i) y = y * 2.0 + x;
  const std::vector<Tensor> results{gather(y, ids, 0), exp(y * 0.01)};
  return graph.program(results);
}

TEST_CASE("cuda graphs: runs that repeat have the bits of the first, wherever arrays lie") {
  Random random;
  const DevicePtr device = emulated_device(), plain = emulated_device("?graphs=off");
  const auto session_on = [](const DevicePtr& on) {
    Session session(repeated(), {.backends = device_backends(on), .forbid_fallback = true});
    session.bind(std::make_shared<const WeightSet>(std::map<std::string, Buffer>()));
    return session;
  };
  Session with = session_on(device), without = session_on(plain);
  std::vector<Buffer> kept;  // so that later arrays lie elsewhere
  for (int i = 0; i < 5; ++i) {
    const HostBuffer x = random.uniform(Shape({4, 8}, f32));
    const HostBuffer ids = HostBuffer::of<std::int32_t>(Shape({2}, i32), {i % 4, 3});
    const std::vector<Buffer> inputs{x.to_device(device), ids.to_device(device)};
    kept.insert(kept.end(), inputs.begin(), inputs.end());
    const auto got = with.forward(inputs);
    const auto wanted = without.forward({x.to_device(cpu_device()), ids.to_device(cpu_device())});
    for (std::size_t r = 0; r < 2; ++r) {
      const HostBuffer a = got[r].to_host(), b = wanted[r].to_host();
      CHECK(std::memcmp(a.bytes(), b.bytes(), static_cast<std::size_t>(a.shape().bytes())) == 0);
    }
    if (i == 2) {  // an error in a graph's launch is told as ever, and forgotten afterwards
      const HostBuffer wrong = HostBuffer::of<std::int32_t>(Shape({2}, i32), {0, 4});
      const std::string what = expect_error(Errc::out_of_range, [&] {
        with.forward({x.to_device(device), wrong.to_device(device)});
      });
      CHECK(what.find("index 4 outside [0, 4)") != std::string::npos);
    }
  }
  CHECK(device->params().at("graph_launches") == "5");
  CHECK(plain->params().at("graph_launches") == "0");
  const std::vector<Shape> shapes{Shape({4, 8}, f32), Shape({2}, i32)};
  CHECK(with.report(shapes).parts.at(0).notes.at(1).find("one CUDA graph of ") == 0);
  CHECK(without.report(shapes).parts.at(0).notes.at(1) == "no CUDA graph: graphs=off");
  expect_error(Errc::out_of_range, [] { emulated_device("?graphs=maybe"); });
}

/// x * row * 2 + index for each row of `table`, with a step of f64, which no kernel computes.
Program layered() {
  Graph graph;
  const Graph::Recording recording(graph);
  const Tensor table = graph.input("table", Shape({4, 8}, f32));
  const Tensor x = graph.input("x", Shape({8}, f32));
  const Tensor y = repeat(std::int64_t{4}, x, [&](const Tensor& index, const Tensor& now) {
    const Tensor moved = now * select(table, index) * 2.0 + cast(index, f32);
    return cast(tanh(cast(moved, f64)), f32);
  });
  return graph.program({&y, 1});
}

TEST_CASE("cuda graphs: none for parts of a loop that has steps elsewhere") {
  Random random;
  const DevicePtr device = emulated_device();
  std::vector<BackendPtr> backends = device_backends(device);
  backends.push_back(make_reference_backend({}));
  Session mixed(layered(), {.backends = backends});
  Session reference(layered(), {.backends = {make_reference_backend({})}});
  for (Session* const session : {&mixed, &reference}) {
    session->bind(std::make_shared<const WeightSet>(std::map<std::string, Buffer>()));
  }
  const HostBuffer table = random.uniform(Shape({4, 8}, f32)), x = random.uniform(Shape({8}, f32));
  const std::vector<Buffer> inputs{table.to_device(cpu_device()), x.to_device(cpu_device())};
  const HostBuffer wanted = reference.forward(inputs).at(0).to_host();
  for (int run = 0; run < 2; ++run) {
    expect_close(mixed.forward(inputs).at(0).to_host(), wanted, 1e-6, 1e-6);
  }
  const PlanReport report = mixed.report(std::vector<Shape>{table.shape(), x.shape()});
  const std::vector<std::string>& notes = report.parts.at(1).notes;  // 0: what the loop begins with
  CHECK(notes.at(0) == "5 launches, 0 bytes of scratch memory");
  CHECK(notes.at(1) == "no CUDA graph: in a loop that has steps elsewhere");
  CHECK(device->params().at("graph_launches") == "0");
}

TEST_CASE("cuda: copies in pieces, by one lane and several") {
  Random random;
  const cuda::DriverPtr driver = cuda::open_emulated_driver({});
  cuda::Staging staging(driver, 64);
  for (const std::uint64_t bytes : {1, 63, 64, 65, 128, 500, 1024, 5000, 70001}) {
    CAPTURE(bytes);
    std::vector<std::uint8_t> sent(bytes), got(bytes);
    for (std::uint8_t& byte : sent) byte = static_cast<std::uint8_t>(random.integer(0, 255));
    const cuda::Address memory = driver->allocate(bytes);
    staging.write(memory, sent.data(), bytes);
    staging.read(got.data(), memory, bytes);
    CHECK(sent == got);
    driver->free(memory);
    expect_error(Errc::device_error, [&] {
      const cuda::DriverPtr other = cuda::open_emulated_driver({});
      cuda::Staging(other, 64).read(got.data(), memory, bytes);
    });
  }
}

TEST_CASE("cuda: large arrays to the device and back, and pinned ones") {
  Random random;
  const DevicePtr device = emulated_device();
  const HostBuffer sent = random.uniform(Shape({700, 1001}, f32));
  const auto bytes = static_cast<std::size_t>(sent.shape().bytes());
  const Buffer there = sent.to_device(device);
  CHECK(std::memcmp(there.to_host().bytes(), sent.bytes(), bytes) == 0);
  MemRegion& pinned = device->mem_region("pinned");
  const Buffer between = there.to(pinned);
  CHECK(pinned.is_host());
  CHECK(std::memcmp(between.host_view().data, sent.bytes(), bytes) == 0);
  const Buffer again = between.to(device->default_mem_region());
  CHECK(std::memcmp(again.to_host().bytes(), sent.bytes(), bytes) == 0);
}

TEST_CASE("cuda: copies between two devices") {
  const DevicePtr one = emulated_device(), other = emulated_device();
  const HostBuffer sent = HostBuffer::of<float>(Shape({3}, f32), {1, 2, 3});
  const Buffer there = sent.to_device(one).to(other->default_mem_region());
  CHECK(there.is_on(other->default_mem_region()));
  CHECK(there.to_host().values<float>()[2] == 3);
}

TEST_CASE("cuda: a write beside an allocation is found when it is freed") {
  const DevicePtr device = emulated_device("?checks=on");
  cuda::Driver& driver = *std::dynamic_pointer_cast<cuda::CudaDevice>(device)->driver();
  const cuda::StreamId stream = driver.create_stream();
  MemRegion& region = device->default_mem_region();
  for (const std::int64_t beside : {-1, 100}) {
    MemChunk chunk = region.malloc(100);
    region.check_redzones();
    driver.fill(stream, (chunk.begin() + beside).addr(), 0, 1);
    driver.synchronize(stream);
    expect_error(Errc::device_error, [&] { region.check_redzones(); });
    expect_error(Errc::device_error, [&] { chunk.free(); });
  }
  driver.destroy(stream);
  MemChunk intact = region.malloc(100);
  intact.free();
  CHECK(emulated_device()->params().at("checks") == "off");
}

TEST_CASE("cuda: a child of fork() is told that the device is not its own") {
  const DevicePtr device = emulated_device();
  const MemChunk chunk = device->default_mem_region().malloc(64);
  const pid_t child = fork();
  if (child == 0) {
    int status = 1;
    try {
      device->default_mem_region().malloc(64);
    } catch (const Error& error) {
      status = error.code() == Errc::forked_process ? 0 : 2;
    }
    _exit(status);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace tenon::testing
