#include "base/folder.hpp"
#include "snapshot/snapshot_format.hpp"

#include <tenon/error.hpp>
#include <tenon/memory_errors.hpp>
#include <tenon/snapshot.hpp>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tenon {

using snapshot::Entry;
using snapshot::Header;

struct Snapshot::State {
  std::shared_ptr<const io::InputFile> file;
  std::vector<std::byte> copy;       // where the file is not mapped
  std::span<const std::byte> bytes;  // the whole file
  std::vector<Section> sections;
  std::map<std::string_view, std::size_t> by_name;
  // One per section: whether its checksum was verified. An array, since atomics do not move.
  std::unique_ptr<std::atomic<bool>[]> verified;

  explicit State(std::shared_ptr<const io::InputFile> input) : file(std::move(input)) {}

  [[noreturn]] void fail(Errc code, std::uint64_t offset, std::string message) const {
    throw Error(code, fmt::format("{}:{}", file->name(), offset), std::move(message));
  }

  void read() {
    if (file->is_mapped()) {
      bytes = file->mapped();
      return;
    }
    copy.resize(file->size());
    file->read(0, copy);
    bytes = copy;
  }

  Header read_header() const {
    const auto same_magic = [&](std::size_t count) {
      return count == 0 || std::memcmp(bytes.data(), snapshot::magic.data(), count) == 0;
    };
    if (bytes.size() < sizeof(Header)) {
      if (!same_magic(std::min(bytes.size(), snapshot::magic.size()))) {
        fail(Errc::bad_magic, 0, "this is no snapshot");
      }
      fail(Errc::truncated, bytes.size(),
           fmt::format("the file has {} bytes, a header alone has {}", bytes.size(),
                       sizeof(Header)));
    }
    Header header;
    std::memcpy(&header, bytes.data(), sizeof(Header));
    const bool intact = header.header_xxh3 ==
                        XXH3_64bits(bytes.data() + snapshot::hashed_header_begin,
                                    snapshot::hashed_header_end - snapshot::hashed_header_begin);
    if (!same_magic(snapshot::magic.size())) {
      if (intact) fail(Errc::corrupt, 0, "the magic is damaged, the rest of the header is not");
      fail(Errc::bad_magic, 0, "this is no snapshot");
    }
    if (!intact) fail(Errc::corrupt, 0, "the header's checksum does not match");
    if (header.byte_order != snapshot::byte_order) {
      fail(Errc::incompatible, offsetof(Header, byte_order),
           "written on a machine of another byte order");
    }
    if (header.version != snapshot::version) {
      fail(Errc::incompatible, offsetof(Header, version),
           fmt::format("version {}, this library reads {}", header.version, snapshot::version));
    }
    if (bytes.size() < header.file_bytes) {
      fail(Errc::truncated, bytes.size(),
           fmt::format("the file has {} bytes of {}", bytes.size(), header.file_bytes));
    }
    if (bytes.size() > header.file_bytes) {
      fail(Errc::trailing_data, header.file_bytes,
           fmt::format("{} bytes follow the end", bytes.size() - header.file_bytes));
    }
    if (header.table_bytes > snapshot::max_table_bytes) {
      fail(Errc::limit_exceeded, offsetof(Header, table_bytes),
           fmt::format("a table of {} bytes, at most {}", header.table_bytes,
                       snapshot::max_table_bytes));
    }
    if (header.table_offset < sizeof(Header) || header.table_offset > header.file_bytes ||
        header.table_bytes != header.file_bytes - header.table_offset) {
      fail(Errc::bad_offset, offsetof(Header, table_offset),
           fmt::format("the table does not end the file: {} bytes from {} on, of {}",
                       header.table_bytes, header.table_offset, header.file_bytes));
    }
    return header;
  }

