#include "npu/transport/connections.hpp"
#include "sim_random_program.hpp"
#include "sim_rig.hpp"
#include "socket_folder.hpp"
#include "support/expect_error.hpp"

#include <tenon/backends/npu_remote.hpp>
#include <tenon/backends/npu_sim.hpp>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <stop_token>
#include <thread>

#include <catch2/catch.hpp>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace tenon;
using namespace tenon::npu;
using namespace tenon::npu::isa;
using tenon::npu::testing::random_bytes;
using tenon::npu::testing::random_program;
using tenon::npu::testing::Rig;
using tenon::npu::testing::SocketFolder;
using tenon::testing::expect_error;

namespace {

/// tenon_npu_server in a process of its own.
class Server {
 public:
  Server(const std::string& socket, const std::string& url) {
    int pipe_ends[2];
    REQUIRE(::pipe(pipe_ends) == 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], 1);
    posix_spawn_file_actions_addclose(&actions, pipe_ends[0]);
    std::string words[] = {TENON_NPU_SERVER, socket, url};
    char* arguments[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
    REQUIRE(::posix_spawn(&process_, TENON_NPU_SERVER, &actions, nullptr, arguments, environ) == 0);
    posix_spawn_file_actions_destroy(&actions);
    ::close(pipe_ends[1]);
    char byte = 0;
    ready_ = ::read(pipe_ends[0], &byte, 1) == 1;  // the line it prints when clients can come
    ::close(pipe_ends[0]);
  }
  ~Server() { end(SIGTERM); }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  bool ready() const noexcept { return ready_; }
  int end(int signal) {
    if (process_ < 0) return 0;
    ::kill(process_, signal);
    int status = 0;
    ::waitpid(process_, &status, 0);
    process_ = -1;
    return status;
  }

 private:
  pid_t process_ = -1;
  bool ready_ = false;
};

std::string sim_url(const std::string& params = "") {
  return std::string("npu://sim?ddr=64MiB&dma=1MiB&") + npu::testing::random_params + params;
}

DevicePtr connect(const std::string& socket) {
  register_npu_remote();
  return Device::open("npu://unix:" + socket);
}

/// A server that greets one client and does `then` with its next request.
class OddServer {
 public:
  OddServer(const std::string& path, std::function<void(const transport::Socket&)> then,
            std::string description = {})
      : listener_(transport::Socket::listen(path)),
        thread_([this, then = std::move(then), description = std::move(description)] {
          const transport::Socket client = listener_.accept();
          transport::Request request;
          client.receive(&request, sizeof request);
          transport::Answer greeting;
          greeting.payload = description.size();
          client.send(&greeting, sizeof greeting);
          client.send(description.data(), description.size());
          try {
            client.receive(&request, sizeof request);
            then(client);
            client.receive(&request, 1);  // until it is gone
          } catch (const transport::Disconnected&) {
          }
        }) {}

 private:
  transport::Socket listener_;
  std::jthread thread_;
};

/// As long as it lives, the process gets no new descriptors.
class NoDescriptors {
 public:
  NoDescriptors() {
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before_) == 0);
    rlimit none = before_;
    none.rlim_cur = 0;
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  }
  ~NoDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
};

}  // namespace

TEST_CASE("remote: random programs in another process leave the bytes they leave here") {
  const SocketFolder folder;
  Server server(folder.socket(), sim_url());
  REQUIRE(server.ready());
  Rig far(connect(folder.socket()), 1 << 20);
  Rig near(npu::testing::random_params, 1 << 20);
  CHECK(far.caps == near.caps);
  CHECK(far.device->protocol() == "unix");
  CHECK(far.device->params().at("ocm") == "256KiB");
  const std::uint64_t first = std::random_device{}();
  INFO("first seed " << first);
  for (std::uint64_t seed = first; seed < first + 15; ++seed) {
    const auto made = random_program(seed, true);
    std::vector<std::byte> left[2];
    Rig* const rigs[2] = {&far, &near};
    for (int side = 0; side < 2; ++side) {
      Rig& rig = *rigs[side];
      rig.fill(Segment::weight, made.weight);
      rig.fill(Segment::input, made.input);
      rig.fill(Segment::output, std::vector<std::byte>(made.output_bytes));
      rig.set(reg::control, bits::enable.mask() | bits::perf_clear.mask());
      REQUIRE(rig.run(made.program).finished());
      left[side] = rig.contents(Segment::output);
    }
    CHECK(left[0] == left[1]);
    CHECK(far.counter(perf::cycles) == near.counter(perf::cycles));
  }
}

