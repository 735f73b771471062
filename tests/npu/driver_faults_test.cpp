// Every fault that the simulated device can have, at every occurrence in a small network: a typed
// error in time or a recovery, and a correct run afterwards.
#include "npu/driver_open.hpp"
#include "npu/driver_rig.hpp"

#include <tenon/backends/npu_sim.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/npu/isa/program.hpp>
#include <tenon/npu/isa/registers.hpp>
#include <tenon/ops.hpp>

#include <chrono>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include <catch2/catch.hpp>

namespace tenon::npu {
namespace {

using namespace tenon::npu::testing;
using simctl::FaultKind;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds deadline{2000};
/// For a thread that waits for a processor.
constexpr std::chrono::seconds slack{30};

Network small_network() {
  return make_network(
      {Shape({1, 8, 6, 6}, f32)},
      [](Graph& graph, const std::vector<Tensor>& in) -> std::vector<Tensor> {
        const Tensor a = relu(
            conv2d(in[0], graph.constant("a", Shape({40, 8, 3, 3}, f32)), {}, {.padding = {1, 1}}));
        const Tensor b = max_pool2d(a, {.kernel = {2, 2}});
        const Tensor c = conv2d(b, graph.constant("c", Shape({40, 40, 1, 1}, f32)));
        return {linear(flatten(b + c, 1, 3), graph.constant("d", Shape({10, 360}, f32)))};
      },
      3);
}

/// Between ops that the device does not have, two results in the places of their arguments: another tanh of one that is
/// complete would be something else.
Network network_in_place() {
  return make_network(
      {Shape({1, 8, 6, 6}, f32)},
      [](Graph&, const std::vector<Tensor>& in) -> std::vector<Tensor> {
        const Tensor a = cumsum(in[0], 1), b = cumsum(in[0], 2);
        const Tensor c = tanh(a), d = tanh(b);
        return {cumsum(c, 1), cumsum(d, 1)};
      },
      3);
}

/// A session on a simulated device whose faults are armed by hand.
struct Bench {
  explicit Bench(Options changes = {}, Network of = small_network())
      : network(std::move(of)), inputs(network.sample(77)) {
    register_reference_backend();
    device = open_npu("npu://sim?mac=16x16&ocm=64KiB&acc=32KiB&strict=1");
    expected = run(network, backend(nullptr, options_for(network, Mode::exact)), inputs);
    options = std::move(changes);
    options.calibration = network.calibration;
    options.placement = Placement::none;  // the most transfers
    options.deadline = deadline;
    connect();
  }

  void connect() {
    npu = backend(device, options);
    session.emplace(network.program, SessionOptions{.backends = {npu, make_backend("reference")}});
    session->bind(network.weights);
  }

  RegRegion& control() { return device->reg_region("simctl"); }
  void arm(FaultKind kind, std::uint32_t nth) {
    control().write(simctl::fault_kind, static_cast<std::uint32_t>(kind), true);
    control().write(simctl::fault_nth, nth, true);
    control().write(simctl::fault_layer, 0xFFFFFFFF, true);
    control().write(simctl::fault_arm, 1, true);
  }
  std::uint64_t fired() { return control().read(simctl::faults_fired, true); }
  /// Takes back what has not happened: it would in a later run.
  bool still_armed() { return control().read(simctl::faults_armed, true) != 0; }

  std::vector<HostBuffer> forward() {
    std::vector<HostBuffer> results;
    for (const Buffer& output : session->forward({inputs[0].to_device(cpu_device())})) {
      results.push_back(output.to_host());
    }
    return results;
  }
  void check_correct() {
    const bool same = same_bits(forward(), expected);
    CHECK(same);
  }

