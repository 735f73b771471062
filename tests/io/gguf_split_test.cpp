#include "expect_refused.hpp"
#include "gguf_maker.hpp"

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

ByteWriter u16(std::uint16_t value) { return ByteWriter().number(value); }

GgufMaker shard(std::uint16_t number, std::uint16_t count, std::int32_t tensors = 3) {
  GgufMaker maker;
  if (number == 0) maker.key_text("general.architecture", "llama");
  maker.key("split.no", io::MetaType::u16, u16(number));
  maker.key("split.count", io::MetaType::u16, u16(count));
  maker.key("split.tensors.count", io::MetaType::i32, ByteWriter().number(tensors));
  maker.tensor({"t" + std::to_string(number), {1}, gguf_f32, 0});
  maker.data = ByteWriter().number(static_cast<float>(number)).bytes;
  return maker;
}

std::string shard_name(int number, int count) {
  char text[64];
  std::snprintf(text, sizeof(text), "model-%05d-of-%05d.gguf", number + 1, count);
  return text;
}

}  // namespace

TEST_CASE("gguf: any shard opens the whole split model, and so does the folder") {
  const TempFolder folder;
  for (std::uint16_t i = 0; i < 3; ++i) folder.write(shard_name(i, 3), shard(i, 3).bytes());
  const std::filesystem::path paths[] = {folder.path(), folder / shard_name(0, 3),
                                         folder / shard_name(1, 3), folder / shard_name(2, 3)};
  for (const auto& path : paths) {
    const io::File file = io::open(path);
    CHECK(file.path().filename() == shard_name(0, 3));
    CHECK(file.shards().size() == 3);
    CHECK(file.metadata().get<std::string>("general.architecture") == "llama");
    REQUIRE(file.tensors().size() == 3);
    for (int i = 0; i < 3; ++i) {
      CHECK(file.at("t" + std::to_string(i)).data().values<float>()[0] == static_cast<float>(i));
    }
  }
}

TEST_CASE("G29: a shard is missing") {
  const TempFolder folder;
  const auto first = folder.write(shard_name(0, 3), shard(0, 3).bytes());
  folder.write(shard_name(2, 3), shard(2, 3).bytes());
  const std::string words = expect_refused(Errc::missing_shard, first);
  CHECK(contains(words, "shard 2 of 3"));
  CHECK(contains(words, (folder / shard_name(1, 3)).string()));
}

TEST_CASE("G29: a count of 65535 and one file") {
  const TempFolder folder;
  expect_refused(Errc::missing_shard, folder.write(shard_name(0, 65535), shard(0, 65535).bytes()));
  expect_refused(Errc::bad_split, folder.write("model.gguf", shard(0, 65535).bytes()));
}

TEST_CASE("G29: numbers that repeat, exceed the count or disagree") {
  const TempFolder folder;
  const auto first = folder.write(shard_name(0, 2), shard(0, 2, 2).bytes());
  const auto second = folder / shard_name(1, 2);
  folder.write(shard_name(1, 2), shard(0, 2, 2).bytes());
  expect_refused(Errc::bad_split, first);
  folder.write(shard_name(1, 2), shard(1, 3, 2).bytes());
  expect_refused(Errc::bad_split, first);
  expect_refused(Errc::bad_split, second);
  folder.write(shard_name(1, 2), shard(2, 2, 2).bytes());
  expect_refused(Errc::bad_split, second);
  GgufMaker whole;
  whole.tensor({"t1", {1}, gguf_f32, 0});
  whole.data.assign(4, 'x');
  folder.write(shard_name(1, 2), whole.bytes());
  expect_refused(Errc::bad_split, first);
}

