#include "io/temp_folder.hpp"
#include "support/expect_error.hpp"

#include <tenon/snapshot.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#define XXH_INLINE_ALL
#include <catch2/catch.hpp>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

namespace tenon {
namespace {

using testing::expect_error;
using testing::read_bytes;
using testing::TempFolder;

std::string random_bytes(std::size_t size, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

/// Three sections, one of them empty, with gaps after two.
std::string write_small(const std::filesystem::path& path) {
  SnapshotWriter writer(path);
  writer.add("program", "func main(x: f32[4]) -> f32[4]");
  writer.add("nothing", "");
  writer.begin("weights");
  const std::string piece = random_bytes(50, 7);
  for (int i = 0; i < 3; ++i) writer.write(std::as_bytes(std::span(piece)));
  writer.commit();
  return read_bytes(path);
}

template <class T>
T get(const std::string& bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

template <class T>
void put(std::string& bytes, std::size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof(T));
}

/// Makes the checksums of table and header right again: what damage by design would do.
void seal(std::string& bytes) {
  const auto table = get<std::uint64_t>(bytes, 24);
  if (table <= bytes.size() && bytes.size() >= 64) {
    put(bytes, 48, XXH3_64bits(bytes.data() + table, bytes.size() - table));
  }
  put(bytes, 56, XXH3_64bits(bytes.data() + 8, 48));
}

/// The code of the error that opening and reading everything ends with; -1: none.
int refusal(const std::filesystem::path& path, const Snapshot::OpenOptions& options = {}) {
  try {
    const Snapshot opened = Snapshot::open(path, options);
    for (const Snapshot::Section& section : opened.sections()) {
      static_cast<void>(opened.bytes(section.name));
    }
  } catch (const Error& error) {
    return static_cast<int>(error.code());
  }
  return -1;
}

}  // namespace

TEST_CASE("Snapshot: sections come back as they were written") {
  const TempFolder folder;
  const auto path = folder / "state.snap";
  write_small(path);
  for (const io::Access access : {io::Access::map, io::Access::read}) {
    const Snapshot opened = Snapshot::open(path, {.access = access});
    REQUIRE(opened.sections().size() == 3);
    CHECK(opened.sections()[0].name == "program");
    CHECK(opened.text("program") == "func main(x: f32[4]) -> f32[4]");
    CHECK(opened.bytes("nothing").empty());
    const std::string piece = random_bytes(50, 7);
    CHECK(opened.text("weights") == piece + piece + piece);
    for (const Snapshot::Section& section : opened.sections()) CHECK(section.offset % 64 == 0);
    REQUIRE(opened.find("weights") != nullptr);
    CHECK(opened.find("weights")->size_bytes == 150);
    CHECK(opened.find("plan") == nullptr);
    expect_error(Errc::bad_reference, [&] { opened.bytes("plan"); });
  }
  CHECK(folder.entries() == 1);  // no temporary file is left
}

TEST_CASE("Snapshot: the bytes live as long as their keeper") {
  const TempFolder folder;
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> keeper;
  {
    write_small(folder / "a");
    const Snapshot opened = Snapshot::open(folder / "a");
    bytes = opened.bytes("weights");
    keeper = opened.keeper();
  }
  std::filesystem::remove(folder / "a");
  CHECK(std::memcmp(bytes.data(), random_bytes(50, 7).data(), 50) == 0);
}

TEST_CASE("Snapshot: no sections at all, and many") {
  const TempFolder folder;
  SnapshotWriter(folder / "none").commit();
  CHECK(Snapshot::open(folder / "none").sections().empty());
  SnapshotWriter many(folder / "many");
  for (int i = 0; i < 2000; ++i) many.add("section " + std::to_string(i), std::to_string(i));
  many.commit();
  const Snapshot opened = Snapshot::open(folder / "many");
  CHECK(opened.sections().size() == 2000);
  CHECK(opened.text("section 1234") == "1234");
}

TEST_CASE("Snapshot: every bit matters") {
  const TempFolder folder;
  const std::string good = write_small(folder / "good");
  CHECK(refusal(folder / "good") == -1);
  for (std::size_t i = 0; i < good.size() * 8; ++i) {
    std::string bad = good;
    bad[i / 8] = static_cast<char>(bad[i / 8] ^ (1 << (i % 8)));
    const auto path = folder.write("bad", bad);
    INFO("bit " << i);
    REQUIRE(refusal(path) == static_cast<int>(Errc::corrupt));
    REQUIRE(refusal(path, {.verify_sections = false}) == static_cast<int>(Errc::corrupt));
  }
}

TEST_CASE("Snapshot: every truncation is found, and everything that follows the end") {
  const TempFolder folder;
  const std::string good = write_small(folder / "good");
  for (const io::Access access : {io::Access::map, io::Access::read}) {
    for (std::size_t size = 0; size < good.size(); ++size) {
      INFO("size " << size);
      const auto path = folder.write("bad", good.substr(0, size));
      REQUIRE(refusal(path, {.access = access}) == static_cast<int>(Errc::truncated));
    }
  }
  for (const std::string& more : {std::string(1, '\0'), std::string("x"), good}) {
    expect_error(Errc::trailing_data, [&] { Snapshot::open(folder.write("bad", good + more)); });
  }
}

TEST_CASE("Snapshot: sections are checked at first use where that is asked for") {
  const TempFolder folder;
  std::string bytes = write_small(folder / "good");
  const auto at = Snapshot::open(folder / "good").find("weights")->offset;
  bytes[at + 149] ^= 1;
  const auto path = folder.write("bad", bytes);
  CHECK(expect_error(Errc::corrupt, [&] { Snapshot::open(path); }).find("'weights'") !=
        std::string::npos);
  const Snapshot opened = Snapshot::open(path, {.verify_sections = false});
  CHECK(opened.text("program").starts_with("func"));
  expect_error(Errc::corrupt, [&] { opened.bytes("weights"); });
  expect_error(Errc::corrupt, [&] { opened.bytes("weights"); });  // again
}

TEST_CASE("Snapshot: other files") {
  const TempFolder folder;
  expect_error(Errc::not_found, [&] { Snapshot::open(folder / "absent"); });
  expect_error(Errc::not_regular_file, [&] { Snapshot::open(folder.path()); });
  expect_error(Errc::bad_magic, [&] { Snapshot::open(folder.write("a", "GGUF")); });
  expect_error(Errc::bad_magic, [&] { Snapshot::open(folder.write("b", std::string(500, 'x'))); });
  expect_error(Errc::truncated, [&] { Snapshot::open(folder.write("c", "")); });
}

TEST_CASE("Snapshot: frames that were damaged by design") {
  const TempFolder folder;
  const std::string good = write_small(folder / "good");
  const auto table = static_cast<std::size_t>(get<std::uint64_t>(good, 24));
  const auto refused = [&](Errc code, auto damage) {
    std::string bytes = good;
    damage(bytes);
    seal(bytes);
    return expect_error(code, [&] { Snapshot::open(folder.write("bad", bytes)); });
  };
  const std::uint64_t huge = ~std::uint64_t{0};
  CHECK(refused(Errc::incompatible, [](std::string& b) {
          put(b, 8, std::uint32_t{2});
        }).find("version 2") != std::string::npos);
  refused(Errc::incompatible, [](std::string& b) { put(b, 12, std::uint32_t{0x04030201}); });
  // The table: elsewhere, of another size, with other numbers of sections.
  for (const std::uint64_t offset :
       {std::uint64_t{0}, std::uint64_t{63}, std::uint64_t{64}, huge}) {
    refused(Errc::bad_offset, [&](std::string& b) { put(b, 24, offset); });
  }
  refused(Errc::limit_exceeded, [&](std::string& b) { put(b, 32, huge); });
  for (const std::uint64_t count : {std::uint64_t{0}, std::uint64_t{2}, std::uint64_t{4}, huge}) {
    refused(Errc::corrupt, [&](std::string& b) { put(b, 40, count); });
  }
  // The first section: backwards, into the header, over the next one, out of the file.
  for (const std::uint64_t offset : {std::uint64_t{0}, std::uint64_t{32}, std::uint64_t{128},
                                     std::uint64_t{table}, huge, huge - 63}) {
    refused(Errc::bad_offset, [&](std::string& b) { put(b, table, offset); });
  }
  for (const std::uint64_t size : {std::uint64_t{129}, huge, huge - 64}) {
    refused(Errc::bad_offset, [&](std::string& b) { put(b, table + 8, size); });
  }
  refused(Errc::corrupt, [&](std::string& b) { put(b, table + 8, std::uint64_t{29}); });
  for (const std::uint64_t size : {std::uint64_t{0}, std::uint64_t{6}, std::uint64_t{400}, huge}) {
    CHECK(refusal(folder.write("bad", [&] {
            std::string bytes = good;
            put(bytes, table + 24, size);
            seal(bytes);
            return bytes;
          }())) != -1);
  }
  refused(Errc::corrupt, [&](std::string& b) { b[table + 32] = '\n'; });
  refused(Errc::duplicate_name, [&](std::string& b) {
    const std::size_t first = b.find("program", table);
    std::memcpy(b.data() + b.find("nothing", table), b.data() + first, 7);
  });
}

TEST_CASE("Snapshot: random damage under right checksums ends in an error or in whole sections") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const TempFolder folder;
  const std::string good = write_small(folder / "good");
  const auto table = static_cast<std::size_t>(get<std::uint64_t>(good, 24));
  constexpr std::uint64_t numbers[] = {
      0, 1, 31, 63, 64, 128, 1 << 20, ~std::uint64_t{0} - 63, ~std::uint64_t{0}};
  int refused = 0, accepted = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string bytes = good;
    for (int n = 1 + static_cast<int>(random() % 3); n > 0; --n) {
      // Numbers of the header and of the table, or any byte of the table.
      switch (random() % 3) {
        case 0:
          put(bytes, 16 + 8 * (random() % 4), numbers[random() % std::size(numbers)]);
          break;
        case 1:
          put(bytes, std::min(table + 8 * (random() % 16), bytes.size() - 8),
              numbers[random() % std::size(numbers)]);
          break;
        default:
          bytes[table + random() % (bytes.size() - table)] = static_cast<char>(random());
          break;
      }
    }
    if (random() % 4 == 0) bytes.resize(random() % (bytes.size() + 100));
    if (bytes.size() >= 64) seal(bytes);
    const auto path = folder.write("bad", bytes);
    const int code = refusal(path);
    REQUIRE(code == refusal(path, {.access = io::Access::read}));
    REQUIRE(code != static_cast<int>(Errc::internal));
    ++(code == -1 ? accepted : refused);
  }
  CHECK(refused > 1000);
  CHECK(accepted > 0);
}