  Network network;
  std::vector<HostBuffer> inputs, expected;
  Options options;
  DevicePtr device;
  std::shared_ptr<const Npu> npu;
  std::optional<Session> session;
};

/// Arms the fault at its 1st, 2nd, ... occurrence, and calls `check` after each run in which it
/// happened; ends when a run has no such occurrence any more. Returns how many there were.
template <class Check>
int at_every_occurrence(Bench& bench, FaultKind kind, const Check& check) {
  for (int nth = 1;; ++nth) {
    INFO("occurrence " << nth);
    const std::uint64_t before = bench.fired();
    bench.arm(kind, static_cast<std::uint32_t>(nth));
    std::optional<Error> error;
    std::vector<HostBuffer> results;
    const auto begin = Clock::now();
    try {
      results = bench.forward();
    } catch (const Error& caught) {
      error = caught;
    }
    CHECK(Clock::now() - begin < 2 * deadline + slack);
    if (bench.fired() == before) {
      CHECK_FALSE(error.has_value());
      return nth - 1;
    }
    check(error, results);
    bench.check_correct();
    CHECK(bench.npu->state() == State::open);
  }
}

void check_names_an_op(const Error& error) {
  INFO(error.what());
  bool named = false;
  for (const char* op : {"(conv2d)", "(linear)", "(max_pool2d)", "(quantize)", "(dequantize)"}) {
    named = named || error.where().find(op) != std::string::npos;
  }
  CHECK(named);
}

TEST_CASE("npu fault: a transfer that never ends is retried once") {
  Bench bench;
  const int count = at_every_occurrence(bench, FaultKind::dma_timeout,
                                        [&](const auto& error, const auto& results) {
                                          CHECK_FALSE(error.has_value());
                                          const bool same = same_bits(results, bench.expected);
                                          CHECK(same);
                                        });
  CHECK(count > 10);
  CHECK(bench.npu->counters().timeouts == static_cast<std::uint64_t>(count));
  CHECK(bench.npu->counters().retries == static_cast<std::uint64_t>(count));
}

TEST_CASE("npu fault: a run in place is repeated on what it read at first") {
  for (const bool on_host : {false, true}) {
    INFO((on_host ? "on the CPU" : "on the device"));
    Bench bench({.retries = on_host ? 0 : 1, .host_fallback = on_host}, network_in_place());
    const int count = at_every_occurrence(bench, FaultKind::dma_timeout,
                                          [&](const auto& error, const auto& results) {
                                            CHECK_FALSE(error.has_value());
                                            const bool same = same_bits(results, bench.expected);
                                            CHECK(same);
                                          });
    CHECK(count > 5);
    std::vector<std::string> notes;
    for (const auto& part : bench.session->report(bench.network.inputs).parts) {
      notes.insert(notes.end(), part.notes.begin(), part.notes.end());
    }
    REQUIRE(notes.size() == 1);
    CHECK(notes[0].find("2304 bytes of inputs are copied before each run") != std::string::npos);
  }
}

TEST_CASE("npu fault: a transfer that never ends, without retries, is a timeout naming the op") {
  Bench bench({.retries = 0});
  at_every_occurrence(bench, FaultKind::dma_timeout, [&](const auto& error, const auto&) {
    REQUIRE(error.has_value());
    CHECK(error->code() == Errc::device_timeout);
    CHECK(number(error->code()) == 11015);
    CHECK(error->message().find("queued") != std::string::npos);
    check_names_an_op(*error);
  });
}

TEST_CASE("npu fault: a bus error is not retried, and names value and op") {
  Bench bench;
  const int count =
      at_every_occurrence(bench, FaultKind::bus_error, [&](const auto& error, const auto&) {
        REQUIRE(error.has_value());
        CHECK(error->code() == Errc::device_error);
        CHECK(number(error->code()) == 11014);
        CHECK(error->message().find("bus") != std::string::npos);
        check_names_an_op(*error);
      });
  CHECK(count > 10);
  CHECK(bench.npu->counters().retries == 0);
}

TEST_CASE("npu fault: a program that is refused is uploaded again, once") {
  for (const FaultKind kind : {FaultKind::illegal, FaultKind::crc}) {
    INFO("kind " << static_cast<int>(kind));
    {
      Bench bench;
      const int count =
          at_every_occurrence(bench, kind, [&](const auto& error, const auto& results) {
            CHECK_FALSE(error.has_value());
            const bool same = same_bits(results, bench.expected);
            CHECK(same);
          });
      CHECK(count >= 1);
      CHECK(bench.npu->counters().reloads >= static_cast<std::uint64_t>(count));
    }
    Bench bench({.retries = 0});
    at_every_occurrence(bench, kind, [&](const auto& error, const auto&) {
      REQUIRE(error.has_value());
      CHECK(error->code() == Errc::device_error);
    });
  }
}

TEST_CASE("npu fault: what a reset between runs has cleared is uploaded without a retry") {
  Bench bench({.retries = 0});
  bench.session->prepare(bench.network.inputs);
  bench.device->reset(2);
  bench.check_correct();
  CHECK(bench.npu->counters().reloads == 2);
  bench.device->reset(2);
  bench.check_correct();
  CHECK(bench.npu->counters().faults == 0);
  CHECK(bench.npu->counters().reloads == 4);
}

TEST_CASE("npu fault: a ring that somebody left, larger than the driver's, is taken over") {
  Bench bench({.retries = 0});
  bench.session.reset();
  bench.npu.reset();
  RegRegion& npu = bench.device->reg_region("npu");
  const auto set = [&](std::uint32_t reg, std::uint64_t value) { npu.write(reg, value, true); };
  constexpr std::uint32_t entries = 4096, at = 4000;
  {
    const MemChunk theirs =
        bench.device->mem_region("xchg").malloc(entries * isa::Descriptor::size_bytes, true, 4096);
    const std::vector<std::byte> nothing(theirs.size_bytes());
    theirs.write(nothing.data(), 0, nothing.size());
    bench.device->reset(1);
    set(isa::reg::cmdq_base_lo, static_cast<std::uint32_t>(theirs.begin().addr()));
    set(isa::reg::cmdq_base_hi, theirs.begin().addr() >> 32);
    set(isa::reg::cmdq_size, entries);
    set(isa::reg::control, isa::bits::enable.mask());
    set(isa::reg::cmdq_tail, at);
    while (npu.read(isa::reg::cmdq_head, true) != at) std::this_thread::yield();
    set(isa::reg::control, 0);
  }
  bench.connect();
  bench.check_correct();
  CHECK(bench.npu->counters().faults == 0);
}

TEST_CASE("npu fault: a lost token is found before the deadline, with the state of the queues") {
  {
    Bench bench;
    const int count =
        at_every_occurrence(bench, FaultKind::hang, [&](const auto& error, const auto& results) {
          CHECK_FALSE(error.has_value());
          const bool same = same_bits(results, bench.expected);
          CHECK(same);
        });
    CHECK(count > 10);
  }
  Bench bench({.retries = 0});
  at_every_occurrence(bench, FaultKind::hang, [&](const auto& error, const auto&) {
    REQUIRE(error.has_value());
    CHECK(error->message().find("wait_") != std::string::npos);
    check_names_an_op(*error);
  });
}

TEST_CASE("npu fault: a removed device fails at once, stays removed, and serves a new backend") {
  for (std::uint32_t nth = 1;; ++nth) {
    INFO("occurrence " << nth);
    Bench bench;
    bench.arm(FaultKind::removed, nth);
    std::optional<Error> error;
    try {
      bench.forward();
    } catch (const Error& caught) {
      error = caught;
    }
    if (bench.fired() == 0) {
      CHECK(nth > 10);
      break;
    }
    REQUIRE(error.has_value());
    CHECK(error->code() == Errc::device_lost);
    CHECK(bench.npu->state() == State::removed);
    bool again = false;
    try {
      bench.forward();
    } catch (const Error& caught) {
      again = error_class(caught.code()) == ErrorClass::machine;
    }
    CHECK(again);
    bench.session.reset();
    bench.npu.reset();
    bench.control().write(simctl::replug, 1, true);
    bench.connect();
    bench.check_correct();
  }
}

TEST_CASE("npu fault: a lost interrupt is counted, the run is right") {
  Bench bench;
  // Another interrupt may stand in for the lost one, depending on who is scheduled when: then there
  // is nothing to count. Some run sees it.
  std::uint64_t lost = 0;
  for (int attempt = 0; attempt < 50 && lost == 0; ++attempt) {
    const std::uint64_t before = lost;
    const int count = at_every_occurrence(bench, FaultKind::lost_irq,
                                          [&](const auto& error, const auto& results) {
                                            CHECK_FALSE(error.has_value());
                                            const bool same = same_bits(results, bench.expected);
                                            CHECK(same);
                                          });
    CHECK(count >= 1);
    lost = bench.npu->counters().lost_interrupts;
    CHECK(lost - before <= static_cast<std::uint64_t>(count));
  }
  CHECK(lost >= 1);
}

TEST_CASE("npu fault: flipped bits of constants and programs are found before a run") {
  for (const FaultKind kind : {FaultKind::flip_weight, FaultKind::flip_instr}) {
    INFO("kind " << static_cast<int>(kind));
    {
      Bench bench;
      bench.arm(kind, 1);
      bench.check_correct();  // the bit flips when the program has ended
      REQUIRE(bench.fired() == 1);
      CHECK(bench.npu->precheck() == 1);
      CHECK(bench.npu->precheck() == 0);
      bench.check_correct();
    }
    Bench bench({.precheck = true});
    bench.arm(kind, 1);
    bench.check_correct();
    REQUIRE(bench.fired() == 1);
    bench.check_correct();  // mended on the way
    CHECK(bench.npu->counters().reloads == 1);
  }
}

TEST_CASE("npu fault: a flipped activation shows only in a comparison with the host") {
  Bench bench;
  int differed = 0;
  const int count =
      at_every_occurrence(bench, FaultKind::flip_act, [&](const auto& error, const auto& results) {
        CHECK_FALSE(error.has_value());
        differed += same_bits(results, bench.expected) ? 0 : 1;
      });
  CHECK(count >= 3);
  CHECK(differed > 0);
}

TEST_CASE("npu fault: a device that is too slow runs into the deadline") {
  register_reference_backend();
  const Network network = small_network();
  const auto inputs = network.sample(77);
  const auto expected = run(network, backend(nullptr, options_for(network, Mode::exact)), inputs);
  // At 1 MHz with a slow memory, and no faster than that, a run takes more than a second.
  const DevicePtr device = open_npu("npu://sim?mac=16x16&ocm=64KiB&freq=1MHz&lat=65535&pace=real");
  Options options = options_for(network);
  options.deadline = std::chrono::milliseconds(20);
  const auto hasty = backend(device, options);
  const std::string text = expect_error(Errc::device_timeout, [&] { run(network, hasty, inputs); });
  CHECK(text.find("deadline") != std::string::npos);
  CHECK(hasty->counters().timeouts == 2);
  options.deadline = std::chrono::seconds(30);
  const bool same = same_bits(run(network, backend(device, options), inputs), expected);
  CHECK(same);
}

TEST_CASE("npu fault: an interrupted run ends, and the next one is right") {
  Bench bench;
  bench.options.deadline =
      std::chrono::minutes(10);  // on a busy machine, too, the request comes first
  bench.connect();
  bench.arm(FaultKind::dma_timeout, 1);
  std::stop_source source;
  bench.session->set_interrupt({.cancel = source.get_token()});
  std::thread other([&] {
    while (bench.fired() == 0) std::this_thread::yield();
    source.request_stop();
  });
  expect_error(Errc::cancelled, [&] { bench.forward(); });
  other.join();
  CHECK(bench.npu->counters().timeouts == 0);
  bench.session->set_interrupt({});
  bench.check_correct();
  bench.session->set_interrupt({.deadline = Clock::now()});
  expect_error(Errc::timeout, [&] { bench.forward(); });
}

TEST_CASE("npu fault: what the device cannot do, the CPU does when it was asked to") {
  Bench bench({.retries = 0, .host_fallback = true});
  bench.arm(FaultKind::bus_error, 3);
  bench.check_correct();
  REQUIRE(bench.fired() == 1);
  CHECK(bench.npu->counters().host_fallbacks == 1);
  bench.check_correct();
  CHECK(bench.npu->counters().host_fallbacks == 1);
  CHECK(bench.npu->counters().runs == 1);
}

}  // namespace
}  // namespace tenon::npu
