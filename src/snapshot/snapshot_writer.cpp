#include "base/atomic_file.hpp"
#include "snapshot/snapshot_format.hpp"

#include <tenon/error.hpp>
#include <tenon/snapshot.hpp>

#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tenon {
namespace {

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

struct Digest {
  XXH3_state_t state;
  Digest() { XXH3_64bits_reset(&state); }
  void update(std::span<const std::byte> bytes) {
    XXH3_64bits_update(&state, bytes.data(), bytes.size());
  }
  std::uint64_t value() const { return XXH3_64bits_digest(&state); }
};

}  // namespace

struct SnapshotWriter::State {
  struct Written {
    std::string name;
    snapshot::Entry entry;
  };

  explicit State(const std::filesystem::path& file_path)
      : path(file_path.string()), file(file_path) {
    begin();
  }
  struct Private {};
  State(const std::filesystem::path& file_path, Private)
      : path(file_path.string()), file(io::AtomicFile::make_private(file_path)) {
    begin();
  }

  void begin() {
    file.write_zeros(sizeof(snapshot::Header));  // written for good at the end
  }

  void align() { file.write_zeros(snapshot::align(file.size()) - file.size()); }

  void end_section() {
    if (!open) return;
    snapshot::Entry& entry = sections.back().entry;
    entry.size_bytes = file.size() - entry.offset;
    entry.xxh3 = digest.value();
    open = false;
  }

  std::string path;
  io::AtomicFile file;
  std::vector<Written> sections;
  std::set<std::string, std::less<>> names;
  Digest digest;
  bool open = false;  // the last section may still grow
  bool committed = false;
};

SnapshotWriter::SnapshotWriter(const std::filesystem::path& path)
    : state_(std::make_unique<State>(path)) {}

SnapshotWriter::SnapshotWriter(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}

SnapshotWriter SnapshotWriter::make_private(const std::filesystem::path& path) {
  return SnapshotWriter(std::make_unique<State>(path, State::Private()));
}

SnapshotWriter::~SnapshotWriter() = default;

void SnapshotWriter::begin(std::string_view name) {
  State& state = *state_;
  if (state.committed) throw Error(Errc::call_order, state.path, "the snapshot is written already");
  if (!snapshot::is_name(name)) {
    throw Error(Errc::bad_key, state.path,
                "a section's name is 1 to 255 printable ASCII characters");
  }
  if (!state.names.emplace(name).second) {
    throw Error(Errc::duplicate_name, state.path, fmt::format("two sections '{}'", name));
  }
  state.end_section();
  state.align();
  state.sections.push_back({std::string(name), {state.file.size(), 0, 0, name.size()}});
  state.digest = Digest();
  state.open = true;
}

void SnapshotWriter::write(std::span<const std::byte> bytes) {
  if (!state_->open) throw Error(Errc::call_order, state_->path, "no section has begun");
  state_->digest.update(bytes);
  state_->file.write(bytes);
}

void SnapshotWriter::add(std::string_view name, std::span<const std::byte> bytes) {
  begin(name);
  write(bytes);
  state_->end_section();
}

void SnapshotWriter::add(std::string_view name, std::string_view text) {
  add(name, std::as_bytes(std::span(text)));
}

void SnapshotWriter::commit() {
  State& state = *state_;
  if (state.committed) throw Error(Errc::call_order, state.path, "the snapshot is written already");
  state.end_section();
  state.align();
  snapshot::Header header{.magic = snapshot::magic,
                          .version = snapshot::version,
                          .byte_order = snapshot::byte_order,
                          .file_bytes = 0,
                          .table_offset = state.file.size(),
                          .table_bytes = 0,
                          .section_count = state.sections.size(),
                          .table_xxh3 = 0,
                          .header_xxh3 = 0};
  Digest table;
  for (const State::Written& section : state.sections) {
    const auto name = std::as_bytes(std::span(section.name));
    for (const auto part : {bytes_of(section.entry), name}) {
      table.update(part);
      state.file.write(part);
    }
  }
  header.file_bytes = state.file.size();
  header.table_bytes = header.file_bytes - header.table_offset;
  header.table_xxh3 = table.value();
  const auto hashed = bytes_of(header).subspan(
      snapshot::hashed_header_begin, snapshot::hashed_header_end - snapshot::hashed_header_begin);
  header.header_xxh3 = XXH3_64bits(hashed.data(), hashed.size());
  state.file.rewrite(0, bytes_of(header));
  state.file.commit();
  state.committed = true;
}

}  // namespace tenon