  // Sections must be exactly where the writer puts them: no overlaps, no holes, no cycles.
  void read_table(const Header& header) {
    const auto table = bytes.subspan(header.table_offset);
    if (XXH3_64bits(table.data(), table.size()) != header.table_xxh3) {
      fail(Errc::corrupt, header.table_offset, "the table's checksum does not match");
    }
    std::uint64_t at = 0;
    std::uint64_t end = sizeof(Header);
    const auto take = [&](std::uint64_t count) {
      if (count > table.size() - at) {
        fail(Errc::corrupt, header.table_offset + at, "the table ends inside an entry");
      }
      at += count;
      return table.subspan(at - count, count);
    };
    for (std::uint64_t i = 0; i < header.section_count; ++i) {
      Entry entry;
      std::memcpy(&entry, take(sizeof(Entry)).data(), sizeof(Entry));
      const std::uint64_t where = header.table_offset + at;
      const auto text = take(entry.name_bytes);
      const std::string name(reinterpret_cast<const char*>(text.data()), text.size());
      if (!snapshot::is_name(name)) fail(Errc::corrupt, where, "a section's name is damaged");
      if (entry.offset != snapshot::align(end) || entry.offset > header.table_offset ||
          entry.size_bytes > header.table_offset - entry.offset) {
        fail(
            Errc::bad_offset, where,
            fmt::format("section '{}': {} bytes at {}, expected at {}, before {}", name,
                        entry.size_bytes, entry.offset, snapshot::align(end), header.table_offset));
      }
      check_zeros(end, entry.offset);
      end = entry.offset + entry.size_bytes;
      sections.push_back({name, entry.offset, entry.size_bytes, entry.xxh3});
    }
    if (at != table.size() || header.table_offset != snapshot::align(end)) {
      fail(Errc::corrupt, header.table_offset + at, "the table and its sections do not fit");
    }
    check_zeros(end, header.table_offset);
    for (std::size_t i = 0; i < sections.size(); ++i) {
      if (!by_name.emplace(sections[i].name, i).second) {
        fail(Errc::duplicate_name, header.table_offset,
             fmt::format("two sections '{}'", sections[i].name));
      }
    }
    verified = std::make_unique<std::atomic<bool>[]>(sections.size());
  }

  void check_zeros(std::uint64_t begin, std::uint64_t end) const {
    const auto gap = bytes.subspan(begin, end - begin);
    const auto damaged = std::ranges::find_if(gap, [](std::byte b) { return b != std::byte{0}; });
    if (damaged != gap.end()) {
      fail(Errc::corrupt, begin + static_cast<std::uint64_t>(damaged - gap.begin()),
           "a byte between sections is not zero");
    }
  }

  std::span<const std::byte> section_bytes(std::size_t index) const {
    const Section& section = sections[index];
    if (file->is_mapped()) file->check_unchanged();
    const auto content = bytes.subspan(section.offset, section.size_bytes);
    if (verified[index].load(std::memory_order_acquire)) return content;
    if (XXH3_64bits(content.data(), content.size()) != section.xxh3) {
      fail(Errc::corrupt, section.offset,
           fmt::format("section '{}': the checksum of its {} bytes does not match", section.name,
                       section.size_bytes));
    }
    verified[index].store(true, std::memory_order_release);
    return content;
  }
};

Snapshot::Snapshot(std::shared_ptr<const State> state) noexcept : state_(std::move(state)) {}

Snapshot Snapshot::open(const std::filesystem::path& path, const OpenOptions& options) {
  return with_memory_errors(path.native(), [&] {
    auto state = std::make_shared<State>(
        options.only_private
            ? io::Folder(path.parent_path()).open_private(path.filename().string(), options.access)
            : io::InputFile::open(path, options.access));
    state->read();
    state->read_table(state->read_header());
    if (options.verify_sections) {
      for (std::size_t i = 0; i < state->sections.size(); ++i) {
        static_cast<void>(state->section_bytes(i));
      }
    }
    return Snapshot(std::move(state));
  });
}

const std::filesystem::path& Snapshot::path() const { return state_->file->path(); }
std::span<const Snapshot::Section> Snapshot::sections() const { return state_->sections; }
std::shared_ptr<const void> Snapshot::keeper() const { return state_.shared(); }

const Snapshot::Section* Snapshot::find(std::string_view name) const {
  const auto found = state_->by_name.find(name);
  return found == state_->by_name.end() ? nullptr : &state_->sections[found->second];
}

std::span<const std::byte> Snapshot::bytes(std::string_view name) const {
  const auto found = state_->by_name.find(name);
  if (found == state_->by_name.end()) {
    throw Error(Errc::bad_reference, state_->file->name(),
                fmt::format("no section '{}' in the snapshot", name));
  }
  return state_->section_bytes(found->second);
}

std::string_view Snapshot::text(std::string_view name) const {
  const auto content = bytes(name);
  return {reinterpret_cast<const char*>(content.data()), content.size()};
}

}  // namespace tenon