TEST_CASE("remote: memory in pieces, shared memory with syncs, errors by their codes") {
  register_npu_sim();
  const SocketFolder folder;
  const NpuServer server(Device::open("npu://sim?ddr=64MiB&coherent=1"), folder.socket());
  const DevicePtr device = connect(folder.socket());
  CHECK_FALSE(read_caps(device->reg_region("npu")).coherent);  // not over a socket
  CHECK(device->params().at("coherent") == "0");
  auto& etm = device->default_mem_region();
  const auto bytes = random_bytes(1, (20 << 20) + 3);
  const MemChunk chunk = etm.malloc(bytes.size());
  chunk.write(bytes.data(), 0, bytes.size());
  std::vector<std::byte> back(bytes.size());
  chunk.read(back.data(), 0, back.size());
  CHECK(back == bytes);

  auto& xchg = device->mem_region("xchg");
  const MemChunk shared = xchg.malloc(4096, true, 4096);
  CHECK(shared.begin().kind() == MemPtr::Kind::both);
  CHECK(reinterpret_cast<std::uintptr_t>(shared.begin().cptr()) % 4096 == 0);
  shared.begin().cptr()[5] = std::byte{0x77};
  auto& control = dynamic_cast<DeviceControl&>(*device);
  control.sync(shared.begin(), 64, DeviceControl::Direction::to_device);
  shared.begin().cptr()[5] = std::byte{0};
  control.sync(shared.begin(), 64, DeviceControl::Direction::from_device);
  CHECK(shared.begin().cptr()[5] == std::byte{0x77});
  CHECK(control.wait_irq(0xF, std::chrono::milliseconds(250)) == 0);

  expect_error(Errc::out_of_range, [&] { device->reg_region("npu").read(0x1000, true); });
  expect_error(Errc::out_of_device_memory, [&] { etm.malloc(1 << 30); });
  expect_error(Errc::bad_key, [&] { Device::open("npu://unix:" + folder.socket() + "?ocm=1MiB"); });
  expect_error(Errc::device_unavailable, [&] { connect(folder.path() + "/nobody"); });
  expect_error(Errc::bad_argument, [&] { connect(""); });
}

