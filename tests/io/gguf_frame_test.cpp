#include "expect_refused.hpp"
#include "gguf_maker.hpp"

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

constexpr std::uint64_t impossible_counts[] = {~std::uint64_t{0}, std::uint64_t{1} << 61,
                                               std::uint64_t{1} << 32};

}  // namespace

TEST_CASE("gguf: two tensors and their keys") {
  for (const std::uint32_t version : {2u, 3u}) {
    GgufMaker maker = two_tensors();
    maker.version = version;
    accepted(maker.bytes(), "model.gguf", [&](const io::File& file) {
      CHECK(file.format() == io::Format::gguf);
      REQUIRE(file.tensors().size() == 2);
      const io::TensorEntry& a = file.tensors()[0];
      CHECK(a.name == "a.weight");
      CHECK(a.shape == Shape({2, 4}, f32));  // row-major: the file says 4, 2
      CHECK(a.size_bytes == 32);
      CHECK(file.at("b.weight").shape == Shape({32}, DType::q8_0));
      const HostBuffer b = file.at("b.weight").data();
      CHECK(std::string_view(reinterpret_cast<const char*>(b.bytes()), 34) ==
            std::string_view(maker.data).substr(32));
      CHECK(file.metadata().get<std::string_view>("general.architecture") == "llama");
      CHECK(file.metadata().get<int>("llama.block_count") == 2);
      const auto tokens = file.metadata().strings("tokenizer.ggml.tokens");
      REQUIRE(tokens.size() == 3);
      CHECK(tokens[0] == "a");
      CHECK(tokens[1].empty());
      CHECK(tokens[2] == "\xff\xfe");
      CHECK(file.metadata().get<std::vector<float>>("tokenizer.ggml.scores") ==
            std::vector<float>{0.5f, -1.0f, 2.0f});
    });
  }
}

TEST_CASE("gguf: a file without tensors or keys") {
  accepted(GgufMaker().bytes(), "vocabulary.gguf", [](const io::File& file) {
    CHECK(file.tensors().empty());
    CHECK(file.metadata().size() == 0);
  });
}

TEST_CASE("G01: a file cut at every byte") {
  const std::string whole = two_tensors().bytes();
  const TempFolder folder;
  for (std::size_t size = 0; size < whole.size(); ++size) {
    INFO("cut at " << size);
    const auto path = folder.write("model.gguf", std::string_view(whole).substr(0, size));
    expect_refused(Errc::truncated, path);
  }
  CHECK(tensor_count(folder.write("model.gguf", whole)) == 2);
}

TEST_CASE("G02: magics of other formats") {
  GgufMaker maker = two_tensors();
  for (const char* magic : {"FUGG", "FGUU", "GGUf",
                            "\x7f"
                            "ELF",
                            "PK\x03\x04"}) {
    maker.magic = magic;
    CHECK(contains(refused_gguf(Errc::bad_magic, maker.bytes()), "expected 'GGUF'"));
  }
  for (const auto& [magic, hint] : {std::pair("PK\x03\x04", "those of torch.export"),
                                    {"\x08\x07\x12\x07", "`tenon import` reads ONNX models"}}) {
    maker.magic = magic;
    CHECK(contains(refused_gguf(Errc::bad_magic, maker.bytes()), hint));
  }
  for (const char* legacy : {"ggjt", "tjgg", "ggml", "lmgg", "ggmf", "fmgg", "ggla"}) {
    maker.magic = legacy;
    const std::string words = refused_gguf(Errc::bad_magic, maker.bytes());
    CHECK(contains(words, "older format"));
    CHECK(contains(words, "convert"));
  }
}

