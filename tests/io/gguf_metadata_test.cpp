#include "expect_refused.hpp"
#include "gguf_maker.hpp"

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

using io::MetaType;

GgufMaker aligned_to(std::uint32_t alignment) {
  GgufMaker maker = two_tensors();
  maker.key_u32("general.alignment", alignment);
  return maker;
}

}  // namespace

TEST_CASE("gguf: a value of every type") {
  GgufMaker maker;
  maker.key("u8", MetaType::u8, ByteWriter().number(std::uint8_t{200}));
  maker.key("i8", MetaType::i8, ByteWriter().number(std::int8_t{-100}));
  maker.key("u16", MetaType::u16, ByteWriter().number(std::uint16_t{60'000}));
  maker.key("i16", MetaType::i16, ByteWriter().number(std::int16_t{-30'000}));
  maker.key("u32", MetaType::u32, ByteWriter().number(4'000'000'000u));
  maker.key("i32", MetaType::i32, ByteWriter().number(-2'000'000'000));
  maker.key("f32", MetaType::f32, ByteWriter().number(1.5f));
  maker.key("bool", MetaType::boolean, ByteWriter().u8(1));
  maker.key("string", MetaType::string, ByteWriter().text("text"));
  maker.key("u64", MetaType::u64, ByteWriter().number(~std::uint64_t{0}));
  maker.key("i64", MetaType::i64, ByteWriter().number(std::int64_t{-5'000'000'000}));
  maker.key("f64", MetaType::f64, ByteWriter().number(0.1));
  accepted(maker.bytes(), "model.gguf", [](const io::File& file) {
    const io::Metadata& keys = file.metadata();
    CHECK(keys.get<std::uint8_t>("u8") == 200);
    CHECK(keys.get<std::int8_t>("i8") == -100);
    CHECK(keys.get<std::uint16_t>("u16") == 60'000);
    CHECK(keys.get<std::int16_t>("i16") == -30'000);
    CHECK(keys.get<std::uint32_t>("u32") == 4'000'000'000u);
    CHECK(keys.get<std::int32_t>("i32") == -2'000'000'000);
    CHECK(keys.get<float>("f32") == 1.5f);
    CHECK(keys.get<bool>("bool"));
    CHECK(keys.get<std::string>("string") == "text");
    CHECK(keys.get<std::uint64_t>("u64") == ~std::uint64_t{0});
    CHECK(keys.get<std::int64_t>("i64") == -5'000'000'000);
    CHECK(keys.get<double>("f64") == 0.1);
    std::uint32_t order[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12};
    REQUIRE(keys.size() == std::size(order));
    for (std::size_t i = 0; i < keys.size(); ++i) {
      CHECK(type_of(keys.entries()[i].value) == static_cast<MetaType>(order[i]));
    }
  });
}

TEST_CASE("G15: alignments that are none") {
  for (const std::uint32_t alignment : {0u, 3u, 13u, 4u, 48u}) {
    const std::string words = refused_gguf(Errc::bad_alignment, aligned_to(alignment).bytes());
    CHECK(contains(words, std::to_string(alignment)));
  }
  const auto typed = [](MetaType type, const ByteWriter& value) {
    GgufMaker maker = two_tensors();
    return maker.key("general.alignment", type, value).bytes();
  };
  refused_gguf(Errc::bad_type, typed(MetaType::i32, ByteWriter().u32(32)));
  refused_gguf(Errc::bad_type, typed(MetaType::u64, ByteWriter().u64(32)));
  refused_gguf(Errc::bad_type, typed(MetaType::string, ByteWriter().text("32")));
  refused_gguf(Errc::bad_type, typed(MetaType::array, ByteWriter().u32(4).u64(1).u32(32)));
}

TEST_CASE("G16: alignments beyond all bounds, and beyond the file") {
  for (const std::uint32_t alignment : {1u << 31, 0xFFFFFFFFu, 1u << 21}) {
    refused_gguf(Errc::bad_alignment, aligned_to(alignment).bytes());
  }
  refused_gguf(Errc::bad_offset, aligned_to(1u << 20).bytes());  // b.weight stands at 32
}

TEST_CASE("gguf: the alignment of the file places the tensors") {
  for (const std::uint32_t alignment : {8u, 64u, 4096u}) {
    GgufMaker maker;
    maker.alignment = alignment;
    maker.key_u32("general.alignment", alignment);
    maker.tensor({"a", {2}, gguf_f32, 0}).tensor({"b", {1}, gguf_f32, alignment});
    maker.data = ByteWriter().number(1.0f).number(2.0f).zeros(alignment - 8).number(3.0f).bytes;
    accepted(maker.bytes(), "model.gguf", [](const io::File& file) {
      CHECK(file.at("a").data().values<float>()[1] == 2.0f);
      CHECK(file.at("b").data().values<float>()[0] == 3.0f);
    });
  }
}

TEST_CASE("G20: keys and tensors twice, and names that are empty") {
  GgufMaker keys = two_tensors();
  const std::size_t first = 24;  // the first key stands behind magic, version and two counts
  keys.key_text("general.architecture", "again");
  const std::string words = refused_gguf(Errc::duplicate_name, keys.bytes());
  CHECK(contains(words, "'general.architecture'"));
  CHECK(contains(words, "byte " + std::to_string(first)));

  GgufMaker tensors = two_tensors();
  tensors.tensors[1].name = "a.weight";
  CHECK(contains(refused_gguf(Errc::duplicate_name, tensors.bytes()), "'a.weight'"));

  GgufMaker empty_key = two_tensors();
  empty_key.key_u32("", 1);
  refused_gguf(Errc::bad_key, empty_key.bytes());

  GgufMaker empty_tensor = two_tensors();
  empty_tensor.tensors[0].name.clear();
  refused_gguf(Errc::bad_key, empty_tensor.bytes());
}

TEST_CASE("G25: arrays declared as one type and read as another") {
  GgufMaker maker;
  maker.key_array("tokenizer.ggml.scores", MetaType::u8, 4, ByteWriter().zeros(4));
  maker.key_array("tokenizer.ggml.token_type", MetaType::u8, 4, ByteWriter().zeros(4));
  accepted(maker.bytes(), "model.gguf", [](const io::File& file) {
    const io::Metadata& keys = file.metadata();
    const std::string scores = expect_error(
        Errc::bad_type, [&] { keys.get<std::vector<float>>("tokenizer.ggml.scores"); });
    CHECK(contains(scores, "'tokenizer.ggml.scores' is array of 4 u8, expected array of f32"));
    expect_error(Errc::bad_type,
                 [&] { keys.get<std::vector<std::int32_t>>("tokenizer.ggml.token_type"); });
    expect_error(Errc::bad_type, [&] { keys.strings("tokenizer.ggml.scores"); });
    CHECK(keys.get<std::vector<std::uint8_t>>("tokenizer.ggml.scores").size() == 4);
  });
}

TEST_CASE("G31: keys must be UTF-8, values may be any bytes") {
  for (const char* key : {"\xff", "a\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "cut\xe2\x82"}) {
    GgufMaker maker;
    maker.key_u32(key, 1);
    refused_gguf(Errc::bad_encoding, maker.bytes());
    GgufMaker tensors = two_tensors();
    tensors.tensors[0].name = key;
    refused_gguf(Errc::bad_encoding, tensors.bytes());
  }
  GgufMaker nul;
  nul.key_u32(std::string_view("a\0b", 3), 1);
  refused_gguf(Errc::bad_encoding, nul.bytes());

  const std::string any_bytes("\xff\x00\xc0\x80", 4);
  GgufMaker value;
  value.key_text("k", any_bytes).key_u32("schl\xc3\xbcssel", 7);
  accepted(value.bytes(), "model.gguf", [&](const io::File& file) {
    CHECK(file.metadata().get<std::string>("k") == any_bytes);
    CHECK(file.metadata().get<int>("schl\xc3\xbcssel") == 7);
  });
}

TEST_CASE("gguf: types of values that do not exist, and arrays of arrays") {
  for (const std::uint32_t type : {13u, 14u, 0xFFFFFFFFu}) {
    GgufMaker value;
    value.key("k", type, ByteWriter().zeros(16));
    refused_gguf(Errc::bad_type, value.bytes());
    GgufMaker element;
    element.key("k", MetaType::array, ByteWriter().u32(type).u64(0));
    refused_gguf(Errc::bad_type, element.bytes());
  }
  GgufMaker nested;
  nested.key("k", MetaType::array, ByteWriter().u32(9).u64(1).u32(0).u64(0));
  refused_gguf(Errc::unsupported, nested.bytes());
}

TEST_CASE("gguf: a bool is 0 or 1") {
  GgufMaker value;
  value.key("k", MetaType::boolean, ByteWriter().u8(2));
  refused_gguf(Errc::bad_type, value.bytes());
  GgufMaker array;
  array.key_array("k", MetaType::boolean, 3, ByteWriter().u8(0).u8(1).u8(255));
  refused_gguf(Errc::bad_type, array.bytes());
}

}  // namespace tenon::testing
