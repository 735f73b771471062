#include "isa_random.hpp"
#include "support/expect_error.hpp"

#include <tenon/npu/isa/program.hpp>
#include <tenon/npu/isa/registers.hpp>
#include <tenon/npu/isa/structures.hpp>

#include <random>
#include <set>
#include <string_view>

#include <catch2/catch.hpp>

using namespace tenon;
using namespace tenon::npu;
using namespace tenon::npu::isa;
using tenon::testing::expect_error;

namespace {

Program small_program() {
  Program program;
  program.ocm_bytes = 4096;
  Elementwise ew;
  ew.layer = 4;
  program.instructions = {ew, Halt{}};
  return program;
}

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto all = std::as_bytes(std::span(text));
  return {all.begin(), all.end()};
}

}  // namespace

TEST_CASE("isa structures: CRC-32C has its published check values") {
  CHECK(crc32c(bytes_of("123456789")) == 0xE3069283);
  CHECK(crc32c(std::vector<std::byte>(32)) == 0x8A9136AA);  // RFC 3720, B.4
  CHECK(crc32c(std::vector<std::byte>(32, std::byte{0xFF})) == 0x62A8AB43);
  CHECK(crc32c(bytes_of("456789"), crc32c(bytes_of("123"))) == crc32c(bytes_of("123456789")));
}

TEST_CASE("isa structures: little-endian, without gaps of the compiler") {
  const QuantRecord record{-2, 0x1234, 21, 0};
  const auto bytes = pack(record);
  const int expected[] = {0xFE, 0xFF, 0xFF, 0xFF, 0x34, 0x12, 21, 0};
  for (std::size_t i = 0; i < 8; ++i) CHECK(std::to_integer<int>(bytes[i]) == expected[i]);
  CHECK(unpack<QuantRecord>(bytes.data()) == record);

  auto descriptor = pack(Descriptor{1, 2, 3, 4, 5});
  bool clear = false;
  CHECK(unpack<Descriptor>(descriptor.data(), &clear) == Descriptor{1, 2, 3, 4, 5});
  CHECK(clear);
  descriptor[63] = std::byte{1};
  unpack<Descriptor>(descriptor.data(), &clear);
  CHECK_FALSE(clear);
}

TEST_CASE("isa structures: members and registers do not overlap") {
  std::set<std::uint32_t> used;
  for (const RegisterInfo& info : registers()) {
    INFO(info.name);
    CHECK(info.offset % 4 == 0);
    CHECK(used.insert(info.offset).second);
    CHECK(find_register(info.offset)->name == info.name);
  }
  for (const RegisterInfo& info : counters()) {
    INFO(info.name);
    CHECK(info.offset % 8 == 0);
    CHECK(used.insert(info.offset).second);
    CHECK(used.insert(info.offset + 4).second);
  }
  CHECK(reg::segment(reg::seg0_size_hi, Segment::ftmp) == reg::seg4_size_hi);
  CHECK(find_register(0x060) == nullptr);
}

TEST_CASE("isa program: comes back from its bytes") {
  const Program program = small_program();
  const auto bytes = assemble(program);
  CHECK(bytes.size() == 64 + 2 * 32);
  CHECK(unpack<ProgramHeader>(bytes.data()).layers == 5);
  const Program again = parse_program(bytes);
  CHECK(again.instructions == program.instructions);
  CHECK(again.ocm_bytes == 4096);
}

TEST_CASE("isa program: halt stands at the end and only there") {
  expect_error(Errc::bad_argument, [] { assemble(Program{}); });
  Program program = small_program();
  program.instructions.pop_back();
  expect_error(Errc::bad_argument, [&] { assemble(program); });
  program.instructions = {Halt{}, Halt{}};
  expect_error(Errc::bad_argument, [&] { assemble(program); });
}

TEST_CASE("isa program: every flipped bit and every truncation is found") {
  const auto bytes = assemble(small_program());
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    auto broken = bytes;
    broken[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
    CHECK_THROWS_AS(parse_program(broken), Error);
  }
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    CHECK_THROWS_AS(parse_program(std::span(bytes).first(size)), Error);
  }
}
