#include "backend/elf_file.hpp"

#include <cstdint>
#include <cstring>
#include <fstream>

#include <elf.h>
#include <fmt/format.h>
#include <link.h>

namespace tenon {
namespace {

/// Fills `object` from the file at `offset`.
template <class T>
bool read_at(std::ifstream& file, std::uint64_t offset, T& object) {
  file.clear();
  file.seekg(static_cast<std::streamoff>(offset));
  file.read(reinterpret_cast<char*>(&object), sizeof(T));
  return file.good();
}

}  // namespace

std::optional<std::string> cut_short(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return std::nullopt;
  const auto size = static_cast<std::uint64_t>(file.tellg());
  ElfW(Ehdr) header{};
  const auto native = sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32;
  if (!read_at(file, 0, header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != native || header.e_phentsize != sizeof(ElfW(Phdr))) {
    return std::nullopt;
  }
  constexpr std::uint64_t entry = sizeof(ElfW(Phdr));
  if (header.e_phoff > size || header.e_phnum > (size - header.e_phoff) / entry) {
    return fmt::format("the file ends at {}, within its headers", size);
  }
  for (std::uint64_t i = 0; i < header.e_phnum; ++i) {
    ElfW(Phdr) segment{};
    if (!read_at(file, header.e_phoff + i * entry, segment))
      return "the file shrank while it was read";
    if (segment.p_type != PT_LOAD) continue;
    if (segment.p_offset > size || segment.p_filesz > size - segment.p_offset) {
      return fmt::format("the file ends at {}, its segment {} needs {} bytes from {}", size, i,
                         std::uint64_t{segment.p_filesz}, std::uint64_t{segment.p_offset});
    }
  }
  return std::nullopt;
}

}  // namespace tenon