TEST_CASE("G29: shards of different models") {
  const auto keys = [](GgufMaker& maker, std::string_view name, std::uint32_t layers,
                       std::string_view token) {
    maker.key_text("general.name", name).key_u32("llama.block_count", layers);
    maker.key_array("tokenizer.ggml.tokens", io::MetaType::string, 1, ByteWriter().text(token));
  };
  const TempFolder folder;
  GgufMaker first_shard = shard(0, 2, 2);
  keys(first_shard, "one", 4, "a");
  const auto first = folder.write(shard_name(0, 2), first_shard.bytes());
  const auto second = [&](const GgufMaker& maker) {
    return folder.write(shard_name(1, 2), maker.bytes());
  };

  // All keys of the model again, none of them, or another alignment: as writers have it.
  GgufMaker same = shard(1, 2, 2);
  keys(same, "one", 4, "a");
  second(same);
  CHECK(tensor_count(first) == 2);
  GgufMaker aligned = shard(1, 2, 2);
  aligned.key_u32("general.alignment", 64);
  aligned.alignment = 64;
  second(aligned);
  CHECK(tensor_count(first) == 2);

  struct Other {
    const char* name;
    std::uint32_t layers;
    const char* token;
    const char* key;
  };
  for (const Other& other :
       {Other{"two", 4, "a", "general.name"}, Other{"one", 5, "a", "llama.block_count"},
        Other{"one", 4, "b", "tokenizer.ggml.tokens"}}) {
    GgufMaker maker = shard(1, 2, 2);
    keys(maker, other.name, other.layers, other.token);
    const auto path = second(maker);
    CHECK(contains(expect_refused(Errc::bad_split, first), other.key));
    expect_refused(Errc::bad_split, path);
  }
  GgufMaker architecture = shard(1, 2, 2);
  architecture.key_text("general.architecture", "qwen2");
  second(architecture);
  expect_refused(Errc::bad_split, first);
  GgufMaker more = shard(1, 2, 2);
  more.key_text("general.author", "somebody");
  second(more);
  CHECK(contains(expect_refused(Errc::bad_split, first), "general.author"));
  second(shard(1, 2, 3));  // another number of tensors
  CHECK(contains(expect_refused(Errc::bad_split, first), "split.tensors.count"));
}

TEST_CASE("G29: shards that are links out of the folder") {
  const TempFolder elsewhere;
  const TempFolder folder;
  const auto first = folder.write(shard_name(0, 2), shard(0, 2, 2).bytes());
  const auto blob = elsewhere.write("blob", shard(1, 2, 2).bytes());
  std::filesystem::create_symlink(blob, folder / shard_name(1, 2));
  CHECK(contains(expect_refused(Errc::path_escape, first), "shard 2 of 2"));
  io::OpenOptions options;
  options.follow_links_outside = true;
  CHECK(tensor_count(first, options) == 2);
}

TEST_CASE("G29: tensors that repeat across shards or do not add up") {
  const TempFolder folder;
  const auto first = folder.write(shard_name(0, 2), shard(0, 2, 2).bytes());
  GgufMaker second = shard(1, 2, 2);
  folder.write(shard_name(1, 2), second.bytes());
  CHECK(tensor_count(first) == 2);
  second.tensors[0].name = "t0";
  folder.write(shard_name(1, 2), second.bytes());
  expect_refused(Errc::duplicate_name, first);
  folder.write(shard_name(0, 2), shard(0, 2, 7).bytes());
  folder.write(shard_name(1, 2), shard(1, 2, 7).bytes());
  expect_refused(Errc::bad_split, first);
}

TEST_CASE("G29: numbers of another type or sign") {
  GgufMaker negative;
  negative.key("split.count", io::MetaType::i32, ByteWriter().number(-1));
  refused_gguf(Errc::bad_type, negative.bytes());
  GgufMaker text;
  text.key_text("split.count", "3");
  refused_gguf(Errc::bad_type, text.bytes());
  GgufMaker too_many;
  too_many.key_u32("split.count", 65'536);
  refused_gguf(Errc::limit_exceeded, too_many.bytes());
}

}  // namespace tenon::testing
