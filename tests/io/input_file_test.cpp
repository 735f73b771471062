#include "expect_refused.hpp"
#include "gguf_maker.hpp"
#include "safetensors_maker.hpp"

#include <tenon/io/file.hpp>
#include <tenon/log.hpp>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <vector>

#include <catch2/catch.hpp>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tenon::testing {
namespace {

std::vector<std::byte> as_bytes(std::string_view text) {
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

/// Bounds the address space of the process, a little above what it uses now.
class AddressSpaceLimit {
 public:
  explicit AddressSpaceLimit(std::uint64_t spare_bytes) {
    ::getrlimit(RLIMIT_AS, &before_);
    std::uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    rlimit limit = before_;
    limit.rlim_cur = pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)) + spare_bytes;
    ::setrlimit(RLIMIT_AS, &limit);
  }
  ~AddressSpaceLimit() { ::setrlimit(RLIMIT_AS, &before_); }
  AddressSpaceLimit(const AddressSpaceLimit&) = delete;
  AddressSpaceLimit& operator=(const AddressSpaceLimit&) = delete;

 private:
  rlimit before_{};
};

}  // namespace

TEST_CASE("input file: bytes, whichever way they are reached") {
  const TempFolder folder;
  const auto path = folder.write("f", "0123456789");
  for (const io::Access access : every_access) {
    const auto file = io::InputFile::open(path, access);
    CHECK(file->is_mapped() == (access != io::Access::read));
    CHECK(file->size() == 10);
    CHECK(file->name() == "f");
    std::vector<std::byte> to(4);
    file->read(6, to);
    CHECK(to == as_bytes("6789"));
    file->read(10, {});
    expect_error(Errc::truncated, [&] { file->read(7, to); });
    expect_error(Errc::truncated, [&] { file->read(~std::uint64_t{0}, to); });
  }
  const auto empty = io::InputFile::open(folder.write("empty", ""));
  CHECK_FALSE(empty->is_mapped());
  CHECK(empty->mapped().empty());
}

TEST_CASE("input file: what is no regular file") {
  const TempFolder folder;
  expect_error(Errc::not_found, [&] { io::open(folder / "missing.gguf"); });
  expect_error(Errc::not_found, [&] { io::open(folder.write("file", "x") / "below.gguf"); });
  expect_error(Errc::not_found, [&] { io::open(""); });
  expect_error(Errc::not_regular_file, [] { io::open("/dev/null"); });
  const auto pipe = folder / "pipe.gguf";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  expect_error(Errc::not_regular_file, [&] { io::open(pipe); });
  expect_error(Errc::not_regular_file, [&] { io::InputFile::open(folder.path()); });
  std::filesystem::create_symlink("loop", folder / "loop");
  expect_error(Errc::io_error, [&] { io::open(folder / "loop"); });
}

TEST_CASE("A04: a file that cannot be mapped is read") {
  const TempFolder folder;
  constexpr std::uint64_t data_bytes = std::uint64_t{1} << 30;
  const auto path =
      folder.write("large.safetensors",
                   safetensors("{" + declare("a", "U8", "[4]", "[0,4]") + "," +
                                   declare("b", "U8", "[" + std::to_string(data_bytes - 4) + "]",
                                           "[4," + std::to_string(data_bytes) + "]") +
                                   "}",
                               4));
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 4 + data_bytes);  // a hole

  std::vector<std::string> warnings;
  const LogSink before = set_log_sink([&](LogLevel level, std::string_view message) {
    if (level == LogLevel::warning) warnings.emplace_back(message);
  });
  std::optional<io::File> file;
  {
    const AddressSpaceLimit limit(std::uint64_t{256} << 20);
    file = io::open(path);
  }
  set_log_sink(before);
  REQUIRE(file->shards()[0]->is_mapped() == false);
  CHECK(warnings.size() == 1);
  const HostBuffer a = file->at("a").data();
  CHECK(a.ownership() == HostBuffer::Ownership::owned);
  CHECK(a.values<std::uint8_t>()[3] == 3);
}

TEST_CASE("A04: a paging hint that makes no sense does no harm") {
  const TempFolder folder;
  const auto file = io::InputFile::open(folder.write("f", "0123456789"));
  using Advice = io::InputFile::Advice;
  for (const Advice advice : {Advice::will_need, Advice::dont_need, Advice::sequential}) {
    file->advise(0, 10, advice);
    file->advise(3, ~std::uint64_t{0}, advice);
    file->advise(~std::uint64_t{0}, 1, advice);
    file->advise(0, 0, advice);
  }
  CHECK(file->mapped()[9] == std::byte{'9'});
}

