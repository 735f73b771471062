// Memory stays where it is: results and state on the device, inputs whose memory is reused.
#include "core/runs.hpp"
#include "support/expect_error.hpp"
#include "support/op_testing.hpp"
#include "support/program_text.hpp"
#include "support/remote_backend.hpp"

#include <tenon/session.hpp>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon {
namespace {

using namespace testing;

Buffer own_copy(const HostBuffer& value, MemRegion& region) {
  Buffer copy = Buffer::allocate(value.shape(), region);
  copy.chunk().write(value.bytes(), 0, static_cast<std::uint64_t>(value.shape().bytes()));
  return copy;
}
MemRegion& host_region() { return cpu_device()->default_mem_region(); }

/// Softmax may overwrite its operand; the product may not.
Program in_place_program() {
  return program_of(R"(def forward(x: f32[4, 6], w: f32[6, 6]):
    p = matmul(x, w)
    y = softmax(x, axis=1)
    z = neg(y)
    return z, p
)");
}

}  // namespace

TEST_CASE("Session: a result is computed in the memory of an input that is given up") {
  const HostBuffer x = Random(1).uniform(Shape({4, 6}, f32)),
                   w = Random(2).uniform(Shape({6, 6}, f32));
  for (const char* backend : {"reference", "cpu"}) {
    Session run(in_place_program(), {.backends = backends(backend)});
    const std::vector<float> wanted = values(run.forward({device(x), device(w)})[0]);
    for (int round = 0; round < 2; ++round) {
      std::vector<Buffer> inputs;
      inputs.push_back(own_copy(x, host_region()));
      inputs.push_back(own_copy(w, host_region()));
      const MemPtr begin = inputs[0].data();
      const std::vector<Buffer> results = run.forward(std::move(inputs));
      CHECK(results[0].data() == begin);
      CHECK(results[0].is_unique());
      CHECK(values(results[0]) == wanted);
    }
    // Not when the caller keeps a handle, nor when the memory is that of a host array.
    const Buffer kept = own_copy(x, host_region());
    CHECK(values(run.forward({kept, device(w)})[0]) == wanted);
    CHECK(same_bits(kept.to_host(), x));
    CHECK(values(run.forward({device(x), device(w)})[0]) == wanted);
    // Nor when the caller says where results go.
    std::vector<Buffer> inputs, outputs{Buffer::allocate(x.shape(), host_region()),
                                        Buffer::allocate(x.shape(), host_region())};
    inputs.push_back(own_copy(x, host_region()));
    inputs.push_back(device(w));
    run.forward(std::move(inputs), outputs);
    CHECK(values(outputs[0]) == wanted);
  }
}

TEST_CASE("Session: after a call that throws, memory that was reused says so") {
  const Program program = program_of(R"(def forward(x: f32[3, 2], i: i32[2]):
    y = softmax(x, axis=1)
    z = embedding(i, y)
    return z, y
)");
  for (const char* backend : {"reference", "cpu"}) {
    Session run(program, {.backends = backends(backend)});
    std::vector<Buffer> inputs;
    inputs.push_back(own_copy(floats({3, 2}, {1, 2, 3, 4, 5, 6}), host_region()));
    inputs.push_back(own_copy(ints({2}, {0, 7}), host_region()));
    expect_error(Errc::out_of_range, [&] { run.forward(std::move(inputs)); });
    REQUIRE(inputs.size() == 2);
    expect_error(Errc::out_of_range, [&] { static_cast<void>(inputs[0].to_host()); });
    CHECK(inputs[1].to_host().at({1}) == 7);
    // Without giving them up, inputs are as they were.
    const Buffer x = own_copy(floats({3, 2}, {1, 2, 3, 4, 5, 6}), host_region());
    expect_error(Errc::out_of_range, [&] { run.forward({x, inputs[1]}); });
    CHECK(x.to_host().at({2, 1}) == 6);
  }
}

TEST_CASE("Session: results lie there, too, where the CPU's would be in large pages") {
  const auto fake = std::make_shared<FakeDevice>(nullptr, "fake:", std::uint64_t{80} << 20);
  const auto remote = std::make_shared<RemoteBackend>(fake);
  const Program program = program_of(R"(def forward(x: f32[1]):
    y = broadcast_to(x, dims=[8388608])
    z = exp(y)
    return z
)");
  Session run(program, {.backends = {remote, backends("reference")[0]}, .results_on_device = true});
  const Buffer result = run.forward({device(floats({1}, {0}))})[0];
  CHECK(result.is_on(fake->dram()));
  CHECK(result.to_host().at({8388607}) == 1);
}

TEST_CASE("Session: what a device has no memory for is said") {
  const auto fake = std::make_shared<FakeDevice>(nullptr, "fake:", std::uint64_t{64} << 10);
  const Program program = program_of(R"(def forward(x: f32[N, 64]):
    y = exp(x)
    z = neg(y)
    return z
)");
  Session run(program, {.backends = {std::make_shared<RemoteBackend>(fake)}});
  const auto message = [&](std::int64_t rows) {
    const Buffer x = device(HostBuffer::zeros(Shape({rows, 64}, f32)));
    return expect_error(Errc::out_of_device_memory, [&] { run.forward({x}); });
  };
  CHECK(message(200).find("for the activations, inputs and results of a run") != std::string::npos);
  const std::string input = expect_error(Errc::out_of_device_memory, [&] {
    static_cast<void>(device(HostBuffer::zeros(Shape({300, 64}, f32))).to(fake->dram()));
  });
  CHECK(input.find("no room for 76800 bytes aligned to 64, for f32[300, 64]") != std::string::npos);
  const Buffer few = device(HostBuffer::zeros(Shape({2, 64}, f32)));
  CHECK(run.forward({few})[0].to_host().at({1, 63}) == -1);
}

