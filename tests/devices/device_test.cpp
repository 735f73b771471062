#include "support/expect_error.hpp"
#include "support/fake_device.hpp"

#include <tenon/device.hpp>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon {
namespace {

using testing::expect_error;
using testing::FakeDevice;
using Params = std::vector<std::pair<std::string, std::string>>;

/// A device of given regions, to see what declaring does.
class LooseDevice : public Device {
 public:
  LooseDevice() : Device("loose:") {}
  ~LooseDevice() override { deinit(); }
  using Device::declare;
  using Device::init;
  std::string protocol() const override { return "loose"; }
  std::map<std::string, std::string> version() const override { return {}; }
  std::map<std::string, std::string> params() const override { return {}; }
  void reset(int level) override { check_reset_level(level); }
};

class FailingRegisters : public testing::FakeRegisters {
 public:
  using FakeRegisters::FakeRegisters;
  void init() override { throw std::runtime_error("no clock"); }
};

}  // namespace

TEST_CASE("DeviceUrl: scheme, address, parameters in order") {
  const DeviceUrl url = DeviceUrl::parse("npu://sim?ocm=2MiB&mac=32x32&note=");
  CHECK(url.scheme == "npu");
  CHECK(url.address == "sim");
  CHECK(url.params == Params{{"ocm", "2MiB"}, {"mac", "32x32"}, {"note", ""}});
  CHECK(url.text == "npu://sim?ocm=2MiB&mac=32x32&note=");

  CHECK(DeviceUrl::parse("cpu:").address.empty());
  CHECK(DeviceUrl::parse("cuda:0").address == "0");
  CHECK(DeviceUrl::parse("cuda:?a=b").params == Params{{"a", "b"}});
  // Only the first '?' and the first '=' of a parameter divide.
  CHECK(DeviceUrl::parse("axi://ql100aiu?npu=0x40000000&dma=a=b?c").params ==
        Params{{"npu", "0x40000000"}, {"dma", "a=b?c"}});
  CHECK(DeviceUrl::parse("s:a/b:c").address == "a/b:c");
}

TEST_CASE("DeviceUrl: what is no URL") {
  for (const char* bad : {"", "cpu", ":0", "1x:", "a b:", "cpu:\n", "c\xC3\xA9:", "npu://sim?",
                          "npu:?a", "npu:?=1", "npu:?a=1&", "npu:?&a=1"}) {
    INFO(bad);
    expect_error(Errc::syntax, [&] { DeviceUrl::parse(bad); });
  }
  expect_error(Errc::syntax, [] { DeviceUrl::parse("cpu:" + std::string(5000, 'x')); });
  expect_error(Errc::duplicate_name, [] { DeviceUrl::parse("npu:?a=1&b=2&a=1"); });
}

TEST_CASE("Device: the CPU is one device with one memory") {
  const DevicePtr cpu = Device::open("cpu:");
  CHECK(cpu == cpu_device());
  CHECK(Device::open("cpu://") == cpu);
  CHECK(cpu->protocol() == "cpu");
  CHECK(cpu->url() == "cpu:");
  REQUIRE(cpu->mem_regions().size() == 1);
  MemRegion& host = cpu->default_mem_region();
  CHECK(&cpu->mem_region("host") == &host);
  CHECK(host.is_host());
  CHECK(&host.device() == cpu.get());
  CHECK(host.malloc(8).begin().kind() == MemPtr::Kind::cptr);
  expect_error(Errc::unsupported, [&] { cpu->default_reg_region(); });
  expect_error(Errc::bad_reference, [&] { cpu->mem_region("dram"); });
  expect_error(Errc::bad_reference, [&] { cpu->reg_region("npu"); });

  const std::string what = expect_error(Errc::bad_key, [] { Device::open("cpu:?threads=4"); });
  CHECK(what.find("threads") != std::string::npos);
  CHECK(expect_error(Errc::duplicate_name, [] {
          Device::open("cpu:?threads=4&threads=5");
        }).find("threads") != std::string::npos);
  expect_error(Errc::device_unavailable, [] { Device::open("cpu:1"); });
}

TEST_CASE("Device: what the CPU says about itself") {
  const DevicePtr cpu = cpu_device();
  for (const char* component : {"cpu", "system", "tenon"}) {
    INFO(component);
    CHECK_FALSE(cpu->version().at(component).empty());
  }
  CHECK(cpu->version().at("tenon").find('.') != std::string::npos);
  CHECK(std::stoull(cpu->params().at("memory_bytes")) > 0);
  CHECK(std::stoull(cpu->params().at("page_bytes")) >= 4096);
  CHECK(cpu->params().count("cores") == 1);
}

TEST_CASE("Device: reset levels") {
  for (const DevicePtr& device : {cpu_device(), DevicePtr(std::make_shared<FakeDevice>())}) {
    for (const int level : {0, 1, 2}) CHECK_NOTHROW(device->reset(level));
    expect_error(Errc::bad_argument, [&] { device->reset(-1); });
    expect_error(Errc::bad_argument, [&] { device->reset(3); });
  }
}

TEST_CASE("DeviceUrl: parameters by key") {
  const DeviceUrl url = DeviceUrl::parse("npu://sim?ocm=2MiB&mac=32x32");
  REQUIRE(url.find("mac") != nullptr);
  CHECK(*url.find("mac") == "32x32");
  CHECK(url.find("dma") == nullptr);
  CHECK_NOTHROW(url.check_keys({"mac", "ocm", "dma"}));
  const std::string what = expect_error(Errc::bad_key, [&] { url.check_keys({"ocm", "dma"}); });
  CHECK(what.find("'mac'") != std::string::npos);
  CHECK(what.find("ocm, dma") != std::string::npos);
}