TEST_CASE("remote: one process at a time; the next one finds a fresh device") {
  register_npu_sim();
  const SocketFolder folder;
  const NpuServer server(Device::open("npu://sim?ddr=16MiB"), folder.socket());
  std::uint64_t address = 0;
  {
    Rig first(connect(folder.socket()), 1 << 20);
    first.fill(Segment::weight, random_bytes(2, 4096));
    address = first.segments[0].begin().addr();
    expect_error(Errc::busy, [&] { connect(folder.socket()); });
  }
  DevicePtr next;
  for (int attempt = 0; !next && attempt < 1000; ++attempt) {  // the server has to notice the end
    try {
      next = connect(folder.socket());
    } catch (const Error& error) {
      REQUIRE(error.code() == Errc::busy);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  REQUIRE(next);
  std::byte byte{1};
  next->default_mem_region().read(&byte, MemPtr(address), 1);
  CHECK(byte == std::byte{});
  CHECK(next->reg_region("npu").read(reg::seg0_size_lo, true) == 0);
}

TEST_CASE("remote: a server that is killed is a device that is gone") {
  const SocketFolder folder;
  Server server(folder.socket(), sim_url());
  REQUIRE(server.ready());
  Rig rig(connect(folder.socket()), 1 << 20);
  std::jthread waiter([&] {
    CHECK(rig.control.wait_irq(bits::irq_fence.mask(), std::chrono::seconds(60)) == gone);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  server.end(SIGKILL);
  waiter.join();
  CHECK(rig.reg(reg::id) == gone);
  rig.set(reg::control, 0);
  expect_error(Errc::device_lost, [&] { rig.contents(Segment::weight); });
  expect_error(Errc::device_lost, [&] { read_caps(rig.npu); });
  expect_error(Errc::device_lost, [&] { rig.device->reset(); });
  // What is left of the dead one is in nobody's way.
  Server again(folder.socket(), sim_url());
  CHECK(again.ready());
  CHECK(Rig(connect(folder.socket()), 1 << 20).reg(reg::id) == device_id);
}

TEST_CASE("remote: a server that does not answer, or not in our words, is gone") {
  const SocketFolder folder;
  const transport::Request read{transport::Verb::read_reg, 0, reg::id, 1, 0, 0};
  for (const bool answers : {false, true}) {
    INFO((answers ? "an error that is none" : "nothing"));
    const std::string path = folder.path() + (answers ? "/a" : "/b");
    const OddServer server(path, [answers](const transport::Socket& client) {
      if (!answers) return;
      transport::Answer error;
      error.failed = 1;
      error.code = 100'000;
      client.send(&error, sizeof error);
    });
    transport::Connections connections(path, {.quick = std::chrono::milliseconds(200)});
    CHECK_THROWS_AS(connections.call(read), transport::Disconnected);
    CHECK(connections.is_lost());
  }
  const Error none(static_cast<Errc>(100'000), "here", "what");
  CHECK(std::string(none.what()).ends_with(": here: what"));
}

TEST_CASE("remote: what a server says of its memory is not taken on trust") {
  const SocketFolder folder;
  int number = 0;
  for (const char* const description :
       {"mem etm 99999999999999999999999 0 0\n", "mem etm -5 0 0\n", "mem etm 4096 x y\nreg npu\n",
        "mem etm 4096\n", "mem etm 18446744073709551615 0 0\n", "mem etm 4096 1 9\n",
        "mem etm 281474976710656 0 0\n", "mem xchg 4294967296 0 0\n", "mem cache 4096 0 0\n",
        "reg npu\n"}) {
    INFO(description);
    const std::string path = folder.path() + "/" + std::to_string(number++);
    const OddServer server(path, [](const transport::Socket&) {}, description);
    const std::string text = expect_error(Errc::incompatible, [&] { connect(path); });
    CHECK(text.find("npu://unix:" + path + ": what is served there has ") != std::string::npos);
  }
}

TEST_CASE("remote: a client that does not follow the protocol is sent away at once") {
  register_npu_sim();
  const SocketFolder folder;
  const NpuServer server(Device::open("npu://sim?ddr=16MiB"), folder.socket());
  const auto client = transport::Socket::connect(folder.socket(), std::chrono::seconds(2));
  const transport::Request early{transport::Verb::read_mem, 0, 0, 0, 0, 0};
  client.send(&early, sizeof early);
  char byte = 0;
  CHECK_THROWS_AS(client.receive(&byte, 1), transport::Disconnected);
  CHECK(client.has_hung_up());  // and was not waited for
}

TEST_CASE("remote: a client without descriptors for another connection still has its device") {
  register_npu_sim();
  const SocketFolder folder;
  const NpuServer server(Device::open("npu://sim?ddr=16MiB"), folder.socket());
  const DevicePtr device = connect(folder.socket());
  auto& control = dynamic_cast<DeviceControl&>(*device);
  auto& npu = device->reg_region("npu");
  {
    // One connection for two calls at a time: now and then one of them wants another.
    std::atomic<int> without = 0, lost = 0;
    const auto call = [&](const auto& what) {
      try {
        if (what() == isa::gone) ++lost;
      } catch (const Error& error) {
        ++(error.code() == Errc::io_error ? without : lost);
      }
    };
    const NoDescriptors none;
    std::jthread waiter([&](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        call([&] { return control.wait_irq(0xF, std::chrono::milliseconds(50)); });
      }
    });
    for (int tries = 0; tries < 100'000 && without == 0; ++tries) {
      call([&] { return npu.read(reg::id, true); });
    }
    waiter.request_stop();
    waiter.join();
    CHECK(without > 0);
    CHECK(lost == 0);
  }
  CHECK(npu.read(reg::id, true) == device_id);
}

TEST_CASE("remote: a server that was without descriptors goes on") {
  register_npu_sim();
  const SocketFolder folder;
  const NpuServer server(Device::open("npu://sim?ddr=16MiB"), folder.socket());
  const int early = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  REQUIRE(early >= 0);
  {
    const NoDescriptors none;
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::ranges::copy(folder.socket(), address.sun_path);
    REQUIRE(::connect(early, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  ::close(early);
  CHECK(connect(folder.socket())->reg_region("npu").read(reg::id, true) == device_id);
}

TEST_CASE("remote: a copy outside of shared memory is refused as one outside of other memory") {
  register_npu_sim();
  const SocketFolder folder;
  const NpuServer server(Device::open("npu://sim?ddr=16MiB"), folder.socket());
  const DevicePtr device = connect(folder.socket());
  for (const char* const name : {"xchg", "etm"}) {
    INFO(name);
    MemRegion& region = device->mem_region(name);
    const MemPtr begin = region.malloc(64).begin();
    for (const std::uint64_t size : {std::uint64_t{1} << 40, ~std::uint64_t{0}}) {
      expect_error(Errc::out_of_range, [&] { region.copy(begin, begin, size); });
    }
  }
  MemRegion& xchg = device->mem_region("xchg");
  const auto bytes = random_bytes(3, 256);
  const MemChunk chunk = xchg.malloc(256);
  chunk.write(bytes.data(), 0, 256);
  xchg.copy(chunk.begin() + 64, chunk.begin(), 192);
  std::vector<std::byte> back(192);
  chunk.read(back.data(), 64, 192);
  CHECK(std::ranges::equal(back, std::span(bytes).first(192)));
}

TEST_CASE("remote: faults cross the socket") {
  const SocketFolder folder;
  Server server(folder.socket(), sim_url("&fault=bus_error@2+removed@20"));
  REQUIRE(server.ready());
  Rig rig(connect(folder.socket()), 1 << 20);
  Load load;
  load.row_bytes = 64;
  Program program;
  program.instructions = {load, load, load, Halt{}};
  CHECK(rig.run(program).error == ErrorCode::bus);
  CHECK(rig.reg(reg::error_pc) == 1);
  rig.recover();
  CHECK(rig.run(program).finished());
  program.instructions.assign(20, load);
  program.instructions.emplace_back(Halt{});
  CHECK(rig.run(program).removed);
  expect_error(Errc::device_lost, [&] { rig.contents(Segment::weight); });
}

TEST_CASE("remote: a path that is something else stays what it is") {
  register_npu_sim();
  const SocketFolder folder;
  const std::string file = folder.path() + "/file";
  std::ofstream(file) << "text";
  const DevicePtr device = Device::open("npu://sim?ddr=1MiB");
  expect_error(Errc::io_error, [&] { NpuServer(device, file); });
  CHECK(std::filesystem::file_size(file) == 4);
  const NpuServer server(device, folder.socket());
  expect_error(Errc::io_error, [&] { NpuServer(device, folder.socket()); });
  expect_error(Errc::bad_argument, [&] { NpuServer(cpu_device(), folder.path() + "/t"); });
}

TEST_CASE("remote: the socket of a server that accepts nobody now stays") {
  const SocketFolder folder;
  const auto listener = transport::Socket::listen(folder.socket());
  std::vector<transport::Socket> waiting;
  while (true) {
    try {
      waiting.push_back(transport::Socket::connect(folder.socket(), std::chrono::milliseconds(50)));
    } catch (const Error&) {  // as many as may wait do
      break;
    }
  }
  expect_error(Errc::io_error, [&] { transport::Socket::listen(folder.socket()); });
  CHECK(std::filesystem::exists(folder.socket()));
  CHECK(listener.accept().is_open());
}

TEST_CASE("remote: a client keeps off memory that the server's process uses itself") {
  register_npu_sim();
  const SocketFolder folder;
  const DevicePtr served = Device::open("npu://sim?ddr=64MiB&dma=1MiB");  // with a host DMA
  const MemChunk kept = served->default_mem_region().malloc(100'000);
  const NpuServer server(served, folder.socket());
  const DevicePtr device = connect(folder.socket());
  for (const char* const name : {"xchg", "etm"}) {
    INFO(name);
    const std::vector<MemChunk> theirs = served->mem_region(name).all_chunks();
    REQUIRE_FALSE(theirs.empty());
    std::vector<MemChunk> ours;
    for (int i = 0; i < 100; ++i) ours.push_back(device->mem_region(name).malloc(1000));
    for (const MemChunk& a : ours) {
      for (const MemChunk& b : theirs) {
        const std::uint64_t begin_a = a.begin().addr(), begin_b = b.begin().addr();
        CHECK((begin_a + a.size_bytes() <= begin_b || begin_b + b.size_bytes() <= begin_a));
      }
    }
  }
}

TEST_CASE("mock: allocates and holds, and starts nothing") {
  register_npu_sim();
  const DevicePtr device = Device::open("npu://mock?ocm=512KiB&ddr=8MiB");
  CHECK(device->protocol() == "mock");
  CHECK(read_caps(device->reg_region("npu")).ocm_bytes == 512 << 10);
  const MemChunk chunk = device->default_mem_region().malloc(4096);
  const auto bytes = random_bytes(3, 4096);
  chunk.write(bytes.data(), 0, 4096);
  std::vector<std::byte> back(4096);
  chunk.read(back.data(), 0, 4096);
  CHECK(back == bytes);
  auto& npu = device->reg_region("npu");
  npu.write(reg::cmdq_size, 4, true);
  expect_error(Errc::call_order, [&] { npu.write(reg::cmdq_tail, 1, true); });
  expect_error(Errc::call_order, [&] { npu.write(reg::dma_ctrl, 1, true); });
  expect_error(Errc::bad_reference, [&] { device->reg_region("simctl"); });
  expect_error(Errc::out_of_range, [] { Device::open("npu://mock?ocm=4"); });
  CHECK(expect_error(Errc::device_unavailable, [] {
          Device::open("npu://silicon");
        }).find("mock") != std::string::npos);
}
