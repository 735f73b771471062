// Each limit of io::Limits at its value, and one beyond.
#include "expect_refused.hpp"
#include "gguf_maker.hpp"
#include "safetensors_maker.hpp"

#include <tenon/io/npy.hpp>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

io::OpenOptions with(io::Limits limits) { return {.limits = limits}; }

void accept_gguf(std::string_view bytes, const io::Limits& limits) {
  accepted(bytes, "model.gguf", [](const io::File&) {}, with(limits));
}

void accept_safetensors(std::string_view bytes, const io::Limits& limits) {
  accepted(bytes, "model.safetensors", [](const io::File&) {}, with(limits));
}

}  // namespace

TEST_CASE("limits: the defaults are the documented figures") {
  const io::Limits limits;
  CHECK(limits.header_bytes == 100'000'000);
  CHECK(limits.name_bytes == 65'536);
  CHECK(limits.alignment == 1'048'576);
  CHECK(limits.depth == 512);
}

TEST_CASE("limits: header_bytes") {
  io::Limits limits;
  const std::string header = one_tensor("[2]", "[0,8]");
  limits.header_bytes = header.size();
  accept_safetensors(safetensors(header, 8), limits);
  limits.header_bytes -= 1;
  refused_safetensors(Errc::limit_exceeded, safetensors(header, 8), with(limits));

  const GgufMaker gguf = two_tensors();
  limits.header_bytes = gguf.header().size();
  accept_gguf(gguf.bytes(), limits);
  limits.header_bytes -= 1;
  refused_gguf(Errc::limit_exceeded, gguf.bytes(), with(limits));
}

TEST_CASE("limits: header_bytes where the header is longer than the first read") {
  GgufMaker gguf;
  gguf.key_text("long", std::string(3'000'000, 'x'));
  gguf.tensor({"t", {2}, gguf_f32, 0});
  gguf.data.assign(8, 'x');
  io::Limits limits;
  limits.header_bytes = gguf.header().size();
  accept_gguf(gguf.bytes(), limits);
  limits.header_bytes -= 1;
  refused_gguf(Errc::limit_exceeded, gguf.bytes(), with(limits));
}

TEST_CASE("limits: tensors and metadata_keys") {
  const std::string two = "{" + declare("a", "U8", "[1]", "[0,1]") + "," +
                          declare("b", "U8", "[1]", "[1,2]") +
                          R"(,"__metadata__":{"a":"","b":"","c":""}})";
  io::Limits limits;
  limits.tensors = 2;
  limits.metadata_keys = 3;
  accept_safetensors(safetensors(two, 2), limits);
  limits.tensors = 1;
  refused_safetensors(Errc::limit_exceeded, safetensors(two, 2), with(limits));
  refused_gguf(Errc::limit_exceeded, two_tensors().bytes(), with(limits));
  limits.tensors = 2;
  limits.metadata_keys = 2;
  refused_safetensors(Errc::limit_exceeded, safetensors(two, 2), with(limits));

  limits.metadata_keys = two_tensors().keys.size();
  accept_gguf(two_tensors().bytes(), limits);
  limits.metadata_keys -= 1;
  refused_gguf(Errc::limit_exceeded, two_tensors().bytes(), with(limits));
}

TEST_CASE("limits: name_bytes") {
  const io::Limits limits;
  for (const bool fits : {true, false}) {
    const std::string long_name(limits.name_bytes + (fits ? 0 : 1), 'n');
    GgufMaker key;
    key.key_u32(long_name, 1);
    GgufMaker tensor;
    tensor.tensor({long_name, {1}, gguf_f32, 0});
    tensor.data.assign(4, 'x');
    const std::string declared =
        safetensors("{" + declare(long_name, "U8", "[1]", "[0,1]") + "}", 1);
    if (fits) {
      accept_gguf(key.bytes(), limits);
      accept_gguf(tensor.bytes(), limits);
      accept_safetensors(declared, limits);
    } else {
      refused_gguf(Errc::limit_exceeded, key.bytes());
      refused_gguf(Errc::limit_exceeded, tensor.bytes());
      refused_safetensors(Errc::limit_exceeded, declared);
    }
  }
}

TEST_CASE("limits: array_elements") {
  io::Limits limits;
  limits.array_elements = 5;
  GgufMaker numbers;
  numbers.key_array("k", io::MetaType::u8, 5, ByteWriter().zeros(5));
  accept_gguf(numbers.bytes(), limits);
  GgufMaker texts;
  texts.key_array("k", io::MetaType::string, 5, ByteWriter().zeros(5 * 8));
  accept_gguf(texts.bytes(), limits);
  limits.array_elements = 4;
  refused_gguf(Errc::limit_exceeded, numbers.bytes(), with(limits));
  refused_gguf(Errc::limit_exceeded, texts.bytes(), with(limits));
}

TEST_CASE("limits: alignment") {
  GgufMaker maker;
  maker.key_u32("general.alignment", 1u << 20);
  accept_gguf(maker.bytes(), {});
  io::Limits limits;
  limits.alignment = (1u << 20) - 1;
  refused_gguf(Errc::bad_alignment, maker.bytes(), with(limits));
}

TEST_CASE("limits: depth") {
  const auto nested = [](int depth) {  // the header, the description, and lists in a new field
    std::string header = R"({"x":{"new":)" + std::string(static_cast<std::size_t>(depth - 2), '[');
    header += std::string(static_cast<std::size_t>(depth - 2), ']');
    return safetensors(header + R"(,"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1);
  };
  accept_safetensors(nested(512), {});
  refused_safetensors(Errc::depth_limit, nested(513));
  io::Limits limits;
  limits.depth = 3;
  accept_safetensors(nested(3), limits);
  refused_safetensors(Errc::depth_limit, nested(4), with(limits));
}

TEST_CASE("limits: shards") {
  const TempFolder folder;
  folder.write("a.safetensors", safetensors("{" + declare("a", "U8", "[1]", "[0,1]") + "}", 1));
  folder.write("b.safetensors", safetensors("{" + declare("b", "U8", "[1]", "[0,1]") + "}", 1));
  const auto index = folder.write("model.safetensors.index.json",
                                  R"({"weight_map":{"a":"a.safetensors","b":"b.safetensors"}})");
  io::Limits limits;
  limits.shards = 2;
  CHECK(tensor_count(index, with(limits)) == 2);
  limits.shards = 1;
  expect_refused(Errc::limit_exceeded, index, with(limits));
}

TEST_CASE("limits: header_bytes and tensors of an index") {
  const TempFolder folder;
  folder.write("a.safetensors", safetensors("{" + declare("a", "U8", "[1]", "[0,1]") + "}", 1));
  const std::string text = R"({"weight_map":{"a":"a.safetensors"}})" + std::string(100, ' ');
  const auto index = folder.write("model.safetensors.index.json", text);
  io::Limits limits;
  limits.header_bytes = text.size();
  limits.tensors = 1;
  CHECK(tensor_count(index, with(limits)) == 1);
  limits.tensors = 0;
  expect_refused(Errc::limit_exceeded, index, with(limits));
  limits.tensors = 1;
  limits.header_bytes -= 1;
  expect_refused(Errc::limit_exceeded, index, with(limits));
}

}  // namespace tenon::testing