TEST_CASE("SnapshotWriter: what it refuses") {
  const TempFolder folder;
  const auto path = folder / "state";
  {
    SnapshotWriter writer(path);
    expect_error(Errc::call_order, [&] { writer.write({}); });
    writer.add("a", "1");
    expect_error(Errc::call_order, [&] { writer.write({}); });
    expect_error(Errc::duplicate_name, [&] { writer.add("a", "2"); });
    for (const std::string& name : {std::string(), std::string("a\n"), std::string("\xC3\xA9"),
                                    std::string(256, 'x'), std::string("a\0", 2)}) {
      expect_error(Errc::bad_key, [&] { writer.add(name, "2"); });
    }
    writer.add(std::string(255, 'x'), "2");
    writer.commit();
    expect_error(Errc::call_order, [&] { writer.add("b", "3"); });
    expect_error(Errc::call_order, [&] { writer.write({}); });
    expect_error(Errc::call_order, [&] { writer.commit(); });
  }
  CHECK(Snapshot::open(path).sections().size() == 2);
  const std::string before = read_bytes(path);
  {
    SnapshotWriter abandoned(path);
    abandoned.add("a", "other");
  }
  CHECK(read_bytes(path) == before);
  CHECK(folder.entries() == 1);
  expect_error(Errc::io_error, [&] { SnapshotWriter(folder / "absent/state"); });
  expect_error(Errc::not_regular_file, [&] { SnapshotWriter(folder.path()); });
}