TEST_CASE("Session: results lie in the memory of its first backend, when asked to") {
  const HostBuffer x = Random(1).uniform(Shape({4, 6}, f32)),
                   w = Random(2).uniform(Shape({6, 6}, f32));
  const std::vector<float> wanted =
      values(session(in_place_program()).forward({device(x), device(w)})[0]);
  const auto fake = std::make_shared<FakeDevice>();
  for (const std::string here : {"x", "p", "y", "z", "none"}) {
    const auto remote =
        std::make_shared<RemoteBackend>(fake, [&](const Step& step) -> std::optional<std::string> {
          if (here == "x" || step.value == here) return std::nullopt;
          return "elsewhere";
        });
    Session run(in_place_program(),
                {.backends = {remote, backends("reference")[0]}, .results_on_device = true});
    CAPTURE(here);
    std::vector<Buffer> inputs;
    inputs.push_back(own_copy(x, fake->dram()));
    inputs.push_back(own_copy(w, fake->dram()));
    const MemPtr begin = inputs[0].data();
    const Buffer result = run.forward(std::move(inputs))[0];
    CHECK(result.is_on(fake->dram()));
    CHECK((result.data() == begin) == (here != "none"));
    CHECK(values(result) == wanted);
    // From CPU memory, and into memory that the caller names.
    const Buffer other = run.forward({device(x), device(w)})[0];
    CHECK(other.is_on(fake->dram()));
    CHECK(values(other) == wanted);
    std::vector<Buffer> outputs{Buffer::allocate(x.shape(), host_region()),
                                Buffer::allocate(x.shape(), host_region())};
    run.forward({device(x), device(w)}, outputs);
    CHECK(values(outputs[0]) == wanted);
    const PlanReport report = run.report(std::vector<Shape>{x.shape(), w.shape()});
    std::int64_t back = 0;
    for (const auto& transfer : report.transfers) {
      if (transfer.to == host_region().name() && here == "x") ++back;
    }
    CHECK(back == 0);
    if (here == "none") {
      REQUIRE(report.transfers.size() == 2);
      for (const auto& transfer : report.transfers) CHECK(transfer.to == fake->dram().name());
    }
  }
}

TEST_CASE("Session: state stays in the memory that it was given in") {
  const Program program = program_of(
      R"(def forward(c: f32[1, 1, 1, 4, 2], x: f32[1, 1, 1, 1, 2], pos: i32):
    n: i64[] = full(dtype="i64")
    v = reshape(x, dims=[1, 1, 1, 2])
    d = cache_update(c, n, v, pos)
    s = sum(d, axes=[0, 1, 2, 3])
    return d, s
)");
  const auto fake = std::make_shared<FakeDevice>();
  const Shape scalar(std::span<const Axis>(), i32);
  const auto everything = std::make_shared<RemoteBackend>(fake);
  for (const BackendPtr& first : {BackendPtr(everything), backends("cpu")[0]}) {
    for (MemRegion* const region : {&host_region(), static_cast<MemRegion*>(&fake->dram())}) {
      Session run(program,
                  {.backends = {first, backends("reference")[0]}, .results_on_device = true});
      Buffer state = own_copy(HostBuffer::zeros(Shape({1, 1, 1, 4, 2}, f32)).contiguous(), *region);
      for (int position = 0; position < 4; ++position) {
        std::vector<Buffer> inputs;
        inputs.push_back(std::move(state));
        inputs.push_back(device(floats({1, 1, 1, 1, 2}, {1, 2})));
        inputs.push_back(device(HostBuffer::of<std::int32_t>(scalar, {position})));
        std::vector<Buffer> results = run.forward(std::move(inputs));
        state = std::move(results[0]);
        CHECK(state.is_on(*region));
        CHECK(values(results[1]) == std::vector<float>{static_cast<float>(position + 1),
                                                       2.0F * static_cast<float>(position + 1)});
      }
      CHECK(values(state) == std::vector<float>{1, 2, 1, 2, 1, 2, 1, 2});
    }
  }
}

TEST_CASE("Session: a result that is a view of updated state has its own shape") {
  const Program program = program_of(
      R"(def forward(c: f32[1, 1, 1, 4, 2], x: f32[1, 1, 1, 2], pos: i32):
    n: i64[] = full(dtype="i64")
    d = cache_update(c, n, x, pos)
    r = reshape(d, dims=[4, 2])
    return r
)");
  const Shape scalar(std::span<const Axis>(), i32);
  Session run(program, {.backends = backends("cpu")});
  const auto results = run.forward({device(HostBuffer::zeros(Shape({1, 1, 1, 4, 2}, f32))),
                                    device(floats({1, 1, 1, 2}, {1, 2})),
                                    device(HostBuffer::of<std::int32_t>(scalar, {2}))});
  CHECK(results[0].shape() == Shape({4, 2}, f32));
  CHECK(values(results[0]) == std::vector<float>{0, 0, 0, 0, 1, 2, 0, 0});
}

}  // namespace tenon
