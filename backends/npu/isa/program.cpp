#include <tenon/error.hpp>
#include <tenon/npu/isa/program.hpp>

#include <algorithm>

#include <fmt/format.h>

namespace tenon::npu::isa {
namespace {

constexpr std::string_view where = "npu program";
constexpr std::size_t crc_covers = ProgramHeader::size_bytes - 4;  // bytes of the header

void check_ends(const Program& program) {
  const std::size_t count = program.instructions.size();
  if (count == 0 || count > max_instructions) {
    throw Error(Errc::bad_argument, std::string(where),
                fmt::format("{} instructions, allowed are 1 to {}", count, max_instructions));
  }
  for (std::size_t i = 0; i < count; ++i) {
    const bool halts = std::holds_alternative<Halt>(program.instructions[i]);
    if (halts != (i + 1 == count)) {
      throw Error(Errc::bad_argument, fmt::format("{}:{}", where, i),
                  halts ? "a halt before the end" : "the last instruction is no halt");
    }
  }
}

}  // namespace

std::vector<std::byte> assemble(const Program& program) {
  check_ends(program);
  std::vector<std::byte> bytes(ProgramHeader::size_bytes +
                               program.instructions.size() * instruction_bytes);
  std::uint32_t layers = 0;
  std::byte* to = bytes.data() + ProgramHeader::size_bytes;
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    Word word;
    try {
      word = encode(instruction);
    } catch (const Error& error) {
      throw Error(error.code(), fmt::format("{}:{}: {}", where, i, error.where()), error.message());
    }
    for (std::size_t byte = 0; byte < instruction_bytes; ++byte) {
      *to++ = static_cast<std::byte>(word[byte / 8] >> (8 * (byte % 8)));
    }
    layers = std::max<std::uint32_t>(layers, common(instruction).layer + 1U);
  }
  ProgramHeader header;
  header.magic = program_magic;
  header.version = version;
  header.count = static_cast<std::uint32_t>(program.instructions.size());
  header.body_crc = crc32c(std::span(bytes).subspan(ProgramHeader::size_bytes));
  header.ocm_bytes = program.ocm_bytes;
  header.acc_bytes = program.acc_bytes;
  header.layers = layers;
  auto head = pack(header);
  header.header_crc = crc32c(std::span(head).first<crc_covers>());
  head = pack(header);
  std::ranges::copy(head, bytes.begin());
  return bytes;
}

Word word_at(std::span<const std::byte> program, std::size_t index) {
  const std::size_t begin = ProgramHeader::size_bytes + index * instruction_bytes;
  if (begin + instruction_bytes > program.size()) {
    throw Error(Errc::truncated, fmt::format("{}:{}", where, index),
                fmt::format("{} bytes end before this instruction", program.size()));
  }
  Word word{};
  for (std::size_t byte = 0; byte < instruction_bytes; ++byte) {
    word[byte / 8] |= std::to_integer<std::uint64_t>(program[begin + byte]) << (8 * (byte % 8));
  }
  return word;
}

Program parse_program(std::span<const std::byte> bytes) {
  const auto refuse = [](Errc code, std::string message) {
    throw Error(code, std::string(where), std::move(message));
  };
  if (bytes.size() < ProgramHeader::size_bytes) refuse(Errc::truncated, "no whole header");
  bool reserved_clear = false;
  const auto header = unpack<ProgramHeader>(bytes.data(), &reserved_clear);
  if (header.magic != program_magic) {
    refuse(Errc::bad_magic, fmt::format("found {:#010x}", header.magic));
  }
  if (header.header_crc != crc32c(bytes.first(crc_covers)))
    refuse(Errc::corrupt, "checksum of the header");
  if (header.version >> 16 != version_major || (header.version & 0xFFFF) > version_minor) {
    refuse(Errc::unsupported_version,
           fmt::format("{}.{}", header.version >> 16, header.version & 0xFFFF));
  }
  if (!reserved_clear) refuse(Errc::corrupt, "reserved bytes of the header are not zero");
  if (header.count == 0 || header.count > max_instructions) {
    refuse(Errc::corrupt, fmt::format("{} instructions", header.count));
  }
  const auto body = bytes.subspan(ProgramHeader::size_bytes);
  if (body.size() < std::size_t{header.count} * instruction_bytes) {
    refuse(Errc::truncated, fmt::format("{} instructions in {} bytes", header.count, body.size()));
  }
  if (header.body_crc != crc32c(body.first(std::size_t{header.count} * instruction_bytes))) {
    refuse(Errc::corrupt, "checksum of the instructions");
  }
  Program program;
  program.ocm_bytes = header.ocm_bytes;
  program.acc_bytes = header.acc_bytes;
  program.instructions.reserve(header.count);
  for (std::size_t i = 0; i < header.count; ++i) {
    const Decoded decoded = try_decode(word_at(bytes, i));
    if (!decoded.legal) {
      throw Error(Errc::corrupt, fmt::format("{}:{}", where, i), std::string(decoded.reason));
    }
    program.instructions.push_back(decoded.instruction);
  }
  return program;
}

}  // namespace tenon::npu::isa
