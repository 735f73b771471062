#include "isa_random.hpp"
#include "sim_random_program.hpp"
#include "sim_rig.hpp"

#include <map>
#include <random>

#include <catch2/catch.hpp>

using namespace tenon;
using namespace tenon::npu;
using namespace tenon::npu::isa;
using tenon::npu::testing::random_bytes;
using tenon::npu::testing::random_instruction;
using tenon::npu::testing::random_program;
using tenon::npu::testing::Rig;

namespace {

/// Runs a program and, unless it finished, brings the device back; returns how it ended.
std::string end_of(Rig& rig, const std::vector<std::byte>& assembled) {
  const auto outcome = rig.run(assembled);
  if (outcome.finished()) return "finished";
  rig.recover();
  return outcome.stuck ? "stuck" : std::string(name(outcome.error));
}

/// With the checksums of its changed bytes, so that the engines see it.
std::vector<std::byte> resealed(std::vector<std::byte> program) {
  auto header = unpack<ProgramHeader>(program.data());
  header.body_crc = crc32c(std::span(program).subspan(ProgramHeader::size_bytes));
  auto bytes = pack(header);
  header.header_crc = crc32c(std::span(bytes).first(ProgramHeader::size_bytes - 4));
  bytes = pack(header);
  std::ranges::copy(bytes, program.begin());
  return program;
}

}  // namespace

TEST_CASE("sim hostile: legal instructions with any fields finish or stop the device") {
  const std::uint64_t seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  for (const char* const strict : {"strict=0", "strict=1"}) {
    Rig rig(std::string("ocm=64KiB&acc=16KiB&") + strict);
    for (std::uint32_t segment = 0; segment < 5; ++segment) {
      rig.fill(static_cast<Segment>(segment), random_bytes(segment, 1 << 20));
    }
    std::map<std::string, int> ends;
    for (int i = 0; i < 400; ++i) {
      Program program;
      Instruction instruction = random_instruction(random);
      if (std::holds_alternative<Halt>(instruction)) continue;
      if (i % 4 != 0) common(instruction).deps = {};
      program.instructions = {instruction, Halt{}};
      INFO(disassemble(program));
      ++ends[end_of(rig, assemble(program))];
    }
    CHECK(ends.size() > 3);
  }
}

TEST_CASE("sim hostile: programs with flipped bits finish or stop the device") {
  const std::uint64_t seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  Rig rig(std::string(npu::testing::random_params) + "&strict=0", 1 << 20);
  std::map<std::string, int> ends;
  for (int i = 0; i < 40; ++i) {
    const auto made = random_program(random(), true);
    rig.fill(Segment::weight, made.weight);
    rig.fill(Segment::input, made.input);
    const auto program = assemble(made.program);
    for (int attempt = 0; attempt < 25; ++attempt) {
      auto changed = program;
      for (std::uint64_t flips = 1 + random() % 3; flips > 0; --flips) {
        const std::size_t bit =
            ProgramHeader::size_bytes * 8 + random() % ((changed.size() - 64) * 8);
        changed[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
      }
      ++ends[end_of(rig, resealed(changed))];
    }
  }
  // Every way to end was seen, so the changes reached everywhere.
  for (const char* const way :
       {"finished", "stuck", "illegal", "seg_limit", "ocm_range", "token"}) {
    INFO(way);
    CHECK(ends[way] > 0);
  }
}

TEST_CASE("sim hostile: a header with any changed word, resealed or not, is refused or harmless") {
  std::mt19937_64 random(3);
  Rig rig(npu::testing::random_params, 1 << 20);
  const auto made = random_program(5, false);
  rig.fill(Segment::weight, made.weight);
  rig.fill(Segment::input, made.input);
  const auto program = assemble(made.program);
  for (std::size_t byte = 0; byte < ProgramHeader::size_bytes; ++byte) {
    auto changed = program;
    changed[byte] ^= static_cast<std::byte>(1U + random() % 255);
    INFO("byte " << byte);
    const std::string plain = end_of(rig, changed);
    CHECK((plain == "crc" || plain == "bad_program"));
    auto header = unpack<ProgramHeader>(changed.data());
    const auto bytes = pack(header);
    header.header_crc = crc32c(std::span(bytes).first(ProgramHeader::size_bytes - 4));
    const auto sealed = pack(header);
    std::ranges::copy(sealed, changed.begin());
    const std::string end = end_of(rig, changed);
    CHECK((end == "crc" || end == "bad_program" || end == "finished"));
  }
}