TEST_CASE("Snapshot: a disk that fills up at any moment leaves the old file and nothing else") {
  const TempFolder folder;
  const auto path = folder / "state";
  write_small(path);
  const std::string before = read_bytes(path);
  const std::string content(30'000, 'x');
  rlimit old_limit{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &old_limit) == 0);
  const auto old_handler = ::signal(SIGXFSZ, SIG_IGN);
  int failed = 0, written = 0;
  for (rlim_t limit = 0; limit < 330'000; limit += 11'000) {
    rlimit new_limit{limit, old_limit.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &new_limit) == 0);
    std::string what;
    std::optional<SnapshotWriter> writer(path);
    try {
      for (int i = 0; i < 10; ++i) writer->add(std::to_string(i), content);
      writer->commit();
    } catch (const Error& error) {
      what = spelling(error.code());
    }
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &old_limit) == 0);
    INFO(limit);
    if (!what.empty()) {  // there is room again, but not what was to be written
      expect_error(Errc::io_error, [&] { writer->add("late", content); });
      expect_error(Errc::io_error, [&] { writer->commit(); });
    }
    writer.reset();
    REQUIRE((what.empty() || what == "IoError"));
    (what.empty() ? written : failed) += 1;
    if (!what.empty()) REQUIRE(read_bytes(path) == before);
    REQUIRE(folder.entries() == 1);
    REQUIRE(refusal(path) == -1);
    if (what.empty()) break;
  }
  ::signal(SIGXFSZ, old_handler);
  CHECK(failed > 20);
  CHECK(written == 1);
}

