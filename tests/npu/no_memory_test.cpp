// Devices and servers whose memory runs out, or for which no thread can be started.
#include "sim_rig.hpp"
#include "socket_folder.hpp"
#include "support/expect_error.hpp"
#include "support/failing_memory.hpp"
#include "support/no_threads.hpp"

#include <tenon/backends/npu_remote.hpp>
#include <tenon/backends/npu_sim.hpp>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

using namespace tenon;
using namespace tenon::npu;
using namespace tenon::npu::isa;
using tenon::npu::testing::Rig;
using tenon::npu::testing::SocketFolder;
using tenon::testing::expect_error;
using tenon::testing::fail_allocations;
using tenon::testing::NoMemoryElsewhere;
using tenon::testing::NoThreads;
using tenon::testing::own_copy;

namespace {

DevicePtr open_sim() {
  register_npu_sim();
  return Device::open("npu://sim?ddr=16MiB&dma=1MiB");
}

DevicePtr connect(const SocketFolder& place) {
  register_npu_remote();
  return Device::open("npu://unix:" + place.socket());
}

bool works(const DevicePtr& device) {
  return device->params().contains("ddr") && read_caps(device->reg_region("npu")).array_rows > 0;
}

Program halts() {
  Program program;
  program.instructions.emplace_back(Halt{});
  return program;
}

}  // namespace

TEST_CASE("npu memory: a simulated device is opened, or there is no memory for it") {
  DevicePtr device;
  fail_allocations(200, [&] { device = open_sim(); }, [&] { CHECK(works(device)); });
}

TEST_CASE("npu memory: a simulated device without a thread") {
  {
    const NoThreads none;
    expect_error(Errc::out_of_memory, [] { open_sim(); });
  }
  CHECK(works(open_sim()));
}

TEST_CASE("npu memory: a device that finds no memory for a command says so and goes on") {
  Rig rig(open_sim(), 1 << 16);
  rig.set(reg::control, bits::enable.mask());
  {
    const NoMemoryElsewhere none;
    CHECK(rig.run(halts()).error == ErrorCode::bus);
  }
  rig.recover();
  rig.set(reg::control, bits::enable.mask());
  CHECK(rig.run(halts()).finished());
}

TEST_CASE("npu memory: a server is started, or there is no memory for it") {
  const SocketFolder place;
  const DevicePtr device = open_sim();
  std::optional<NpuServer> server;
  fail_allocations(
      50,
      [&] {
        server.reset();
        server.emplace(device, own_copy(place.socket()));
      },
      [&] {
        server.reset();
        server.emplace(device, place.socket());
        CHECK(works(connect(place)));
      });
}

TEST_CASE("npu memory: a server without a thread leaves no socket behind") {
  const SocketFolder place;
  const DevicePtr device = open_sim();
  {
    const NoThreads none;
    expect_error(Errc::out_of_memory, [&] { const NpuServer server(device, place.socket()); });
    CHECK_FALSE(std::filesystem::exists(place.socket()));
  }
  const NpuServer server(device, place.socket());
  CHECK(works(connect(place)));
}

TEST_CASE("npu memory: a server without threads or memory for a client tells it, and goes on") {
  const SocketFolder place;
  const NpuServer server(open_sim(), place.socket());
  for (int round = 0; round < 3; ++round) {
    {
      const NoThreads none;
      const std::string what = expect_error(Errc::out_of_memory, [&] { connect(place); });
      CHECK(what.find("server") != std::string::npos);
    }
    {
      const NoMemoryElsewhere none;
      const std::string what = expect_error(Errc::out_of_memory, [&] { connect(place); });
      CHECK(what.find("server") != std::string::npos);
    }
    CHECK(works(connect(place)));
  }
}

TEST_CASE("npu memory: a server that finds no memory for a request answers the next") {
  const SocketFolder place;
  const NpuServer server(open_sim(), place.socket());
  const DevicePtr device = connect(place);
  const MemChunk chunk = device->default_mem_region().malloc(1 << 20);
  std::vector<std::byte> bytes(1 << 20, std::byte{7}), back(bytes.size());
  {
    const NoMemoryElsewhere none;
    expect_error(Errc::out_of_memory, [&] { chunk.write(bytes.data(), 0, bytes.size()); });
    expect_error(Errc::out_of_memory, [&] { chunk.read(back.data(), 0, back.size()); });
  }
  chunk.write(bytes.data(), 0, bytes.size());
  chunk.read(back.data(), 0, back.size());
  CHECK(back == bytes);
}
