#include "sim_random_program.hpp"
#include "sim_rig.hpp"
#include "support/expect_error.hpp"

#include <tenon/backends/npu_sim.hpp>
#include <tenon/npu/isa/memory_map.hpp>
#include <tenon/npu/isa/structures.hpp>

#include <algorithm>
#include <cstring>
#include <thread>

#include <catch2/catch.hpp>

using namespace tenon;
using namespace tenon::npu;
using namespace tenon::npu::isa;
using tenon::npu::testing::random_bytes;
using tenon::npu::testing::Rig;
using tenon::testing::expect_error;

namespace {

DevicePtr open(const std::string& params) {
  register_npu_sim();
  return Device::open("npu://sim" + params);
}

Program loads(int count) {
  Load load;
  load.row_bytes = 1024;
  Program program;
  program.instructions.assign(static_cast<std::size_t>(count), load);
  program.instructions.emplace_back(Halt{});
  return program;
}

}  // namespace

TEST_CASE("sim device: what the URL says is what params and capability registers say") {
  const auto device = open(
      "?mac=16x8&ocm=512KiB&acc=64KiB&ddr=32MiB&dma=2MiB&freq=1.2GHz&bw=6.4GB/s"
      "&lat=50&wbuf=1&coherent=1&strict=0&flow=os&queue=7&profile=m8&seed=5");
  const auto params = device->params();
  CHECK(params.at("mac") == "16x8");
  CHECK(params.at("freq") == "1200MHz");
  CHECK(params.at("bw") == "6400MB/s");
  CHECK(params.at("sched") == "time");
  CHECK(params.at("dma") == "2MiB");
  const Caps caps = read_caps(device->reg_region("npu"));
  Caps expected;
  expected.array_rows = 16;
  expected.array_cols = 8;
  expected.ocm_bytes = 512 << 10;
  expected.acc_bytes = 64 << 10;
  expected.flow = Flow::os;
  expected.wbuf = 1;
  expected.coherent = true;
  expected.strict = false;
  expected.m8 = true;
  expected.host_dma = true;
  expected.queue_depth = 7;
  expected.freq_khz = 1'200'000;
  expected.ddr_kbps = 6'400'000;
  expected.ddr_latency = 50;
  expected.ddr_mib = 32;
  CHECK(caps == expected);
  CHECK(device->protocol() == "sim");
  CHECK(device->version().at("isa") == "1.0");

  std::string url = "?";  // the effective values, written as a URL, open the same device
  for (const auto& [key, value] : params) {
    if (!value.empty()) url += (url.size() > 1 ? "&" : "") + key + "=" + value;
  }
  CHECK(open(url)->params() == params);
}

TEST_CASE("sim device: URLs that say something wrong name the key") {
  const auto refuse = [](Errc code, const std::string& params, const std::string& word) {
    INFO(params);
    CHECK(expect_error(code, [&] { open(params); }).find(word) != std::string::npos);
  };
  refuse(Errc::bad_key, "?omc=2MiB", "'omc'");
  refuse(Errc::duplicate_name, "?ocm=2MiB&ocm=2MiB", "'ocm'");
  for (const char* const bad : {"ocm=2097152",
                                "ocm=2MB",
                                "ocm=2KiB",
                                "ocm=64MiB",
                                "ocm=",
                                "acc=100B",
                                "ddr=1.5GiB",
                                "ddr=61GiB",
                                "dma=1KiB",
                                "freq=800",
                                "freq=800mhz",
                                "freq=0.5MHz",
                                "freq=9GHz",
                                "bw=12.8",
                                "bw=1B/s",
                                "lat=-1",
                                "lat=96cycles",
                                "wbuf=3",
                                "coherent=yes",
                                "sched=fast",
                                "seed=4294967296",
                                "pace=2",
                                "strict=2",
                                "mac=32",
                                "mac=0x4",
                                "mac=32x32x2",
                                "mac=1025x1",
                                "flow=rs",
                                "queue=0",
                                "profile=m9",
                                "trace=",
                                "fault=explode@1",
                                "fault=hang",
                                "fault=hang@0",
                                "fault=hang@1,",
                                "fault=hang@1,70000",
                                "fault=crc@1,3",
                                "fault=hang@1+",
                                "fault=hang@1x"}) {
    const std::string text = bad;
    refuse(Errc::out_of_range, "?" + text, text.substr(0, text.find('=')) + " = ");
  }
  register_npu_sim();
  expect_error(Errc::device_unavailable, [] { Device::open("npu://silicon"); });
  expect_error(Errc::io_error, [] { open("?trace=/nonexistent/folder/file"); });
}

