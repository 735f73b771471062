// The kit that tries devices: no findings for devices that are right, and what is wrong is found.
#include "socket_folder.hpp"
#include "support/expect_error.hpp"
#include "wrong_device.hpp"

#include <tenon/backends/npu.hpp>
#include <tenon/backends/npu_remote.hpp>
#include <tenon/backends/npu_sim.hpp>
#include <tenon/npu/isa/registers.hpp>
#include <tenon/npu/testkit.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon::npu {
namespace {

using namespace tenon::npu::testing;
using tenon::testing::expect_error;
using tenon::testkit::check_npu;
namespace reg = isa::reg;
namespace bits = isa::bits;

DevicePtr open_sim(const std::string& params) {
  register_npu_sim();
  return Device::open("npu://sim?ddr=64MiB&dma=1MiB" + params);
}

std::string joined(const std::vector<std::string>& findings) {
  std::string all;
  for (const std::string& finding : findings) all += finding + "\n";
  return all;
}

/// What the kit says of a device that gets one thing wrong.
std::string found_in(Wrong wrong, std::chrono::milliseconds patience = std::chrono::seconds(1)) {
  const auto device = std::make_shared<WrongDevice>(std::move(wrong));
  return joined(check_npu(device, {.patience = patience, .networks = 1}));
}

/// A device one of whose registers always reads `mask` less, or `value` more, than it should.
Wrong reads(std::uint32_t reg, std::uint32_t mask, std::uint32_t value = 0) {
  return {.read_register = [=](std::uint32_t offset, std::uint32_t right) {
    return offset == reg ? (right & ~mask) | value : right;
  }};
}

void arm(Device& device, simctl::FaultKind kind, std::uint32_t nth) {
  RegRegion& control = device.reg_region("simctl");
  control.write(simctl::fault_kind, static_cast<std::uint32_t>(kind), true);
  control.write(simctl::fault_nth, nth, true);
  control.write(simctl::fault_layer, 0xFFFFFFFF, true);
  control.write(simctl::fault_arm, 1, true);
}

TEST_CASE("npu testkit: simulated devices have no findings") {
  for (const char* const params :
       {"", "&hostdma=0", "&coherent=1", "&sched=random&seed=3", "&strict=0&queue=1",
        "&profile=m8&mac=8x8&ocm=64KiB&acc=32KiB", "&reset=2ms"}) {
    INFO(params);
    CHECK(joined(check_npu(open_sim(params))) == "");
  }
}

TEST_CASE("npu testkit: a device of another process has no findings") {
  const SocketFolder folder;
  NpuServer server(open_sim(""), folder.socket());
  register_npu_remote();
  CHECK(joined(check_npu(Device::open("npu://unix:" + folder.socket()))) == "");
}

TEST_CASE("npu testkit: a wrapper that changes nothing has no findings") {
  CHECK(joined(check_npu(std::make_shared<WrongDevice>(Wrong()))) == "");
}

TEST_CASE("npu testkit: wrong registers are found") {
  CHECK(found_in({.read_register = [](std::uint32_t offset, std::uint32_t value) {
          return offset == reg::caps1 ? value / 2 : value;
        }}).find("'ocm', by caps1") != std::string::npos);
  CHECK(found_in({.read_register = [](std::uint32_t offset, std::uint32_t value) {
          return offset == reg::version ? 2U << 16 : value;
        }}).find("instruction set 2.0") != std::string::npos);
  CHECK(
      found_in({.read_register = [](std::uint32_t offset, std::uint32_t value) {
        return offset == reg::ex_pc ? 0 : value;
      }}).find("ex_pc after a reset of level 1 is 0x0, expected 0xffffffff") != std::string::npos);
  CHECK(
      found_in({.write_register =
                    [](std::uint32_t offset, std::uint32_t&) {
                      return offset != reg::fence;  // silently, without the error
                    }})
          .find("error after a write to fence is none, expected bad_reg (npu-isa.md, Registers)") !=
      std::string::npos);
  CHECK(found_in({.write_register = [](std::uint32_t offset, std::uint32_t& value) {
          if (offset == reg::seg2_size_hi) value &= 0xFFFF;
          return true;
        }}).find("seg2_size_hi after 0x5a5a5a40 was written is 0x5a40") != std::string::npos);
}

TEST_CASE("npu testkit: what a device lacks, and sizes that no driver can use, are found") {
  constexpr std::uint32_t all = 0xFFFFFFFF;
  struct Case {
    Wrong wrong;
    const char* says;
  };
  const Case cases[] = {
      {{.lacks = "npu"}, "the device has no register bank 'npu'"},
      {{.lacks = "xchg"}, "the device has no memory region 'xchg'"},
      {{.default_region = "ocm"}, "the default memory region is 'ocm', expected 'etm'"},
      {reads(reg::id, all), "id 0x00000000 is no NPU"},
      {reads(reg::id, 0, all), "the device does not answer"},
      {reads(reg::caps0, all), "capability registers read zero"},
      {reads(reg::ddr_mib, all, 3), "the size of region 'etm', by ddr_mib, is 0x4000000"},
      {reads(reg::caps1, all, 33), "caps1 says 33 bytes of OCM, expected whole lines"},
      {reads(reg::caps1, all, 64 << 20), "caps1 says 67108864 bytes of OCM"},
      {reads(reg::caps2, all), "caps2 says 0 bytes of ACC, expected whole rows"},
      {reads(reg::caps2, all, 127), "caps2 says 127 bytes of ACC"},
      {reads(reg::caps2, all, 4 << 20), "caps2 says 4194304 bytes of ACC"},
      {reads(reg::caps3, bits::flow.mask(), bits::flow.put(3)), "caps3 says flow 3"},
      {reads(reg::caps3, bits::wbuf.mask()), "caps3 says 0 weight buffers, expected 1 or 2"},
      {reads(reg::caps3, bits::wbuf.mask(), bits::wbuf.put(3)), "caps3 says 3 weight buffers"},
      {reads(reg::caps3, bits::queue_depth.mask()), "queue holds no instruction"},
  };
  for (Case one : cases) {
    // The ring does not get anywhere, so that the check ends with the registers.
    const auto inner = one.wrong.read_register;
    one.wrong.read_register = [inner](std::uint32_t offset, std::uint32_t value) {
      return offset == reg::fence ? 0 : inner ? inner(offset, value) : value;
    };
    INFO(one.says);
    const std::string found = found_in(std::move(one.wrong), std::chrono::milliseconds(20));
    INFO(found);
    CHECK(found.find(one.says) != std::string::npos);
  }
}

TEST_CASE("npu testkit: states that a device does not tell, and limits that it lacks, are found") {
  struct Case {
    Wrong wrong;
    const char* says;
  };
  constexpr std::uint64_t etm_bytes = 64 << 20;
  const auto is_beyond = [](std::uint64_t address) {
    return address >= isa::etm_base + etm_bytes && address < isa::ocm_base;
  };
  const auto within = [&](std::uint64_t address) {
    return is_beyond(address) ? address - etm_bytes : address;
  };
  const auto elsewhere = [&](std::uint64_t address) {
    if (is_beyond(address)) throw Error(Errc::io_error, "etm", "something else");
    return address;
  };
  const auto other_error = [](int level) {
    if (level > 2) throw Error(Errc::device_error, "reset", "something else");
    return level;
  };
  const Case cases[] = {
      {reads(reg::status, bits::halted.mask()), "status does not say halted after halt"},
      {reads(reg::status, bits::idle.mask()), "status is not idle after the last command"},
      {reads(reg::status, bits::stuck.mask()), "a token that nobody gives: status is"},
      {reads(reg::status, bits::fault.mask()), "an unknown command: no error after 20 ms"},
      {reads(reg::irq_status, bits::irq_empty.mask()), "irq_empty is not pending"},
      {{.memory = within}, "a read beyond region 'etm' is done, expected Errc::out_of_range"},
      {{.memory = elsewhere}, "a read beyond region 'etm' is refused as"},
      {{.reset = [](int level) { return std::min(level, 2); }}, "a reset of level 3 is done"},
      {{.reset = other_error}, "a reset of level 3 is refused as"},
      {{.reset = [](int level) { return level == 0 ? 1 : level; }},
       "fence after a reset of level 0 is 0x0"},
  };
  for (const Case& one : cases) {
    INFO(one.says);
    const std::string found = found_in(one.wrong, std::chrono::milliseconds(20));
    INFO(found);
    CHECK(found.find(one.says) != std::string::npos);
  }
}

TEST_CASE("npu testkit: wrong memory is found") {
  // The upper half of etm is the lower one again.
  CHECK(found_in({.memory = [](std::uint64_t address) {
          return address >= isa::etm_base && address < isa::ocm_base
                     ? address & ~std::uint64_t{32 << 20}
                     : address;
        }}).find("of region 'etm', read after all places were written") != std::string::npos);
  CHECK(found_in({.syncs = false}).find("xchg by pointer, after copies and syncs") !=
        std::string::npos);
}

TEST_CASE("npu testkit: a wrong ring, interrupts, errors and resets are found") {
  CHECK(found_in({.wait_irq = [](std::uint32_t pending) {
          return pending & ~bits::irq_fence.mask();
        }}).find("what wait_irq returns after it is 0x0, expected 0x1") != std::string::npos);
  CHECK(found_in({.read_register = [](std::uint32_t offset, std::uint32_t value) {
          return offset == reg::fence && value > 2 ? 2 : value;
        }}).find("the fence is 2 after 1000 ms") != std::string::npos);
  CHECK(
      found_in({.read_register =
                    [](std::uint32_t offset, std::uint32_t value) {
                      const auto crc = static_cast<std::uint32_t>(isa::ErrorCode::crc);
                      return offset == reg::error && value == crc ? crc + 1 : value;
                    }})
          .find("error after a program with a damaged instruction is bad_program, expected crc") !=
      std::string::npos);
  CHECK(found_in({.read_register =
                      [](std::uint32_t offset, std::uint32_t value) {
                        return offset == reg::error_pc ? value + 1 : value;
                      }})
            .find("error_pc after an instruction with an unknown opcode is 0x1, expected 0x0") !=
        std::string::npos);
  CHECK(found_in({.reset = [](int level) {
          return level == 2 ? 1 : level;
        }}).find("a word of etm after a reset of level 2") != std::string::npos);
}

TEST_CASE("npu testkit: faults of the simulated device are found") {
  const tenon::testkit::NpuCheckOptions options{.patience = std::chrono::milliseconds(2000),
                                                .networks = 2};
  const auto found_after = [&](simctl::FaultKind kind, std::uint32_t nth) {
    const DevicePtr device = open_sim("");
    arm(*device, kind, nth);
    return joined(check_npu(device, options));
  };
  CHECK(found_after(simctl::FaultKind::flip_act, 2).find("differs from its integers on the CPU") !=
        std::string::npos);
  CHECK(found_after(simctl::FaultKind::lost_irq, 2).find("wait_irq returns") != std::string::npos);
  CHECK(found_after(simctl::FaultKind::bus_error, 5).find("stopped with error bus") !=
        std::string::npos);
}

TEST_CASE("npu testkit: what is no NPU is found, one in use is refused") {
  CHECK(joined(check_npu(cpu_device())) ==
        "the device is no npu::isa::DeviceControl (npu-device.md, Memories)\n");
  expect_error(Errc::bad_argument, [] { check_npu(nullptr); });
  const DevicePtr device = open_sim("");
  Options options;
  options.calibration = std::make_shared<const CalibrationTable>();
  const auto npu = backend(device, options);
  expect_error(Errc::busy, [&] { check_npu(device); });
}

}  // namespace
}  // namespace tenon::npu
