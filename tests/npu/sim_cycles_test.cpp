#include "npu/isa/cycles.hpp"
#include "sim_rig.hpp"

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <random>
#include <sstream>
#include <thread>

#include <catch2/catch.hpp>

using namespace tenon;
using namespace tenon::npu;
using namespace tenon::npu::isa;
using tenon::npu::testing::random_bytes;
using tenon::npu::testing::Rig;

namespace {

struct Row {
  std::string flow;
  std::uint32_t rows, cols, m, n, k;
  std::uint64_t cycles;
};

/// The rows of the repository, or of the file that TENON_SCALESIM_ROWS names.
std::vector<Row> rows() {
  const char* const other = std::getenv("TENON_SCALESIM_ROWS");
  std::ifstream file(other != nullptr ? other : "tests/npu/data/scalesim-cycles.csv");
  REQUIRE(file);
  std::vector<Row> all;
  for (std::string text; std::getline(file, text);) {
    if (text.empty() || text[0] == '#' || text.starts_with("dataflow")) continue;
    std::ranges::replace(text, ',', ' ');
    std::istringstream words(text);
    Row row;
    words >> row.flow >> row.rows >> row.cols >> row.m >> row.n >> row.k >> row.cycles;
    all.push_back(row);
  }
  return all;
}

constexpr std::uint32_t operand_bytes = 8 << 20;

/// A product of plain row-major operands that fill the first and second 8 MiB of OCM.
Program product(std::uint32_t m, std::uint32_t n, std::uint32_t k) {
  Gemm gemm;
  gemm.m = m;
  gemm.n = n;
  gemm.k = k;
  gemm.a_log2c = 0;
  gemm.a_row_stride = k;
  gemm.a_block_stride = 1;
  gemm.b_line = operand_bytes / line_bytes;
  gemm.b_row_stride = 1;
  gemm.b_block_stride = k;
  gemm.acc_block_stride = m;
  Program program;
  program.instructions = {gemm, Halt{}};
  return program;
}

std::string big(std::uint32_t rows, std::uint32_t cols, const std::string& flow, int wbuf) {
  return "ocm=32MiB&acc=2MiB&strict=0&mac=" + std::to_string(rows) + "x" + std::to_string(cols) +
         "&flow=" + flow + "&wbuf=" + std::to_string(wbuf);
}

}  // namespace

TEST_CASE("sim cycles: one weight buffer takes what SCALE-Sim reports, plus one") {
  const auto all = rows();
  REQUIRE_FALSE(all.empty());
  for (const Row& row : all) {
    INFO(row.flow << " " << row.rows << "x" << row.cols << " M" << row.m << " N" << row.n << " K"
                  << row.k);
    Rig rig(big(row.rows, row.cols, row.flow, 1));
    REQUIRE(rig.run(product(row.m, row.n, row.k)).finished());
    CHECK(rig.counter(perf::ex_busy) == row.cycles + 1);
    CHECK(rig.counter(perf::macs) == std::uint64_t{row.m} * row.n * row.k);
  }
}

TEST_CASE("sim cycles: bytes at the array are SCALE-Sim's") {
  Rig rig(big(32, 32, "ws", 1));
  REQUIRE(rig.run(product(256, 128, 256)).finished());
  CHECK(rig.counter(perf::input_reads) == 262144);
  CHECK(rig.counter(perf::weight_reads) == 32768);
  CHECK(rig.counter(perf::output_writes) == 262144);
}

TEST_CASE("sim cycles: a convolution counts its padded reduction") {
  Caps caps;  // AlexNet's first layer is 55 x 55 outputs of 11 x 11 x 3: SCALE-Sim says 112283

  caps.wbuf = 1;
  CHECK(array_cycles(caps, 55 * 55, 96, 363) == 112283 + 1);
  Conv conv;
  conv.in_log2c = 2;
  conv.in_channels = 3;
  conv.kernel_h = conv.kernel_w = 3;
  conv.out_h = conv.out_w = 8;
  conv.out_channels = 40;
  CHECK(execute_cycles(caps, conv) == array_cycles(caps, 64, 40, 4 * 9));
}

TEST_CASE("sim cycles: two weight buffers hide all loads but the first") {
  Caps caps;
  CHECK(array_cycles(caps, 256, 128, 256) == 32 + 31 * 256 + 256 + 32 + 32 - 2);
  CHECK(array_cycles(caps, 1, 32, 64) == 32 + 32 + 1 + 62);  // a fold waits for the next weights
  Rig rig(big(32, 32, "ws", 2));
  REQUIRE(rig.run(product(256, 128, 256)).finished());
  CHECK(rig.counter(perf::ex_busy) == array_cycles(caps, 256, 128, 256));
}