TEST_CASE("A06: a file cut short after it was opened") {
  for (const io::Access access : every_access) {
    const TempFolder folder;
    const std::string bytes = two_tensors().bytes();
    const auto path = folder.write("model.gguf", bytes);
    const io::File file = io::open(path, {.access = access});
    CHECK_NOTHROW(file.at("b.weight").data());
    std::filesystem::resize_file(path, bytes.size() - 1);
    expect_error(Errc::io_error, [&] { file.at("b.weight").data(); });
    std::vector<std::byte> to(file.at("b.weight").size_bytes);
    expect_error(Errc::io_error, [&] { file.at("b.weight").read(to); });
    if (access == io::Access::map)
      expect_error(Errc::io_error, [&] { file.at("a.weight").data(); });
    // What the reader keeps of its own accord is still there.
    CHECK(file.tensors().size() == 2);
  }
}

TEST_CASE("A06: pages that another process takes away read as zeros, and the file says so") {
  constexpr std::size_t pages = 64;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const TempFolder folder;
  const auto path = folder.write("f", std::string(pages * page, 'x'));
  // A process of its own: without the guard it ends here.
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    enum Outcome { fine, not_mapped, torn_before, other_bytes, not_lost, no_error, other_lost };
    const auto outcome = [&] {
      const auto file = io::InputFile::open(path, io::Access::guarded);
      if (!file->is_mapped()) return not_mapped;
      const auto other =
          io::InputFile::open(folder.write("other", "0123456789"), io::Access::guarded);
      if (file->mapped()[10 * page] != std::byte{'x'} || file->has_lost_pages()) return torn_before;
      std::filesystem::resize_file(path, 3 * page);
      std::size_t zeros = 0, kept = 0;
      for (std::size_t i = pages; i-- > 0;) {  // from the end: a fault for each page
        zeros += file->mapped()[i * page + 1] == std::byte{0} ? 1 : 0;
        kept += file->mapped()[i * page + 1] == std::byte{'x'} ? 1 : 0;
      }
      if (zeros != pages - 3 || kept != 3) return other_bytes;
      if (!file->has_lost_pages()) return not_lost;
      std::filesystem::resize_file(path, pages * page);  // its old length is no comfort
      try {
        file->check_unchanged();
        return no_error;
      } catch (const Error& error) {
        if (error.code() != Errc::io_error) return no_error;
      }
      return other->has_lost_pages() ? other_lost : fine;
    }();
    std::_Exit(outcome);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("A06: a bus error elsewhere goes on to the handler before ours") {
  const TempFolder folder;
  const auto path = folder.write("f", std::string(8192, 'x'));
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    struct sigaction before{};
    before.sa_handler = [](int) { std::_Exit(7); };
    ::sigaction(SIGBUS, &before, nullptr);
    const auto guarded =
        io::InputFile::open(folder.write("other", "0123456789"), io::Access::guarded);
    const auto file = io::InputFile::open(path, io::Access::map);
    std::filesystem::resize_file(path, 0);
    // Nobody asks whether a file that is not guarded has lost pages: zeros would pass for weights.
    std::_Exit(file->mapped()[0] == std::byte{0} ? 1 : 0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 7);
}

TEST_CASE("input file: nothing is written to standard output or error") {
  // The contract says so for every call; a reader that printed would show here as a changed offset.
  const TempFolder folder;
  const auto captured = folder / "captured";
  std::fflush(nullptr);
  const int saved[] = {::dup(1), ::dup(2)};
  const int sink = ::open(captured.c_str(), O_CREAT | O_RDWR, 0600);
  ::dup2(sink, 1);
  ::dup2(sink, 2);
  CHECK_THROWS_AS(io::open(folder.write("bad.gguf", "GGUF....")), Error);
  CHECK_THROWS_AS(io::open(folder.write("bad.safetensors", safetensors("{"))), Error);
  io::open(folder.write("good.gguf", two_tensors().bytes()));
  std::fflush(nullptr);
  ::dup2(saved[0], 1);
  ::dup2(saved[1], 2);
  for (const int descriptor : {sink, saved[0], saved[1]}) ::close(descriptor);
  CHECK(std::filesystem::file_size(captured) == 0);
}

}  // namespace tenon::testing