TEST_CASE("Device: schemes are registered once") {
  const std::string scheme = "devicetest";
  expect_error(Errc::device_unavailable, [&] { Device::open(scheme + ":"); });
  std::string asked;
  Device::register_scheme(scheme, [&](const DeviceUrl& url) -> DevicePtr {
    asked = url.address;
    if (url.address == "none") return nullptr;
    return std::make_shared<FakeDevice>();
  });
  const auto known = Device::schemes();
  CHECK(std::count(known.begin(), known.end(), scheme) == 1);
  CHECK(std::count(known.begin(), known.end(), "cpu") == 1);
  CHECK(Device::open(scheme + "://board7")->protocol() == "fake");
  CHECK(asked == "board7");
  expect_error(Errc::device_unavailable, [&] { Device::open(scheme + ":none"); });
  const auto factory = [](const DeviceUrl&) { return DevicePtr(); };
  expect_error(Errc::duplicate_name, [&] { Device::register_scheme(scheme, factory); });
  expect_error(Errc::duplicate_name, [&] { Device::register_scheme("cpu", factory); });
  expect_error(Errc::syntax, [&] { Device::register_scheme("two words", factory); });
  expect_error(Errc::syntax, [&] { Device::register_scheme("a:b", factory); });
  expect_error(Errc::bad_argument, [&] { Device::register_scheme("nothing", {}); });
}

TEST_CASE("Device: regions by name and by default") {
  const auto fake = std::make_shared<FakeDevice>();
  CHECK(fake->mem_regions().size() == 2);
  CHECK(fake->mem_regions()[0]->name() == "xchg");
  CHECK(fake->default_mem_region().name() == "dram");  // declared so
  CHECK(fake->default_reg_region().name() == "npu");   // the first
  CHECK(fake->xchg().malloc(8).begin().kind() == MemPtr::Kind::both);
  CHECK(fake->dram().malloc(8).begin().kind() == MemPtr::Kind::addr);
  CHECK_FALSE(fake->dram().is_host());
}

TEST_CASE("Device: registers by address, absolute or relative") {
  const auto fake = std::make_shared<FakeDevice>();
  RegRegion& npu = fake->reg_region("npu");
  npu.write(FakeDevice::registers_base + 8, 0xFEED'FACE'CAFE'BEEF);
  CHECK(npu.read(8, true) == 0xFEED'FACE'CAFE'BEEF);
  npu.write(16, 7, true);
  CHECK(npu.read(FakeDevice::registers_base + 16) == 7);
  expect_error(Errc::out_of_range, [&] { npu.read(0); });
  expect_error(Errc::out_of_range, [&] { npu.read(FakeDevice::registers_base - 8); });
  expect_error(Errc::out_of_range, [&] { npu.read(16 * 8, true); });
  expect_error(Errc::out_of_range, [&] { npu.write(~std::uint64_t{0}, 0, true); });
  CHECK(npu.base() == FakeDevice::registers_base);
  CHECK(npu.size_bytes() == 128);
  expect_error(Errc::bad_argument, [] { testing::FakeRegisters("top", ~std::uint64_t{0} - 7); });
}

TEST_CASE("Device: regions begin in order and end in reverse, registers between memories too") {
  std::vector<std::string> journal;
  {
    const auto fake = std::make_shared<FakeDevice>(&journal);
  }
  CHECK(journal == std::vector<std::string>{"init xchg", "init npu", "init dram", "deinit dram",
                                            "deinit npu", "deinit xchg"});
}

TEST_CASE("Device: a region that fails to begin takes back those before it") {
  std::vector<std::string> journal;
  LooseDevice device;
  device.declare(std::make_unique<testing::FakeRegion>("a", 0, 64, false, &journal));
  device.declare(std::make_unique<FailingRegisters>("b", 0, &journal));
  device.declare(std::make_unique<testing::FakeRegion>("c", 0, 64, false, &journal));
  CHECK_THROWS_WITH(device.init(), "no clock");
  CHECK(journal == std::vector<std::string>{"init a", "deinit a"});
}

TEST_CASE("Device: what cannot be declared") {
  LooseDevice device;
  expect_error(Errc::unsupported, [&] { device.default_mem_region(); });
  device.declare(std::make_unique<testing::FakeRegion>("a", 0, 64, false));
  CHECK(device.default_mem_region().name() == "a");
  expect_error(Errc::duplicate_name,
               [&] { device.declare(std::make_unique<testing::FakeRegion>("a", 64, 64, false)); });
  expect_error(Errc::bad_argument, [&] { device.declare(std::unique_ptr<MemRegion>()); });
  testing::FakeRegion loose("loose", 0, 64, false);
  expect_error(Errc::call_order, [&] { loose.device(); });
}

TEST_CASE("Device: lives as long as a chunk of it") {
  std::vector<std::string> journal;
  MemChunk chunk;
  {
    const auto fake = std::make_shared<FakeDevice>(&journal);
    chunk = fake->dram().malloc(16);
  }
  CHECK(journal.size() == 3);  // nothing has ended yet
  char byte = 1;
  chunk.write(&byte, 0, 1);
  chunk = {};
  CHECK(journal.size() == 6);
}

TEST_CASE("Device: a chunk that outlives a region of no shared device only says so") {
  MemChunk chunk;
  bool deleted = false;
  MemChunk placed;
  {
    testing::FakeRegion region("short", 0, 64, false);
    chunk = region.malloc(16);
    placed = region.malloc_at(region.pointer(32), 8, [&](const MemPtr&) { deleted = true; });
  }
  char byte = 0;
  expect_error(Errc::stale_handle, [&] { chunk.read(&byte, 0, 1); });
  expect_error(Errc::stale_handle, [&] { chunk.region(); });
  chunk = {};
  placed = {};
  CHECK(deleted);
}

}  // namespace tenon