TEST_CASE("sim cycles: a lone transfer takes its latency and its bursts") {
  Rig rig("lat=100&freq=800MHz&bw=12.8GB/s");  // 16 bytes a cycle
  Load load;
  load.rows = 3;
  load.row_bytes = 65;  // two bursts each
  load.ddr_stride = 128;
  load.ocm_stride = 96;
  Program program;
  program.instructions = {load, Halt{}};
  REQUIRE(rig.run(program).finished());
  CHECK(rig.counter(perf::ld_busy) == 100 + 3 * 128 / 16);
  CHECK(rig.counter(perf::ddr_read) == 3 * 65);

  Rig odd("lat=7&freq=700MHz&bw=999MB/s");
  load = {};
  load.row_bytes = 1000;  // 16 bursts
  program.instructions = {load, Halt{}};
  REQUIRE(odd.run(program).finished());
  CHECK(odd.counter(perf::ld_busy) == 7 + (1024 * 700 + 998) / 999);
}

TEST_CASE("sim cycles: two engines share the port, first come first served") {
  Rig rig("lat=0&freq=800MHz&bw=12.8GB/s&strict=0");
  Load load;
  load.row_bytes = 65536;
  Store store;
  store.row_bytes = 65536;
  store.ocm_addr = 131072;
  store.segment = static_cast<std::uint32_t>(Segment::output);
  Program program;
  program.instructions = {load, store, Halt{}};
  REQUIRE(rig.run(program).finished());
  // The store begins a cycle later; from then on the two alternate until the load has its bytes.
  const std::uint64_t alone = 65536 / 16;
  const std::uint64_t ld = rig.counter(perf::ld_busy);
  const std::uint64_t st = rig.counter(perf::st_busy);
  CHECK(ld >= 2 * alone - 32);
  CHECK(ld <= 2 * alone);
  CHECK(st >= 2 * alone - 32);
  CHECK(st <= 2 * alone);
  CHECK(rig.counter(perf::ld_ddr_stall) == ld - alone);
  CHECK(rig.counter(perf::st_ddr_stall) == st - alone);
}

TEST_CASE("sim cycles: the same program takes the same cycles, however the host behaves") {
  const auto cycles = [](int pause_ms) {
    Rig rig;
    rig.fill(Segment::weight, random_bytes(1, 4096));
    Load load;
    load.row_bytes = 4096;
    Program program;
    for (int i = 0; i < 40; ++i) program.instructions.emplace_back(load);
    program.instructions.emplace_back(Halt{});
    std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms));
    REQUIRE(rig.run(program).finished());
    return rig.counter(perf::cycles);
  };
  CHECK(cycles(0) == cycles(3));
}

TEST_CASE("sim speed: millions of MACs a second, at least 50", "[.speed]") {
  Rig rig("ocm=32MiB&acc=2MiB");
  rig.write_ocm(0, random_bytes(3, 2 * operand_bytes));
  const auto measure = [&](const char* what, const Program& program) {
    rig.set(reg::control, bits::enable.mask() | bits::perf_clear.mask());
    const auto begin = std::chrono::steady_clock::now();
    REQUIRE(rig.run(program).finished());
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    WARN(what << ": " << static_cast<double>(rig.counter(perf::macs)) / taken.count() / 1e6);
  };
  measure("product of 1024 x 512 x 1024", product(1024, 512, 1024));

  Conv conv;
  conv.in_log2c = 5;
  conv.in_h = conv.in_w = conv.in_row_stride = conv.out_h = conv.out_w = 56;
  conv.in_block_stride = 56 * 56;
  conv.in_channels = conv.out_channels = 128;
  conv.kernel_h = conv.kernel_w = 3;
  conv.pad_top = conv.pad_left = 1;
  conv.w_line = operand_bytes / line_bytes;
  conv.w_block_stride = 4 * 9 * 32;
  conv.acc_block_stride = 56 * 56;
  Program program;
  program.instructions = {conv, Halt{}};
  measure("convolution 3 x 3 of 56 x 56 x 128 to 128", program);

  Depthwise depthwise;
  depthwise.in_h = depthwise.in_w = depthwise.in_row_stride = depthwise.out_h = depthwise.out_w =
      56;
  depthwise.in_block_stride = depthwise.acc_block_stride = 56 * 56;
  depthwise.blocks = 5;
  depthwise.kernel_h = depthwise.kernel_w = 3;
  depthwise.pad_top = depthwise.pad_left = 1;
  program.instructions = {depthwise, Halt{}};
  measure("depthwise 3 x 3 of 56 x 56 x 160", program);
}
