#include "isa_random.hpp"
#include "npu/isa/encoding.hpp"
#include "support/expect_error.hpp"

#include <tenon/npu/isa/instruction.hpp>

#include <map>
#include <random>

#include <catch2/catch.hpp>

using namespace tenon;
using namespace tenon::npu;
using namespace tenon::npu::isa;
using tenon::testing::expect_error;

TEST_CASE("isa: a worked example, bit by bit") {
  Store store;
  store.deps.pop_prev = true;
  store.deps.push_next = true;
  store.layer = 0x1234;
  store.offset = 0x89ABCDEF;
  store.segment = 3;
  store.ocm_addr = 0x1000020;
  store.rows = 2;
  store.row_bytes = 64;
  store.ddr_stride = 128;
  store.ocm_stride = 96;
  const Word word = encode(store);
  // opcode 0x20, tokens 1001, flags 0, layer, offset
  CHECK(word[0] == 0x89ABCDEF'1234'09'20);
  // segment 3 | ocm_addr << 3 | (rows - 1) << 28 | (row_bytes - 1) << 42 | low 2 bits of ddr_stride
  CHECK(word[1] == (3ULL | 0x1000020ULL << 3 | 1ULL << 28 | 63ULL << 42));
  CHECK(word[2] == (128ULL >> 2 | 96ULL << 26));
  CHECK(word[3] == 0);
  CHECK(
      disassemble(store) ==
      "store     l=4660 [pop_prev push_next] offset=2309737967 segment=3 ocm_addr=16777248 rows=2 "
      "row_bytes=64 ddr_stride=128 ocm_stride=96");
}

TEST_CASE("isa: random instructions come back from their words") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  std::map<Opcode, int> seen;
  for (int i = 0; i < 20000; ++i) {
    const Instruction instruction = npu::testing::random_instruction(random);
    INFO(disassemble(instruction));
    const Word word = encode(instruction);
    const Decoded decoded = try_decode(word);
    REQUIRE(decoded.legal);
    REQUIRE(decoded.instruction == instruction);
    REQUIRE(encode(decoded.instruction) == word);
    ++seen[opcode(instruction)];
  }
  CHECK(seen.size() == std::variant_size_v<Instruction>);
}

TEST_CASE("isa: every reserved bit is refused") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 500; ++i) {
    const Instruction instruction = npu::testing::random_instruction(random);
    const unsigned end = std::visit(
        [](const auto& value) { return used_bits<std::remove_cvref_t<decltype(value)>>(); },
        instruction);
    for (unsigned bit = end; bit < word_bits; ++bit) {
      Word word = encode(instruction);
      word[bit / 64] |= std::uint64_t{1} << bit % 64;
      REQUIRE_FALSE(try_decode(word).legal);
    }
  }
}

TEST_CASE("isa: any flipped bit gives another legal instruction or none") {
  std::mt19937_64 random(7);
  for (int i = 0; i < 300; ++i) {
    const Instruction instruction = npu::testing::random_instruction(random);
    for (unsigned bit = 0; bit < word_bits; ++bit) {
      Word word = encode(instruction);
      word[bit / 64] ^= std::uint64_t{1} << bit % 64;
      const Decoded decoded = try_decode(word);
      if (!decoded.legal) continue;
      REQUIRE(encode(decoded.instruction) == word);
      REQUIRE(broken_rule(decoded.instruction).empty());
    }
  }
}

TEST_CASE("isa: opcodes that are none, flags and tokens that an instruction does not have") {
  for (unsigned code = 0; code < 256; ++code) {
    const Decoded decoded = try_decode(Word{code, 0, 0, 0});
    const auto known = static_cast<Opcode>(code);
    const bool exists = known == Opcode::load || known == Opcode::loadp ||
                        (code >= 0x10 && code <= 0x15) || known == Opcode::store ||
                        known == Opcode::cvt || (code >= 0x30 && code <= 0x32);
    if (!exists) CHECK(decoded.reason == "an unknown opcode");
  }
  Halt halt;
  halt.deps.push_next = true;
  expect_error(Errc::bad_attribute, [&] { encode(halt); });
  Load load;
  load.flags = flag_bit(Flag::accumulate);
  expect_error(Errc::bad_attribute, [&] { encode(load); });
}

TEST_CASE("isa: a value that its bits cannot hold is refused by name") {
  Gemm gemm;
  gemm.k = 131073;
  CHECK(expect_error(Errc::out_of_range, [&] { encode(gemm); }).find("k = 131073") !=
        std::string::npos);
  gemm.k = 0;
  expect_error(Errc::out_of_range, [&] { encode(gemm); });
  gemm.k = 131072;
  CHECK(std::get<Gemm>(decode(encode(gemm))).k == 131072);
}

TEST_CASE("isa: the rules of each instruction, at the limit and beyond") {
  const auto holds = [](const Instruction& i) { return broken_rule(i).empty(); };
  Conv conv;
  conv.kernel_h = conv.kernel_w = 11;
  CHECK(holds(conv));
  conv.kernel_w = 12;
  CHECK_FALSE(holds(conv));
  conv.kernel_h = conv.kernel_w = 8;
  conv.in_log2c = 5;
  conv.in_channels = 2048;  // 2048 * 64 = 131072
  CHECK(holds(conv));
  conv.in_channels = 2049;
  CHECK_FALSE(holds(conv));
  conv = {};
  conv.in_log2c = 6;
  CHECK_FALSE(holds(conv));

  Load load;
  load.rows = 2;
  load.row_bytes = 32;
  load.pad_left = 1;
  load.ocm_stride = 33;
  CHECK(holds(load));
  load.ocm_stride = 32;
  CHECK_FALSE(holds(load));
  load = {};
  load.segment = 5;
  CHECK_FALSE(holds(load));

  Elementwise ew;
  ew.lo = 1;
  ew.hi = 1;
  ew.s = 47;
  CHECK(holds(ew));
  ew.s = 48;
  CHECK_FALSE(holds(ew));
  ew.s = 0;
  ew.hi = 0;
  CHECK_FALSE(holds(ew));
  ew = {};
  ew.m1 = -32768;
  CHECK_FALSE(holds(ew));
  ew = {};
  ew.function = 5;
  CHECK_FALSE(holds(ew));

  Pool pool;
  CHECK_FALSE(holds(pool));  // m is 0
  pool.m = 1;
  pool.kernel_h = 15;
  CHECK(holds(pool));
  pool.kernel_h = 16;
  CHECK_FALSE(holds(pool));

  Convert cvt;
  CHECK_FALSE(holds(cvt));  // no scale
  cvt.scale = 0.5F;
  CHECK(holds(cvt));
  cvt.plain_offset = 2;
  CHECK_FALSE(holds(cvt));
  cvt.mode = static_cast<std::uint32_t>(CvtMode::block);
  CHECK_FALSE(holds(cvt));  // a scale where bytes only move
  cvt.scale = 0;
  CHECK(holds(cvt));
  cvt.plain_place = 5;
  CHECK_FALSE(holds(cvt));
  cvt.plain_place = ocm_place;
  CHECK(holds(cvt));
}
