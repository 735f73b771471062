// A driver's run on one device, recorded and done again on another.
#include "io/temp_folder.hpp"
#include "npu/driver_rig.hpp"
#include "support/expect_error.hpp"

#include <tenon/backends/npu_sim.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/npu/replay.hpp>
#include <tenon/ops.hpp>

#include <sstream>
#include <string>

#include <catch2/catch.hpp>

namespace tenon::npu {
namespace {

using namespace tenon::npu::testing;

constexpr const char* device =
    "npu://sim?mac=16x16&ocm=64KiB&acc=32KiB&strict=1&ddr=64MiB&dma=1MiB";

/// What a driver does to run a small network twice, as a trace.
std::string recorded() {
  const TempFolder folder;
  const std::string path = (folder / "trace").string();
  register_npu_sim();
  const Network network = make_network(
      {Shape({1, 8, 6, 6}, f32)},
      [](Graph& graph, const std::vector<Tensor>& in) -> std::vector<Tensor> {
        const Tensor x = relu(
            conv2d(in[0], graph.constant("a", Shape({40, 8, 3, 3}, f32)), {}, {.padding = {1, 1}}));
        return {linear(flatten(max_pool2d(x, {.kernel = {2, 2}}), 1, 3),
                       graph.constant("b", Shape({10, 360}, f32)))};
      },
      3);
  {
    const auto npu = backend(Device::open(device + ("&trace=" + path)), options_for(network));
    Session session(network.program, {.backends = {npu, make_backend("reference")}});
    session.bind(network.weights);
    for (const std::uint64_t seed : {1U, 2U}) {
      session.forward({network.sample(seed)[0].to_device(cpu_device())})[0].to_host();
    }
  }
  return read_bytes(path);
}

ReplayReport replayed(const std::string& trace, const std::string& url,
                      std::chrono::milliseconds timeout = std::chrono::seconds(20)) {
  register_npu_sim();
  std::istringstream text(trace);
  return replay(*Device::open(url), text, {.timeout = timeout});
}

std::string first_difference(const ReplayReport& report) {
  REQUIRE_FALSE(report.matches());
  return report.differences.front().what;
}

TEST_CASE("npu replay: the same device answers as it did, and so does one with another clock") {
  const std::string trace = recorded();
  const std::string slower =
      std::string(device) + "&freq=200MHz&bw=1GB/s&lat=500&sched=random&seed=4";
  for (const std::string& url : {std::string(device), slower}) {
    INFO(url);
    const ReplayReport report = replayed(trace, url);
    INFO((report.matches() ? "" : report.differences.front().what));
    CHECK(report.matches());
    CHECK(report.register_writes > 10);
    CHECK(report.registers_compared > 10);
    CHECK(report.waits >= 2);
    CHECK(report.bytes_written > 40 * 8 * 9);
    CHECK(report.bytes_compared >= 2 * 40);
  }
}

TEST_CASE("npu replay: an interrupt may come before its driver acknowledged the one before") {
  // As recorded on a device whose interrupts come late: each after the next acknowledgement.
  std::string trace = recorded();
  int moved = 0;
  for (std::size_t at = trace.find("\nI "); at != std::string::npos;
       at = trace.find("\nI ", at + 1)) {
    const std::size_t size = trace.find('\n', at + 1) - at;
    const std::size_t acknowledged = trace.find("\nW 020 ", at);
    if (acknowledged == std::string::npos) break;
    const std::size_t end = trace.find('\n', acknowledged + 1);
    const std::string line = trace.substr(at, size);
    trace.insert(end, line);
    trace.erase(at, size);
    at = end - 1;
    ++moved;
  }
  REQUIRE(moved >= 2);
  const ReplayReport report = replayed(trace, device);
  INFO((report.matches() ? "" : report.differences.front().what));
  CHECK(report.matches());
}

TEST_CASE("npu replay: a device that computes otherwise is found out, with the byte") {
  const std::string trace = recorded();
  // The last thing that the driver read is the result.
  const std::size_t line = trace.rfind("\nG ") + 1;
  const std::size_t digit = line + 2 + 16 + 1;
  std::string changed = trace;
  changed[digit] = changed[digit] == '0' ? '1' : '0';
  const std::string what = first_difference(replayed(changed, device));
  CHECK(what.find("of memory is") != std::string::npos);
  CHECK(what.find("; 1 of ") != std::string::npos);

  // Some flips are rounded away; not all of them.
  bool noticed = false;
  for (int nth = 1; nth <= 4; ++nth) {
    const ReplayReport flipped =
        replayed(trace, device + ("&fault=flip_act@" + std::to_string(nth)));
    noticed = noticed || !flipped.matches();
  }
  CHECK(noticed);

  const ReplayReport faulted =
      replayed(trace, std::string(device) + "&fault=bus_error@5", std::chrono::milliseconds(50));
  CHECK(first_difference(faulted).find("interrupts is 00000006, was") != std::string::npos);
}

TEST_CASE("npu replay: a replay that differs everywhere gives up") {
  std::string trace;
  for (int i = 0; i < 100; ++i) trace += "R 000 00000001 @0\n";
  const ReplayReport report = replayed(trace, device);
  CHECK(report.gave_up);
  CHECK(report.lines == 20);
  CHECK(first_difference(report) == "id is 55504E54, was 00000001");
}

TEST_CASE("npu replay: a device that takes longer to reset is waited for") {
  const std::string trace =
      "W 018 00000002 @0\n"
      "W 048 00000010 @0\n"
      "R 048 00000010 @0\n";
  for (const char* time : {"0s", "50ms"}) {
    INFO(time);
    const ReplayReport report = replayed(trace, std::string(device) + "&reset=" + time);
    CHECK(report.matches());
    CHECK(report.waits == 1);
  }
}

TEST_CASE("npu replay: lines that are none are named") {
  const auto refused = [](const std::string& trace) {
    return expect_error(Errc::syntax, [&] { replayed(trace, device); });
  };
  CHECK(refused("# a comment\n\nX 1 2 @3\n").find("trace:3") != std::string::npos);
  CHECK(refused("W 018 1\n").find("@") != std::string::npos);
  CHECK(refused("W 018 1FFFFFFFF @0\n").find("FFFFFFFF") != std::string::npos);
  CHECK(refused("W zz 1 @0\n").find("'zz'") != std::string::npos);
  CHECK(refused("S 80000000 123\n").find("two digits") != std::string::npos);
  CHECK(refused("S 80000000\n").find("two digits") != std::string::npos);
  CHECK(refused("W 018 1 @0 more\n").find("more words") != std::string::npos);
  CHECK(refused("S 80000000 " + std::string(1 << 17, '0') + "\n").find("characters") !=
        std::string::npos);
  expect_error(Errc::out_of_range, [&] { replayed("S 1 00\n", device); });
  expect_error(Errc::out_of_range, [&] { replayed("W FFFF0 1 @0\n", device); });
  std::istringstream text;
  expect_error(Errc::bad_argument, [&] { replay(*cpu_device(), text); });
}

TEST_CASE("npu replay: a device that goes away is that") {
  const std::string trace = recorded();
  expect_error(Errc::device_lost,
               [&] { replayed(trace, std::string(device) + "&fault=removed@3"); });
}

}  // namespace
}  // namespace tenon::npu