TEST_CASE("G03: versions") {
  GgufMaker maker = two_tensors();
  for (const std::uint32_t version : {0u, 1u, 4u, 0xFFFFFFFFu}) {
    maker.version = version;
    const std::string words = refused_gguf(Errc::unsupported_version, maker.bytes());
    CHECK(contains(words, std::to_string(version)));
    CHECK(contains(words, "2 to 3"));
  }
  for (const std::uint32_t swapped : {0x02000000u, 0x03000000u}) {
    maker.version = swapped;
    const std::string words = refused_gguf(Errc::unsupported_version, maker.bytes());
    CHECK(contains(words, "big-endian"));
    CHECK_FALSE(contains(words, std::to_string(swapped)));
  }
}

TEST_CASE("G04: counts that no file of this size can hold") {
  for (const std::uint64_t count : impossible_counts) {
    INFO(count);
    GgufMaker keys;
    keys.key_count = count;
    const std::string many_keys = ByteWriter().raw(keys.bytes()).zeros(40).bytes;
    GgufMaker tensors;
    tensors.tensor_count = count;
    const std::string many_tensors = ByteWriter().raw(tensors.bytes()).zeros(40).bytes;
    for (const std::string& bytes : {many_keys, many_tensors}) {
      refused_gguf(Errc::limit_exceeded, bytes);
      const TempFolder folder;
      const auto path = folder.write("model.gguf", bytes);
      const MemoryWatch watch;
      CHECK_THROWS_AS(io::open(path), Error);
      CHECK(watch.peak_bytes() < (1 << 20));
    }
  }
}

TEST_CASE("G04: counts within the limits that the file is too short for") {
  for (const std::uint64_t count : {std::uint64_t{100}, std::uint64_t{1'000'000}}) {
    GgufMaker keys;
    keys.key_count = count;
    refused_gguf(Errc::truncated, ByteWriter().raw(keys.bytes()).zeros(40).bytes);
    GgufMaker tensors;
    tensors.tensor_count = count;
    refused_gguf(Errc::truncated, ByteWriter().raw(tensors.bytes()).zeros(40).bytes);
  }
}

TEST_CASE("G05: string lengths beyond the file") {
  const std::uint64_t lengths[] = {~std::uint64_t{0}, std::uint64_t{1} << 63, 100};
  for (const std::uint64_t length : lengths) {
    INFO(length);
    const std::string bad_text = ByteWriter().u64(length).raw("abc").bytes;

    GgufMaker value;
    value.key("k", io::MetaType::string, ByteWriter().raw(bad_text));
    refused_gguf(Errc::truncated, value.bytes());

    GgufMaker element;
    element.key_array("k", io::MetaType::string, 1, ByteWriter().raw(bad_text));
    refused_gguf(Errc::truncated, element.bytes());

    GgufMaker key;
    key.keys.push_back(ByteWriter().raw(bad_text).zeros(8).bytes);
    refused_gguf(Errc::truncated, key.bytes());
  }
  GgufMaker one_too_many;
  one_too_many.key("k", io::MetaType::string, ByteWriter().u64(4).raw("abc"));
  CHECK(contains(refused_gguf(Errc::truncated, one_too_many.bytes()), "value of k"));
}

TEST_CASE("G06: array lengths that wrap or exceed the file") {
  const auto refuse = [](Errc code, io::MetaType type, std::uint64_t count) {
    GgufMaker maker;
    maker.key_array("k", type, count, ByteWriter().zeros(64));
    INFO(name(type) << " " << count);
    refused_gguf(code, maker.bytes());
  };
  refuse(Errc::limit_exceeded, io::MetaType::u64, std::uint64_t{1} << 61);
  refuse(Errc::limit_exceeded, io::MetaType::u8, ~std::uint64_t{0});
  refuse(Errc::limit_exceeded, io::MetaType::string, std::uint64_t{1} << 63);
  refuse(Errc::truncated, io::MetaType::u8, 65);
  refuse(Errc::truncated, io::MetaType::f64, 9);
  refuse(Errc::truncated, io::MetaType::string, 1'000'000);
}

}  // namespace tenon::testing