TEST_CASE("Snapshot: readers beside writers see one whole version") {
  const TempFolder folder;
  const auto path = folder / "state";
  const auto save = [&](int version) {
    SnapshotWriter writer(path);
    for (int i = 0; i < 20; ++i)
      writer.add(std::to_string(i), std::string(997, char('a' + version)));
    writer.commit();
  };
  save(0);
  std::atomic<bool> done = false;
  std::atomic<int> mixed = 0, failed = 0, opened = 0;
  std::vector<std::thread> threads;
  for (int reader = 0; reader < 3; ++reader) {
    threads.emplace_back([&] {
      while (!done) {
        try {
          const Snapshot snapshot = Snapshot::open(path);
          std::set<char> seen;
          for (const auto& section : snapshot.sections()) {
            for (const char c : snapshot.text(section.name)) seen.insert(c);
          }
          mixed += seen.size() != 1 || snapshot.sections().size() != 20 ? 1 : 0;
          ++opened;
        } catch (const Error&) {
          ++failed;
        }
      }
    });
  }
  std::vector<std::thread> writers;
  for (int writer = 0; writer < 2; ++writer) {
    writers.emplace_back([&, writer] {
      for (int i = 0; i < 40; ++i) save(1 + writer);
    });
  }
  for (auto& writer : writers) writer.join();
  done = true;
  for (auto& reader : threads) reader.join();
  CHECK(mixed == 0);
  CHECK(failed == 0);
  CHECK(folder.entries() == 1);
}

TEST_CASE("Snapshot: a writer killed at any moment leaves the old file or the new one") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const TempFolder folder;
  const auto path = folder / "state";
  const auto save = [&](char content) {
    SnapshotWriter writer(path);
    for (int i = 0; i < 8; ++i) writer.add(std::to_string(i), std::string(60000, content));
    writer.commit();
  };
  save('a');
  for (int round = 0; round < 25; ++round) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      try {
        for (int i = 0;; ++i) save(i % 2 == 0 ? 'b' : 'a');
      } catch (...) {
        ::_exit(1);
      }
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 8000));
    ::kill(child, SIGKILL);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFSIGNALED(status));
    const Snapshot opened = Snapshot::open(path);
    REQUIRE(opened.sections().size() == 8);
    const char content = opened.text("0")[0];
    for (const auto& section : opened.sections()) {
      REQUIRE(opened.text(section.name) == std::string(60000, content));
    }
  }
}

TEST_CASE("Snapshot: one that was moved from says so") {
  const TempFolder folder;
  {
    SnapshotWriter writer(folder / "a.snap");
    writer.add("a", "text");
    writer.commit();
  }
  Snapshot snapshot = Snapshot::open(folder / "a.snap");
  const Snapshot other = std::move(snapshot);
  CHECK(other.text("a") == "text");
  expect_error(Errc::call_order, [&] { snapshot.path(); });
  expect_error(Errc::call_order, [&] { snapshot.sections(); });
  expect_error(Errc::call_order, [&] { snapshot.find("a"); });
  expect_error(Errc::call_order, [&] { snapshot.bytes("a"); });
  expect_error(Errc::call_order, [&] { snapshot.text("a"); });
  expect_error(Errc::call_order, [&] { snapshot.keeper(); });
}

}  // namespace tenon
