#pragma once

#include "byte_writer.hpp"

#include <tenon/io/metadata.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tenon::testing {

/// Type ids of GGUF tensors that the tests name.
enum GgufType : std::uint32_t {
  gguf_f32 = 0,
  gguf_q8_0 = 8,
  gguf_q4_k = 12,
  gguf_i8 = 24,
  gguf_i64 = 27
};

/// Writes GGUF files that need not be right: every count, offset and type can be anything.
struct GgufMaker {
  struct Tensor {
    std::string name;
    std::vector<std::uint64_t> dims;  // innermost first, as in the file
    std::uint32_t type = gguf_f32;
    std::uint64_t offset = 0;
    std::optional<std::uint32_t> rank = {};  // where it is not dims.size()
  };

  std::string magic = "GGUF";
  std::uint32_t version = 3;
  std::optional<std::uint64_t> tensor_count;
  std::optional<std::uint64_t> key_count;
  std::vector<std::string> keys;  // each a whole pair: see key()
  std::vector<Tensor> tensors;
  std::size_t alignment = 32;
  std::string data;

  /// Adds a pair; `value` begins after the type.
  GgufMaker& key(std::string_view name, io::MetaType type, const ByteWriter& value) {
    return key(name, static_cast<std::uint32_t>(type), value);
  }
  GgufMaker& key(std::string_view name, std::uint32_t type, const ByteWriter& value) {
    keys.push_back(ByteWriter().text(name).u32(type).raw(value.bytes).bytes);
    return *this;
  }
  GgufMaker& key_u32(std::string_view name, std::uint32_t value) {
    return key(name, io::MetaType::u32, ByteWriter().u32(value));
  }
  GgufMaker& key_text(std::string_view name, std::string_view value) {
    return key(name, io::MetaType::string, ByteWriter().text(value));
  }
  /// `elements` as they stand in the file.
  GgufMaker& key_array(std::string_view name, io::MetaType type, std::uint64_t count,
                       const ByteWriter& elements) {
    return key(name, io::MetaType::array,
               ByteWriter().u32(static_cast<std::uint32_t>(type)).u64(count).raw(elements.bytes));
  }
  GgufMaker& tensor(Tensor added) {
    tensors.push_back(std::move(added));
    return *this;
  }

  /// Everything before the padding and the data.
  std::string header() const {
    ByteWriter file;
    file.raw(magic).u32(version);
    file.u64(tensor_count.value_or(tensors.size())).u64(key_count.value_or(keys.size()));
    for (const std::string& pair : keys) file.raw(pair);
    for (const Tensor& tensor : tensors) {
      file.text(tensor.name);
      file.u32(tensor.rank.value_or(static_cast<std::uint32_t>(tensor.dims.size())));
      for (const std::uint64_t size : tensor.dims) file.u64(size);
      file.u32(tensor.type).u64(tensor.offset);
    }
    return file.bytes;
  }

  std::string bytes() const {
    ByteWriter file;
    file.raw(header());
    if (!tensors.empty()) file.align(alignment);
    return file.raw(data).bytes;
  }
};

/// Two tensors with data and a few keys of several types; valid, and ends with its last byte of
/// data.
inline GgufMaker two_tensors() {
  GgufMaker file;
  file.key_text("general.architecture", "llama").key_u32("llama.block_count", 2);
  file.key_array("tokenizer.ggml.tokens", io::MetaType::string, 3,
                 ByteWriter().text("a").text("").text("\xff\xfe"));
  file.key_array("tokenizer.ggml.scores", io::MetaType::f32, 3,
                 ByteWriter().number(0.5f).number(-1.0f).number(2.0f));
  file.tensor({"a.weight", {4, 2}, gguf_f32, 0});
  file.tensor({"b.weight", {32}, gguf_q8_0, 32});
  for (int i = 0; i < 66; ++i) file.data.push_back(static_cast<char>(i));
  return file;
}

}  // namespace tenon::testing
