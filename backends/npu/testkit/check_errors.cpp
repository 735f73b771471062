// What stops a device, with which code and where, and what a reset of each level leaves.
#include "bench.hpp"

#include <tenon/error.hpp>

#include <functional>

namespace tenon::testkit {
namespace {

constexpr std::uint32_t segment_number(isa::Segment segment) {
  return static_cast<std::uint32_t>(segment);
}

/// Copies `bytes` bytes of segment input through OCM to segment output.
isa::Program copying_program(std::uint32_t bytes) {
  isa::Load load;
  load.segment = segment_number(isa::Segment::input);
  load.row_bytes = bytes;
  isa::Store store;
  store.segment = segment_number(isa::Segment::output);
  store.offset = 4096;
  store.row_bytes = bytes;
  isa::Program program;
  program.instructions = {load, isa::Barrier(), store, isa::Halt()};
  program.ocm_bytes = 4096;
  return program;
}

void store_u32(std::vector<std::byte>& bytes, std::size_t at, std::uint32_t value) {
  for (std::size_t i = 0; i < 4; ++i) bytes[at + i] = static_cast<std::byte>(value >> (8 * i));
}

/// Checksums of a program that was changed.
void seal(std::vector<std::byte>& program) {
  constexpr std::size_t header = isa::ProgramHeader::size_bytes;
  const auto all = std::span<const std::byte>(program);
  store_u32(program, 12, isa::crc32c(all.subspan(header)));
  store_u32(program, header - 4, isa::crc32c(all.first(header - 4)));
}

struct BadProgram {
  std::string_view what;
  isa::ErrorCode error;
  std::uint32_t pc;  ///< of the instruction; all ones: refused before the first
  std::function<void(std::vector<std::byte>&)> damage;
};

/// A program with one instruction instead of the load.
std::function<void(std::vector<std::byte>&)> with_first(const isa::Instruction& first) {
  return [first](std::vector<std::byte>& bytes) {
    isa::Program program = isa::parse_program(bytes);
    program.instructions.front() = first;
    bytes = isa::assemble(program);
  };
}

std::vector<BadProgram> bad_programs(const isa::Caps& caps) {
  constexpr std::size_t body = isa::ProgramHeader::size_bytes;
  constexpr std::uint32_t refused = 0xFFFFFFFF;
  isa::Load beyond_segment;
  beyond_segment.segment = segment_number(isa::Segment::input);
  beyond_segment.offset = Bench::data_bytes - 32;
  beyond_segment.row_bytes = 64;
  isa::Load beyond_ocm;
  beyond_ocm.segment = segment_number(isa::Segment::input);
  beyond_ocm.ocm_addr = caps.ocm_bytes - 32;
  beyond_ocm.row_bytes = 64;
  isa::LoadP bad_records;  // those of segment input are zeros: m is to be at least 1
  bad_records.segment = segment_number(isa::Segment::input);
  bad_records.count = 4;
  isa::Load unbalanced = std::get<isa::Load>(copying_program(64).instructions.front());
  unbalanced.deps.push_next = true;
  return {
      {"a program with a damaged instruction", isa::ErrorCode::crc, refused,
       [](auto& bytes) { bytes[body + 5] ^= std::byte{1}; }},
      {"a program with a damaged header", isa::ErrorCode::crc, refused,
       [](auto& bytes) { bytes[16] ^= std::byte{1}; }},
      {"a program with another magic number", isa::ErrorCode::bad_program, refused,
       [](auto& bytes) {
         bytes[0] ^= std::byte{1};
         seal(bytes);
       }},
      {"a program of a later major version", isa::ErrorCode::bad_program, refused,
       [](auto& bytes) {
         store_u32(bytes, 4, (isa::version_major + 1U) << 16);
         seal(bytes);
       }},
      {"a program that needs more OCM than there is", isa::ErrorCode::bad_program, refused,
       [&caps](auto& bytes) {
         store_u32(bytes, 16, caps.ocm_bytes + 32);
         seal(bytes);
       }},
      {"an instruction with an unknown opcode", isa::ErrorCode::illegal, 0,
       [](auto& bytes) {
         bytes[body] = std::byte{0x7F};
         seal(bytes);
       }},
      {"an instruction with a reserved bit", isa::ErrorCode::illegal, 0,
       [](auto& bytes) {
         bytes[body + 31] |= std::byte{0x80};
         seal(bytes);
       }},
      {"a load beyond its segment", isa::ErrorCode::seg_limit, 0, with_first(beyond_segment)},
      {"a load beyond OCM", isa::ErrorCode::ocm_range, 0, with_first(beyond_ocm)},
      {"records with m = 0", isa::ErrorCode::bad_param, 0, with_first(bad_records)},
      {"a program with a token left at its end", isa::ErrorCode::token, refused,
       with_first(unbalanced)},
  };
}

void expect_error(Bench& bench, std::string_view what, const Stopped& stopped,
                  isa::ErrorCode expected) {
  bench.findings.expect<std::string_view>(fmt::format("error after {}", what),
                                          isa::name(stopped.error), isa::name(expected));
  const std::uint32_t irq_fault = isa::bits::irq_fault.mask();
  bench.findings.expect(fmt::format("what wait_irq returns after {}", what),
                        bench.control.wait_irq(irq_fault, bench.options.patience), irq_fault);
}

/// After every error a reset of level 0 makes the device run again.
void expect_recovery(Bench& bench, std::string_view what) {
  bench.restart();
  bench.add_run(isa::assemble(copying_program(64)));
  bench.finish(fmt::format("a program after {} and a reset", what), bench.add_fence());
}

void check_programs(Bench& bench) {
  const std::vector<std::byte> zeros(Bench::data_bytes);
  for (const BadProgram& bad : bad_programs(bench.caps)) {
    bench.restart();
    bench.data.write(zeros.data(), 0, zeros.size());
    std::vector<std::byte> bytes = isa::assemble(copying_program(64));
    bad.damage(bytes);
    bench.add_run(bytes);  // the fourth command
    bench.add_fence();
    Stopped stopped;
    if (bench.stop(bad.what, stopped)) {
      expect_error(bench, bad.what, stopped, bad.error);
      bench.findings.expect(fmt::format("cmdq_head after {}", bad.what), stopped.head, 3U);
      if (bad.pc != 0xFFFFFFFF) {
        bench.findings.expect(fmt::format("error_pc after {}", bad.what), stopped.pc, bad.pc);
      }
    }
    expect_recovery(bench, bad.what);
  }
}

void check_commands(Bench& bench) {
  const std::uint64_t at = bench.data.begin().addr();
  struct BadCommand {
    std::string_view what;
    isa::ErrorCode error;
    isa::Descriptor command;
  };
  const auto command = [](std::uint32_t kind, std::uint64_t arg0 = 0, std::uint64_t arg1 = 0,
                          std::uint64_t arg2 = 0, std::uint32_t flags = 0) {
    return isa::Descriptor{.kind = kind, .flags = flags, .arg0 = arg0, .arg1 = arg1, .arg2 = arg2};
  };
  const auto kind = [](isa::Command value) { return static_cast<std::uint32_t>(value); };
  const BadCommand all[] = {
      {"an unknown command", isa::ErrorCode::bad_command, command(77)},
      {"a command with an unknown flag", isa::ErrorCode::bad_command,
       command(kind(isa::Command::nop), 0, 0, 0, 2)},
      {"a copy from address 0x1000, where nothing is", isa::ErrorCode::bus,
       command(kind(isa::Command::copy), at, 0x1000, 64)},
      {"a copy onto itself", isa::ErrorCode::bad_command,
       command(kind(isa::Command::copy), at, at + 32, 64)},
      {"a timestamp at an odd address", isa::ErrorCode::bad_command,
       command(kind(isa::Command::timestamp), at + 1)},
      {"a segment at an odd address", isa::ErrorCode::bad_command,
       command(kind(isa::Command::segment), 0, at + 1, 64)},
      {"a program beyond segment instr", isa::ErrorCode::seg_limit,
       command(kind(isa::Command::run), 64, 1 << 20)},
  };
  for (const BadCommand& bad : all) {
    bench.restart();
    bench.add(static_cast<isa::Command>(bad.command.kind), bad.command.arg0, bad.command.arg1,
              bad.command.arg2, bad.command.flags);
    Stopped stopped;
    if (bench.stop(bad.what, stopped)) {
      expect_error(bench, bad.what, stopped, bad.error);
      bench.findings.expect(fmt::format("error_pc after {}, the descriptor's index,", bad.what),
                            stopped.pc, 0U);
    }
    expect_recovery(bench, bad.what);
  }
}

/// A token that nobody gives: the device says so, and a reset ends it.
void check_deadlock(Bench& bench) {
  isa::Program program = copying_program(64);
  std::get<isa::Load>(program.instructions.front()).deps.pop_prev = true;
  bench.restart();
  bench.add_run(isa::assemble(program));
  bench.add_fence();
  bench.ring();
  const bool stuck =
      bench.await([&] { return isa::bits::stuck.get(bench.get(isa::reg::status)) != 0; });
  if (!stuck) {
    bench.findings.add(
        "a load that waits for a token that nobody gives: status is {:#x}, "
        "expected stuck",
        bench.get(isa::reg::status));
  }
  expect_recovery(bench, "a deadlock");
}

}  // namespace

void check_errors(Bench& bench) {
  bench.findings.begin("npu-device.md, When something goes wrong; npu-isa.md, Programs");
  bench.findings.guarded("damaged programs", [&] { check_programs(bench); });
  bench.findings.guarded("bad commands", [&] { check_commands(bench); });
  bench.findings.guarded("a deadlock", [&] { check_deadlock(bench); });
}

void check_resets(Bench& bench) {
  Findings& findings = bench.findings;
  findings.begin("npu-device.md, When something goes wrong");
  const std::uint32_t mark = 0x600DF00D;
  for (const int level : {0, 1, 2}) {
    bench.restart(2);
    bench.data.write(&mark, 64, sizeof mark);
    if (!bench.finish("a fence before a reset", bench.add_fence())) return;
    const std::uint32_t fence = bench.get(isa::reg::fence);
    bench.device->reset(level);
    std::uint32_t kept = 0;
    bench.data.read(&kept, 64, sizeof kept);
    findings.expect(fmt::format("fence after a reset of level {}", level),
                    bench.get(isa::reg::fence), level == 0 ? fence : 0U);
    findings.expect(fmt::format("a word of etm after a reset of level {}", level), kept,
                    level == 2 ? 0U : mark);
    findings.expect(fmt::format("irq_status after a reset of level {}", level),
                    bench.get(isa::reg::irq_status), 0U);
    findings.expect(fmt::format("cmdq_tail after a reset of level {}", level),
                    bench.get(isa::reg::cmdq_tail), 0U);
  }
  try {
    bench.device->reset(3);
    findings.add("a reset of level 3 is done, expected Errc::bad_argument");
  } catch (const Error& error) {
    if (error.code() != Errc::bad_argument) {
      findings.add("a reset of level 3 is refused as '{}', expected Errc::bad_argument",
                   error.what());
    }
  }
}

}  // namespace tenon::testkit
