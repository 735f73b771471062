// Devices of the scheme "cuda": what they say, and what happens when they fail.
#include "emulated.hpp"
#include "support/expect_error.hpp"
#include "support/op_testing.hpp"

#include <tenon/buffer.hpp>
#include <tenon/control.hpp>
#include <tenon/graph.hpp>
#include <tenon/ops.hpp>
#include <tenon/session.hpp>

#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

/// rows[ids] * 2, of 5 rows.
Program lookup() {
  Graph graph;
  const Graph::Recording recording(graph);
  const Tensor rows = graph.input("rows", Shape({5, 40}, f32));
  const Tensor ids = graph.input("ids", Shape({3}, i32));
  const Tensor picked = gather(rows, ids, 0) * 2.0;
  return graph.program({&picked, 1});
}

class Lookup {
 public:
  explicit Lookup(DevicePtr device)
      : device_(std::move(device)),
        session_(lookup(), {.backends = device_backends(device_), .forbid_fallback = true}) {
    session_.bind(std::make_shared<const WeightSet>(std::map<std::string, Buffer>()));
  }
  std::vector<Buffer> inputs(std::int32_t last) const {
    std::vector<float> rows(200);
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i);
    return {HostBuffer::of<float>(Shape({5, 40}, f32), rows).to_device(cpu_device()),
            HostBuffer::of<std::int32_t>(Shape({3}, i32), {4, 0, last}).to_device(cpu_device())};
  }
  HostBuffer run(std::int32_t last) { return session_.forward(inputs(last)).at(0).to_host(); }
  Session& session() { return session_; }

 private:
  DevicePtr device_;
  Session session_;
};

float first_of_row(const HostBuffer& result, std::size_t row) {
  return result.values<float>()[row * 40];
}

TEST_CASE("cuda: without a device, opening one says why") {
  register_cuda_backend();
  const std::string what = expect_error(Errc::device_unavailable, [] { Device::open("cuda:99"); });
  CHECK(what.find("no CUDA driver") + what.find("no device 99") + what.find("without the CUDA") !=
        3 * std::string::npos);
  expect_error(Errc::device_unavailable, [] { Device::open("cuda:first"); });
  expect_error(Errc::device_unavailable, [] { Device::open("cuda:-1"); });
}

TEST_CASE("cuda: an emulated device says what it is, and is opened by its name alone") {
  const DevicePtr device = emulated_device("?memory=1000000");
  CHECK(device->protocol() == "cuda-emulation");
  CHECK(device->params().at("name") == "emulated CUDA device");
  CHECK(device->default_mem_region().usage().capacity_bytes == 1000000);
  CHECK(device_backends(device).at(0)->properties().at("device") == device->url());
  device->reset();
  expect_error(Errc::bad_argument, [&] { device->reset(3); });
  expect_error(Errc::bad_key, [] { emulated_device("?size=3"); });
  expect_error(Errc::out_of_range, [] { emulated_device("?memory=much"); });
}

TEST_CASE("cuda: an index that is out of range names the op, and the device goes on") {
  Lookup lookup(emulated_device());
  CHECK(first_of_row(lookup.run(3), 2) == 240);
  const std::string what = expect_error(Errc::out_of_range, [&] { lookup.run(5); });
  CHECK(what.find("gather") != std::string::npos);
  CHECK(what.find("index 5 outside [0, 5)") != std::string::npos);
  expect_error(Errc::out_of_range, [&] { lookup.run(-1); });
  CHECK(first_of_row(lookup.run(1), 2) == 80);
}

TEST_CASE("cuda: an index that is out of range ends a loop whose condition goes on") {
  Graph graph;
  const Graph::Recording recording(graph);
  const Tensor rows = graph.input("rows", Shape({5, 4}, f32));
  const Tensor ids = graph.input("ids", Shape({3}, i32));
  const Tensor first = graph.input("first", Shape({}, i64));
  using Counted = std::pair<Tensor, Tensor>;
  const Tensor y =
      while_loop(
          Counted(first, gather(rows, iota(3, i32), 0)),
          [](const Counted& now) { return lt(now.first, scalar_like(now.first, 1000)); },
          [&](const Counted& now) {
            return Counted(now.first + scalar_like(now.first, 1),
                           now.second + gather(rows, ids, 0));
          },
          1000)
          .second;
  // As many launches as few iterations have.
  const DevicePtr device = emulated_device("?libraries=off&fail_launch=100");
  Session session(graph.program({&y, 1}),
                  {.backends = device_backends(device), .forbid_fallback = true});
  session.bind(std::make_shared<const WeightSet>(std::map<std::string, Buffer>()));
  const std::vector<Buffer> inputs{
      HostBuffer::of<float>(Shape({5, 4}, f32), std::vector<float>(20)).to_device(cpu_device()),
      HostBuffer::of<std::int32_t>(Shape({3}, i32), {4, 0, 5}).to_device(cpu_device()),
      HostBuffer::of<std::int64_t>(Shape({}, i64), {0}).to_device(cpu_device())};
  expect_error(Errc::out_of_range, [&] { session.forward(inputs); });
}

