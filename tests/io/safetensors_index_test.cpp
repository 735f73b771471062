#include "expect_refused.hpp"
#include "safetensors_maker.hpp"

#include <catch2/catch.hpp>

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
  std::filesystem::create_symlink(folder / "one.safetensors", folder / "four.safetensors");
  const auto index = folder.index(R"("c":"three.safetensors")");
  expect_refused(Errc::path_escape, index);
  io::OpenOptions options;
  options.follow_links_outside = true;
  CHECK(io::open(index, options).find("c") != nullptr);
  CHECK(io::open(folder.index(R"("a":"four.safetensors")")).find("a") != nullptr);
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
