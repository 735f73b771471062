#include "expect_refused.hpp"
#include "safetensors_maker.hpp"

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <iterator>

#include <catch2/catch.hpp>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tenon::testing {
namespace {

constexpr std::string_view index_name = "model.safetensors.index.json";

std::string shard(std::string_view tensor) {
  return safetensors(
      "{\"__metadata__\":{\"format\":\"pt\"}," + declare(tensor, "U8", "[4]", "[0,4]") + "}", 4);
}

std::string index_of(std::string_view pairs) {
  return R"({"metadata":{"total_size":8},"weight_map":{)" + std::string(pairs) + "}}";
}

/// A folder with shards one.safetensors (tensor a) and two.safetensors (tensor b).
struct TwoShards : TempFolder {
  TwoShards() {
    write("one.safetensors", shard("a"));
    write("two.safetensors", shard("b"));
  }
  std::filesystem::path index(std::string_view pairs) const {
    return write(index_name, index_of(pairs));
  }
};

}  // namespace

TEST_CASE("safetensors: an index opens all shards, and so does the folder") {
  const TwoShards folder;
  folder.index(R"("a":"one.safetensors","b":"two.safetensors")");
  for (const auto& path : {folder.path(), folder / index_name}) {
    const io::File file = io::open(path);
    CHECK(file.format() == io::Format::safetensors_sharded);
    CHECK(file.shards().size() == 2);
    CHECK(file.at("a").data().values<std::uint8_t>()[3] == 3);
    CHECK(file.at("b").file->name() == "two.safetensors");
    CHECK(file.metadata().get<std::string>("format") == "pt");
  }
}

TEST_CASE("S21: shard paths that leave the folder") {
  const TwoShards folder;
  for (const char* shard_path :
       {"../x", "/etc/passwd", "a/../../x", "a/..", "./one.safetensors", ".", "..", "", "a//b",
        "one.safetensors/", "..\\\\x", "C:\\\\x", "a\\u0000b"}) {
    INFO(shard_path);
    expect_refused(Errc::path_escape, folder.index(std::string(R"("a":")") + shard_path + "\""));
  }
}

TEST_CASE("S21: links out of the folder") {
  const TempFolder elsewhere;
  const TwoShards folder;
  const auto target = elsewhere.write("blob", shard("c"));
  std::filesystem::create_symlink(target, folder / "three.safetensors");
  const auto index = folder.index(R"("c":"three.safetensors")");
  expect_refused(Errc::path_escape, index);
  io::OpenOptions options;
  options.follow_links_outside = true;
  CHECK(io::open(index, options).find("c") != nullptr);

  // A folder on the way, and a way out and back in.
  std::filesystem::create_directory_symlink(elsewhere.path(), folder / "parts");
  expect_refused(Errc::path_escape, folder.index(R"("c":"parts/blob")"));
  std::filesystem::create_symlink(".." / folder.path().filename() / "one.safetensors",
                                  folder / "back.safetensors");
  expect_refused(Errc::path_escape, folder.index(R"("a":"back.safetensors")"));
}

TEST_CASE("S21: links that stay in the folder") {
  const TwoShards folder;
  std::filesystem::create_symlink("one.safetensors", folder / "four.safetensors");
  CHECK(io::open(folder.index(R"("a":"four.safetensors")")).find("a") != nullptr);
  std::filesystem::create_symlink("five.safetensors", folder / "five.safetensors");
  expect_refused(Errc::io_error, folder.index(R"("a":"five.safetensors")"));  // a loop
}

TEST_CASE("S21: where the system lacks openat2, no shard may be a link") {
  const TwoShards folder;
  folder.write("parts/three.safetensors", shard("c"));
  std::filesystem::create_symlink("one.safetensors", folder / "link.safetensors");
  std::filesystem::create_directory_symlink("parts", folder / "below");
  const pid_t child = ::fork();  // the filter of system calls is for good
  REQUIRE(child >= 0);
  if (child == 0) {
    sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog filter{static_cast<unsigned short>(std::size(code)), code};
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
      std::_Exit(100);
    }
    const auto outcome = [&](std::string_view pairs) {
      try {
        return static_cast<int>(tensor_count(folder.index(pairs)));
      } catch (const Error& error) {
        return error.code() == Errc::path_escape ? -1 : -2;
      }
    };
    if (outcome(R"("a":"one.safetensors","c":"parts/three.safetensors")") != 2) std::_Exit(1);
    if (outcome(R"("a":"link.safetensors")") != -1) std::_Exit(2);
    if (outcome(R"("c":"below/three.safetensors")") != -1) std::_Exit(3);
    if (outcome(R"("c":"one.safetensors/three.safetensors")") != -2) std::_Exit(4);
    std::_Exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("S21: shards in a folder below") {
  const TempFolder folder;
  folder.write("parts/one.safetensors", shard("a"));
  const auto index = folder.write(index_name, index_of(R"("a":"parts/one.safetensors")"));
  CHECK(io::open(index).find("a") != nullptr);
}

TEST_CASE("S21: missing shards") {
  const TwoShards folder;
  expect_refused(Errc::missing_shard,
                 folder.index(R"("a":"one.safetensors","c":"three.safetensors")"));
}

TEST_CASE("S21: a tensor in two shards, or in none") {
  const TwoShards folder;
  expect_refused(Errc::duplicate_name,
                 folder.index(R"("a":"one.safetensors","a":"two.safetensors")"));
  folder.write("two.safetensors", shard("a"));
  expect_refused(Errc::bad_reference,
                 folder.index(R"("a":"one.safetensors","b":"two.safetensors")"));
  folder.write("two.safetensors", safetensors("{" + declare("a", "U8", "[2]", "[0,2]") + "," +
                                                  declare("b", "U8", "[2]", "[2,4]") + "}",
                                              4));
  expect_refused(Errc::duplicate_name,
                 folder.index(R"("a":"one.safetensors","b":"two.safetensors")"));
}

TEST_CASE("S21: texts that are no index") {
  const TwoShards folder;
  const auto refuse = [&](Errc code, std::string_view text) {
    INFO(text);
    expect_refused(code, folder.write(index_name, text));
  };
  refuse(Errc::syntax, "");
  refuse(Errc::syntax, "{");
  refuse(Errc::bad_key, "[]");
  refuse(Errc::bad_key, "{}");
  refuse(Errc::bad_type, R"({"weight_map":[]})");
  refuse(Errc::bad_type, R"({"weight_map":{"a":1}})");
  refuse(Errc::bad_key, R"({"weight_map":{"":"one.safetensors"}})");
  refuse(Errc::depth_limit, std::string(100'000, '['));
}

TEST_CASE("safetensors: a broken shard is named") {
  const TwoShards folder;
  folder.write("two.safetensors", "no header");
  const std::string words = expect_refused(
      Errc::limit_exceeded, folder.index(R"("a":"one.safetensors","b":"two.safetensors")"));
  CHECK(words.find("two.safetensors") != std::string::npos);
}

}  // namespace tenon::testing