TEST_CASE("cuda: arrays that begin within an element are refused, weights are copied") {
  const DevicePtr device = emulated_device();
  Graph graph;
  const Graph::Recording recording(graph);
  const Tensor y = graph.input("x", Shape({4}, f32)) + graph.constant("w", Shape({4}, f32));
  Session session(graph.program({&y, 1}),
                  {.backends = device_backends(device), .forbid_fallback = true});
  const HostBuffer values = HostBuffer::of<float>(Shape({4}, f32), {1, 2, 3, 4});
  const MemChunk chunk = device->default_mem_region().malloc(256);
  const auto at = [&](std::uint64_t offset) {
    chunk.write(values.bytes(), offset, 16);
    return Buffer(Shape({4}, f32), chunk, offset);
  };
  session.bind(std::make_shared<const WeightSet>(std::map<std::string, Buffer>{{"w", at(65)}}));
  const Buffer within = at(130), between = at(196);
  const std::string what = expect_error(Errc::bad_argument, [&] { session.forward({within}); });
  CHECK(what.find("multiple of 4") != std::string::npos);
  CHECK(session.forward({between}).at(0).to_host().values<float>()[3] == 8);
}

TEST_CASE("cuda: no room for an allocation is an error of that call alone") {
  const DevicePtr device = emulated_device("?memory=65536");
  expect_error(Errc::out_of_device_memory, [&] { device->default_mem_region().malloc(1 << 20); });
  Lookup lookup(device);
  CHECK(first_of_row(lookup.run(2), 0) == 320);
  // Of what runs make, launch by launch and as a graph whose arrays move; then the same again.
  int failed = 0;
  const auto tried = [&](const auto& call) {
    try {
      return call();
    } catch (const Error& error) {
      ++failed;
      CHECK(error.code() == Errc::out_of_device_memory);
      return call();
    }
  };
  for (int nth = 1; nth < 60; ++nth) {
    CAPTURE(nth);
    const DevicePtr failing = emulated_device("?fail_allocation=" + std::to_string(nth));
    Lookup other(failing);
    std::vector<Buffer> kept;  // so that later arrays lie elsewhere
    for (const std::int32_t last : {2, 1, 3, 0}) {
      const std::vector<Buffer> inputs = tried([&] {
        std::vector<Buffer> placed = other.inputs(last);
        for (Buffer& input : placed) input = input.to(failing->default_mem_region());
        return placed;
      });
      kept.insert(kept.end(), inputs.begin(), inputs.end());
      const HostBuffer result =
          tried([&] { return other.session().forward(inputs).at(0).to_host(); });
      CHECK(first_of_row(result, 2) == 80 * static_cast<float>(last));
    }
  }
  CHECK(failed > 30);
  const DevicePtr odd = emulated_device("?memory=1000");
  const MemChunk first = odd->default_mem_region().malloc(700);
  expect_error(Errc::out_of_device_memory, [&] { odd->default_mem_region().malloc(200); });
  expect_error(Errc::out_of_device_memory, [&] { odd->default_mem_region().malloc(1 << 20); });
}

TEST_CASE("cuda: a launch that fails ends the device, not the process, nor another device") {
  const DevicePtr device = emulated_device("?fail_launch=2"), other = emulated_device();
  Lookup lookup(device), unharmed(other);
  const std::vector<Buffer> results = lookup.session().submit(lookup.inputs(1));
  const std::string what = expect_error(Errc::device_error, [&] { results.at(0).wait(); });
  CHECK(what.find("an injected fault") != std::string::npos);
  expect_error(Errc::device_error, [&] { results.at(0).to_host(); });
  expect_error(Errc::device_error, [&] { lookup.run(1); });
  expect_error(Errc::device_error, [&] { device->default_mem_region().malloc(64); });
  expect_error(Errc::device_error, [&] { device->reset(); });
  CHECK(first_of_row(unharmed.run(1), 2) == 80);
  CHECK(first_of_row(Lookup(emulated_device()).run(1), 2) == 80);
}

TEST_CASE("cuda: sessions of several threads share a plan") {
  Lookup lookup(emulated_device());
  lookup.run(0);
  std::vector<std::future<float>> results;
  for (std::int32_t i = 0; i < 4; ++i) {
    results.push_back(std::async(std::launch::async, [&lookup, i] {
      Session own = lookup.session().fork();
      float last = 0;
      for (int run = 0; run < 20; ++run) {
        last = first_of_row(own.forward(lookup.inputs(i)).at(0).to_host(), 2);
      }
      return last;
    }));
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    CHECK(results[i].get() == 80 * static_cast<float>(i));
  }
}

TEST_CASE("cuda: what it does not run is named, and falls back only where asked for") {
  const DevicePtr device = emulated_device();
  Graph graph;
  const Graph::Recording recording(graph);
  const Tensor y = cholesky(exp(graph.input("x", Shape({2, 2}, f32))));
  const Program program = graph.program({&y, 1});
  const std::vector<Shape> shapes{Shape({2, 2}, f32)};
  Session alone(program, {.backends = device_backends(device)});
  const std::string what = expect_error(Errc::unsupported, [&] { alone.prepare(shapes); });
  CHECK(what.find("no kernel for cholesky") != std::string::npos);
  std::vector<BackendPtr> backends = device_backends(device);
  backends.push_back(make_reference_backend({}));
  Session with_reference(program, {.backends = backends});
  const PlanReport report = with_reference.report(shapes);
  REQUIRE(report.fallbacks.size() == 1);
  CHECK(report.fallbacks[0].op == "cholesky");
  CHECK(report.fallbacks[0].why == "no kernel for cholesky");
  CHECK(report.parts.at(0).notes.at(0) == "1 launches, 0 bytes of scratch memory");
}

TEST_CASE("cuda: a plugin says that this machine has no driver") {
  try {
    const std::string loaded = load_plugin(TENON_CUDA_PLUGIN);
    CHECK(loaded == "cuda");
    unload_plugin(loaded);
  } catch (const Error& error) {
    CHECK(error.code() == Errc::unsupported);
    INFO(error.what());
    CHECK(error.message().find("CUDA") != std::string::npos);
  }
}

}  // namespace
}  // namespace tenon::testing