TEST_CASE("sim device: memory regions, their addresses and their limits") {
  const auto device = open("?ddr=4MiB&dma=64KiB&ocm=64KiB");
  CHECK(&device->default_mem_region() == &device->mem_region("etm"));
  CHECK(&device->default_reg_region() == &device->reg_region("npu"));
  auto& etm = device->mem_region("etm");
  auto& xchg = device->mem_region("xchg");
  auto& ocm = device->mem_region("ocm");
  const MemChunk far = etm.malloc(1 << 20);
  const MemChunk shared = xchg.malloc(4096);
  CHECK(far.begin().kind() == MemPtr::Kind::addr);
  CHECK(far.begin().addr() >= 0x1'0000'0000);
  CHECK(shared.begin().kind() == MemPtr::Kind::both);
  CHECK(shared.begin().addr() >= 0x8000'0000);
  CHECK_FALSE(etm.is_host());
  expect_error(Errc::bad_argument, [&] { far.begin().cptr(); });

  const auto bytes = random_bytes(1, 4096);
  std::vector<std::byte> back(4096);
  shared.write(bytes.data(), 0, 4096);
  etm.copy(far.begin(), xchg, shared.begin(), 4096);
  far.read(back.data(), 0, 4096);
  CHECK(back == bytes);
  CHECK(std::memcmp(shared.begin().cptr(), bytes.data(), 4096) == 0);
  const MemChunk chip = ocm.malloc(4096);
  ocm.copy(chip.begin(), etm, far.begin(), 4096);
  std::ranges::fill(back, std::byte{});
  chip.read(back.data(), 0, 4096);
  CHECK(back == bytes);

  CHECK(expect_error(Errc::out_of_device_memory, [&] {
          etm.malloc(4 << 20);
        }).find("largest hole") != std::string::npos);
  expect_error(Errc::out_of_range,
               [&] { etm.read(back.data(), MemPtr(std::uint64_t{0x1000}), 8); });
  expect_error(Errc::out_of_range, [&] {
    etm.read(back.data(), MemPtr(std::uint64_t{0x1'0000'0000} + (4 << 20) - 4), 8);
  });
  CHECK(etm.usage().used_bytes == 1 << 20);
  CHECK(etm.usage().capacity_bytes == 4 << 20);
  const MemChunk fixed = etm.malloc_at(MemPtr(std::uint64_t{0x1'0000'0000} + (3 << 20)), 4096);
  expect_error(Errc::overlap, [&] { etm.malloc_at(fixed.begin() + 64, 64); });
}

TEST_CASE("sim device: what the device writes past a chunk is found when that is freed") {
  Rig rig;
  auto& etm = rig.device->mem_region("etm");
  MemChunk chunk = etm.malloc(128);
  Descriptor copy;
  copy.kind = static_cast<std::uint32_t>(Command::copy);
  copy.arg0 = chunk.begin().addr();
  copy.arg1 = rig.segments[0].begin().addr();
  copy.arg2 = 128;
  rig.push(copy);
  rig.ring();
  REQUIRE(rig.wait().finished());
  CHECK_NOTHROW(etm.check_redzones());
  copy.arg2 = 129;
  rig.push(copy);
  rig.ring();
  REQUIRE(rig.wait().finished());
  expect_error(Errc::device_error, [&] { etm.check_redzones(); });
  expect_error(Errc::device_error, [&] { chunk.free(); });
}

TEST_CASE("sim device: registers that are none, read-only or misaligned") {
  Rig rig;
  CHECK(rig.reg(0x060) == 0);
  CHECK(rig.reg(reg::error) == 0);
  rig.set(reg::fence, 7);
  CHECK(rig.reg(reg::fence) == 0);
  CHECK(static_cast<ErrorCode>(rig.reg(reg::error)) == ErrorCode::bad_reg);
  CHECK(rig.reg(reg::error_addr_lo) == reg::fence);
  CHECK(bits::error_engine.get(rig.reg(reg::error_info)) == 5);
  rig.set(0x060, 1);
  CHECK(rig.reg(reg::error_addr_lo) == reg::fence);  // the first error stays
  CHECK(rig.run(loads(1)).error == ErrorCode::bad_reg);
  CHECK(rig.reg(reg::fence) == 1);  // but nothing stops for it
  rig.recover();
  CHECK(rig.reg(reg::error) == 0);
  CHECK(rig.reg(0x002) == 0);
  CHECK(static_cast<ErrorCode>(rig.reg(reg::error)) == ErrorCode::bad_reg);
  CHECK(rig.npu.read(0x4000'0000, false) == device_id);
  expect_error(Errc::out_of_range, [&] { rig.npu.read(0x1000, true); });
  expect_error(Errc::out_of_range, [&] { rig.npu.read(0x3FFF'FFFC, false); });
  expect_error(Errc::out_of_range, [&] { rig.npu.write(reg::irq_mask, 1ULL << 32, true); });
}

TEST_CASE("sim device: every readable register of the map can be read, every writable written") {
  Rig rig;
  for (const RegisterInfo& info : registers()) {
    INFO(info.name);
    rig.reg(info.offset);
    CHECK(rig.reg(reg::error) == 0);
    if (info.access == Access::ro || info.offset == reg::control) continue;
    rig.set(info.offset, 0);
    CHECK(rig.reg(reg::error) == 0);
  }
  for (const RegisterInfo& info : counters()) {
    rig.reg(info.offset + 4);
    CHECK(rig.reg(reg::error) == 0);
  }
}

TEST_CASE("sim device: the ring wraps around, fences only rise, interrupts wait to be cleared") {
  Rig rig;
  for (int round = 0; round < 30; ++round) REQUIRE(rig.run(loads(2)).finished());
  CHECK(rig.reg(reg::fence) == 30);
  CHECK(rig.reg(reg::cmdq_head) == rig.reg(reg::cmdq_tail));
  CHECK((rig.reg(reg::status) & bits::idle.mask()) != 0);
  CHECK(rig.counter(perf::programs) == 30);
  CHECK(rig.counter(perf::instructions) == 30 * 3);

  Descriptor fence;
  fence.kind = static_cast<std::uint32_t>(Command::fence);
  fence.flags = fence_irq;
  fence.arg0 = 10;  // lower than before
  rig.set(reg::irq_status, 0xF);
  rig.push(fence);
  rig.ring();
  CHECK(rig.control.wait_irq(bits::irq_fence.mask(), std::chrono::seconds(10)) ==
        bits::irq_fence.mask());
  CHECK(rig.reg(reg::fence) == 30);
  CHECK((rig.reg(reg::irq_status) & bits::irq_fence.mask()) != 0);
  rig.set(reg::irq_status, bits::irq_fence.mask());
  CHECK((rig.reg(reg::irq_status) & bits::irq_fence.mask()) == 0);
  CHECK(rig.control.wait_irq(bits::irq_fence.mask(), std::chrono::milliseconds(1)) == 0);
  rig.set(reg::irq_mask, 0);
  rig.push(fence);
  rig.ring();
  CHECK(rig.control.wait_irq(bits::irq_fence.mask(), std::chrono::milliseconds(20)) == 0);
  std::jthread late([&] { rig.set(reg::irq_mask, bits::irq_fence.mask()); });
  CHECK(rig.control.wait_irq(bits::irq_fence.mask(), std::chrono::seconds(10)) != 0);
}

TEST_CASE("sim device: commands other than run") {
  Rig rig("coherent=1");
  const auto bytes = random_bytes(4, 1000);
  rig.fill(Segment::input, bytes);
  const auto segment = [&](Segment s) {
    return rig.segments[static_cast<std::size_t>(s)].begin().addr();
  };
  Descriptor copy;
  copy.kind = static_cast<std::uint32_t>(Command::copy);
  copy.arg0 = segment(Segment::output);
  copy.arg1 = segment(Segment::input);
  copy.arg2 = bytes.size();
  rig.push(copy);
  Descriptor stamp;
  stamp.kind = static_cast<std::uint32_t>(Command::timestamp);
  stamp.arg0 = segment(Segment::ftmp);
  rig.push(stamp);
  Descriptor window;
  window.kind = static_cast<std::uint32_t>(Command::segment);
  window.arg0 = 4;
  window.arg1 = segment(Segment::output);
  window.arg2 = 128;
  rig.push(window);
  rig.push({});
  rig.ring();
  REQUIRE(rig.wait().finished());
  auto output = rig.contents(Segment::output);
  output.resize(bytes.size());
  CHECK(output == bytes);
  std::uint64_t cycles = 0;
  rig.segments[4].read(&cycles, 0, 8);
  CHECK(cycles == 1 + 96 + 2 * 1024 / 16 + 1);
  CHECK(rig.reg(reg::seg4_size_lo) == 128);

  const auto refused = [&](Descriptor descriptor, ErrorCode code) {
    rig.recover();
    rig.push(descriptor);
    rig.ring();
    const auto outcome = rig.wait();
    CHECK(name(outcome.error) == name(code));
    CHECK((rig.reg(reg::status) & bits::fault.mask()) != 0);
    CHECK(rig.reg(reg::cmdq_head) == 0);
  };
  Descriptor bad;
  bad.kind = 6;
  refused(bad, ErrorCode::bad_command);
  bad = copy;
  bad.arg1 = 0x1000;
  refused(bad, ErrorCode::bus);
  bad.arg1 = copy.arg0 + 8;
  refused(bad, ErrorCode::bad_command);
  bad = stamp;
  bad.arg0 += 4;
  refused(bad, ErrorCode::bad_command);
  bad = window;
  bad.arg0 = 5;
  refused(bad, ErrorCode::bad_command);
  bad = {};
  bad.flags = 1;
  refused(bad, ErrorCode::bad_command);
  Descriptor run;
  run.kind = static_cast<std::uint32_t>(Command::run);
  run.arg1 = 1 << 21;
  refused(run, ErrorCode::seg_limit);
  run.arg1 = 64;
  refused(run, ErrorCode::bad_program);
  rig.recover();
  rig.set(reg::cmdq_size, 3);
  rig.push({});
  rig.ring();
  CHECK(rig.wait().error == ErrorCode::bad_command);
}

TEST_CASE("sim device: the ring's size changes while a command runs") {
  register_npu_sim();
  Rig rig(Device::open("npu://sim?ddr=256MiB"), 1 << 20);
  Descriptor copy;
  copy.kind = static_cast<std::uint32_t>(Command::copy);
  copy.arg0 = isa::etm_base;
  copy.arg2 = 128 << 20;
  copy.arg1 = copy.arg0 + copy.arg2;
  rig.push(copy);
  rig.ring();
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  rig.set(reg::cmdq_size, 0);
  rig.wait();  // ended, or refused where it had not begun
  rig.recover();
  CHECK(rig.run(Program{.instructions = {Halt{}}}).finished());
}

TEST_CASE("sim device: bounds of segments, OCM and ACC; nothing of the instruction is written") {
  Rig rig;
  const auto refused = [&](const Instruction& instruction, ErrorCode code) {
    Program program;
    program.instructions = {instruction, Halt{}};
    INFO(disassemble(instruction));
    CHECK(name(rig.run(program).error) == name(code));
    rig.recover();
  };
  Load load;
  load.offset = (1 << 20) - 63;
  load.row_bytes = 64;
  refused(load, ErrorCode::seg_limit);
  load.offset = 0;
  load.ocm_addr = (2 << 20) - 63;
  refused(load, ErrorCode::ocm_range);
  Elementwise ew;
  ew.function = static_cast<std::uint32_t>(EwFunction::clamp);
  ew.a_line = 1 << 16;
  refused(ew, ErrorCode::ocm_range);
  Gemm gemm;
  gemm.acc_row = 2047;
  gemm.m = 2;
  refused(gemm, ErrorCode::acc_range);
  LoadP params;
  refused(params, ErrorCode::bad_param);  // a record of zeros
  Store store;
  store.segment = 3;
  store.rows = 2;
  store.row_bytes = 32;
  store.ddr_stride = (1 << 20) - 31;
  rig.write_ocm(0, random_bytes(1, 64));
  Program program;
  program.instructions = {store, Halt{}};
  CHECK(rig.run(program).error == ErrorCode::seg_limit);
  const auto output = rig.contents(Segment::output);
  CHECK(std::ranges::all_of(output, [](std::byte b) { return b == std::byte{}; }));
  rig.recover();
  rig.set(reg::seg3_base_lo, 0x1000);
  rig.set(reg::seg3_base_hi, 0);
  store.rows = 1;
  program.instructions = {store, Halt{}};
  rig.write_ocm(0, random_bytes(1, 64));
  CHECK(rig.run(program).error == ErrorCode::bus);
}

TEST_CASE("sim device: halt, single steps, and on") {
  Rig rig;
  const std::uint32_t halted = bits::enable.mask() | bits::halt.mask();
  rig.set(reg::control, halted);
  CHECK((rig.reg(reg::status) & bits::halted.mask()) != 0);
  const auto assembled = assemble(loads(5));
  rig.fill(Segment::instr, assembled);
  Descriptor run;
  run.kind = static_cast<std::uint32_t>(Command::run);
  run.arg1 = assembled.size();
  rig.push(run);
  rig.ring();
  const auto steps_to = [&](std::uint64_t count) {
    rig.set(reg::control, halted | bits::step.mask());
    for (int i = 0; i < 10000; ++i) {
      if ((rig.reg(reg::status) & bits::halted.mask()) != 0 &&
          rig.counter(perf::instructions) == count) {
        return true;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    return false;
  };
  CHECK(steps_to(0));  // the command itself, which looks from outside as if nothing had happened
  for (int i = 0; i < 10000 && rig.reg(reg::ld_pc) != 0; ++i) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  for (std::uint64_t i = 0; i < 4; ++i) {
    CHECK(rig.reg(reg::ld_pc) == i);  // at hand, not begun
    CHECK(steps_to(i + 1));
  }
  rig.set(reg::control, bits::enable.mask());
  CHECK(rig.wait().finished());
  CHECK(rig.counter(perf::instructions) == 6);
}

TEST_CASE("sim device: a soft reset ends a program that cannot go on, and OCM is forgotten") {
  Rig rig;
  Load load;
  load.deps.pop_next = true;  // nobody gives it
  Program program;
  program.instructions = {load, Halt{}};
  CHECK(rig.run(program).stuck);
  CHECK(bits::engine_state.get(rig.reg(reg::ld_state)) ==
        static_cast<std::uint32_t>(EngineState::wait_next));
  CHECK(rig.reg(reg::ld_pc) == 0);
  rig.recover();
  CHECK((rig.reg(reg::status) & bits::idle.mask()) != 0);
  CHECK(rig.reg(reg::ld_pc) == 0xFFFFFFFF);
  CHECK(rig.run(loads(1)).finished());
  rig.device->reset(1);
  CHECK(rig.reg(reg::seg0_size_lo) == 0);
}

TEST_CASE("sim device: each level of a reset does what the one before does, and one thing more") {
  Rig rig;
  const auto bytes = random_bytes(3, 64);
  const std::vector<std::byte> zeros(64);
  const auto work = [&] {
    rig.fill(Segment::ftmp, bytes);
    CHECK(rig.run(loads(1)).finished());
    CHECK(rig.reg(reg::fence) > 0);
    CHECK(rig.counter(perf::instructions) > 0);
  };
  const auto memory = [&] {
    auto held = rig.contents(Segment::ftmp);
    held.resize(64);
    return held;
  };
  work();
  rig.device->reset(0);
  CHECK(rig.reg(reg::control) == 0);
  CHECK(rig.reg(reg::fence) > 0);
  CHECK(rig.counter(perf::instructions) > 0);
  CHECK(memory() == bytes);
  rig.recover();
  work();
  rig.device->reset(1);
  CHECK(rig.reg(reg::fence) == 0);
  CHECK(rig.counter(perf::instructions) == 0);
  CHECK(memory() == bytes);
  rig.recover();
  work();
  rig.device->reset(2);
  CHECK(rig.reg(reg::fence) == 0);
  CHECK(memory() == zeros);
  for (const int level : {-1, 3, 99}) {
    INFO("level " << level);
    expect_error(Errc::bad_argument, [&] { rig.device->reset(level); });
  }
}

TEST_CASE("sim device: a reset takes the time it is told to, and says when it is complete") {
  Rig rig("reset=300ms");
  rig.set(reg::cmdq_size, 8);
  const auto begin = std::chrono::steady_clock::now();
  rig.set(reg::control, bits::reset.mask());
  CHECK(rig.reg(reg::status) == bits::resetting.mask());
  CHECK(rig.reg(reg::id) == device_id);
  rig.set(reg::cmdq_size, 16);  // lost
  while (bits::resetting.get(rig.reg(reg::status)) != 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK(std::chrono::steady_clock::now() - begin >= std::chrono::milliseconds(300));
  CHECK(rig.reg(reg::cmdq_size) == 0);
  rig.device->reset();  // waits
  CHECK(bits::idle.get(rig.reg(reg::status)) == 1);
}

TEST_CASE("sim device: host DMA, also to and from OCM") {
  Rig rig;
  const auto bytes = random_bytes(9, 256);
  rig.fill(Segment::input, bytes);
  const auto dma = [&](std::uint64_t from, std::uint64_t to, std::uint32_t size) {
    rig.set(reg::irq_status, bits::irq_dma.mask());
    rig.set(reg::dma_src_lo, static_cast<std::uint32_t>(from));
    rig.set(reg::dma_src_hi, static_cast<std::uint32_t>(from >> 32));
    rig.set(reg::dma_dst_lo, static_cast<std::uint32_t>(to));
    rig.set(reg::dma_dst_hi, static_cast<std::uint32_t>(to >> 32));
    rig.set(reg::dma_len, size);
    rig.set(reg::dma_ctrl, bits::dma_start.mask() | bits::dma_irq.mask());
    CHECK(rig.control.wait_irq(bits::irq_dma.mask(), std::chrono::seconds(10)) != 0);
    return rig.reg(reg::dma_status);
  };
  const std::uint64_t from = rig.segments[2].begin().addr();
  CHECK(dma(from, 0x10'0000'0040, 256) == bits::dma_done.mask());
  CHECK(rig.read_ocm(64, 256) == bytes);
  CHECK(dma(0x10'0000'0040, rig.segments[3].begin().addr(), 256) == bits::dma_done.mask());
  auto output = rig.contents(Segment::output);
  output.resize(256);
  CHECK(output == bytes);
  CHECK(dma(from, 0x1000, 16) == (bits::dma_done.mask() | bits::dma_error.mask()));
  CHECK(dma(from, 0x10'0000'0000 + (2 << 20) - 8, 16) ==
        (bits::dma_done.mask() | bits::dma_error.mask()));
}

TEST_CASE("sim device: without coherence, what was not synced is poison") {
  Rig rig;
  auto& xchg = rig.device->mem_region("xchg");
  const MemChunk chunk = xchg.malloc(4096, true, 64);
  const auto bytes = random_bytes(2, 64);
  Descriptor copy;
  copy.kind = static_cast<std::uint32_t>(Command::copy);
  copy.arg0 = rig.segments[3].begin().addr();
  copy.arg1 = chunk.begin().addr();
  copy.arg2 = 64;
  const auto copied = [&] {
    rig.push(copy);
    rig.ring();
    REQUIRE(rig.wait().finished());
    std::vector<std::byte> result(64);
    rig.segments[3].read(result.data(), 0, 64);
    return result;
  };
  std::memcpy(chunk.begin().cptr(), bytes.data(), 64);
  CHECK(copied() != bytes);
  rig.control.sync(chunk.begin(), 64, DeviceControl::Direction::to_device);
  CHECK(copied() == bytes);
  CHECK(rig.counter(perf::syncs) == 1);

  // And back: the device's writes are not the CPU's until it syncs.
  copy.arg1 = rig.segments[3].begin().addr();
  copy.arg0 = chunk.begin().addr() + 64;
  rig.push(copy);
  rig.ring();
  REQUIRE(rig.wait().finished());
  CHECK(std::memcmp(chunk.begin().cptr() + 64, bytes.data(), 64) != 0);
  rig.control.sync(chunk.begin() + 64, 64, DeviceControl::Direction::from_device);
  CHECK(std::memcmp(chunk.begin().cptr() + 64, bytes.data(), 64) == 0);
  expect_error(Errc::out_of_range, [&] {
    rig.control.sync(chunk.begin(), 1 << 30, DeviceControl::Direction::to_device);
  });
}

TEST_CASE("sim device: after a rest a paced device is no faster than its clock") {
  Rig rig("freq=1MHz&pace=real");
  const Program program = loads(100);
  REQUIRE(rig.run(program).finished());
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const std::uint64_t before = rig.counter(perf::cycles);
  const auto begin = std::chrono::steady_clock::now();
  REQUIRE(rig.run(program).finished());
  const auto taken = std::chrono::steady_clock::now() - begin;
  const std::uint64_t cycles = rig.counter(perf::cycles) - before;
  CHECK(cycles > 1000);
  CHECK(taken >= std::chrono::microseconds(cycles) * 9 / 10);
}

TEST_CASE("sim device: many devices at once, opened and closed") {
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int round = 0; round < 3; ++round) {
        Rig rig(npu::testing::random_params, 1 << 20);
        const auto made =
            npu::testing::random_program(static_cast<std::uint64_t>(t * 3 + round), true);
        rig.fill(Segment::weight, made.weight);
        rig.fill(Segment::input, made.input);
        if (!rig.run(made.program).finished()) std::abort();
      }
    });
  }
}
