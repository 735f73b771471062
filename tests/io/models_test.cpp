// The real models. What is expected of them was read with the packages `gguf` and `safetensors`.
#include "listing.hpp"
#include "support/real_model.hpp"

#include <tenon/io/file.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

std::string key_line(const io::File& file, std::string_view key) {
  const std::string all = listing(file.metadata());
  std::string hex;
  for (const char c : key) {
    char pair[3];
    std::snprintf(pair, sizeof(pair), "%02x", static_cast<unsigned char>(c));
    hex += pair;
  }
  const std::size_t begin = all.find("key " + hex + " ");
  if (begin == std::string::npos) return "absent";
  const std::size_t value = begin + 5 + hex.size();
  return all.substr(value, all.find('\n', begin) - value);
}

std::map<std::string_view, int> dtype_counts(const io::File& file) {
  std::map<std::string_view, int> counts;
  for (const io::TensorEntry& tensor : file.tensors()) ++counts[name(tensor.shape.dtype())];
  return counts;
}

std::string data_line(const io::File& file, std::string_view tensor) {
  const std::string line = listing(file.at(tensor).data());
  return line.substr(line.find(' ', 7) + 1);  // without "tensor" and the name
}

}  // namespace

TEST_CASE("models: Gemma 3 270M", "[gemma3]") {
  const auto path = real_model(gemma3);
  const io::File file = io::open(path);
  CHECK(file.tensors().size() == 236);
  CHECK(file.metadata().size() == 33);
  CHECK(dtype_counts(file) ==
        std::map<std::string_view, int>{
            {"f32", 109}, {"q5_0", 81}, {"q4_k", 27}, {"q8_0", 10}, {"q6_k", 9}});
  CHECK(file.tensors().front().name == "output_norm.weight");
  CHECK(file.tensors().front().offset_bytes == 6'525'120);
  CHECK(file.tensors().back().offset_bytes == 253'110'464);
  CHECK(data_line(file, "output_norm.weight") == "f32 [640] 11c22e7acf60d9d7\n");
  CHECK(data_line(file, "blk.17.post_ffw_norm.weight") == "f32 [640] c544fd45fddff3e3\n");
  CHECK(key_line(file, "tokenizer.ggml.tokens") == "array-of-string 262144:5617ad09ef9405e0");
  CHECK(key_line(file, "tokenizer.ggml.scores") == "array-of-f32 262144:90b4ec761212b251");
  CHECK(key_line(file, "tokenizer.ggml.token_type") == "array-of-i32 262144:6fdd4729e66e23b2");
  CHECK(file.metadata().get<int>("gemma3.block_count") == 18);
}

TEST_CASE("models: SmolLM2 135M", "[smollm2]") {
  const io::File file = io::open(real_model(smollm2));
  CHECK(file.tensors().size() == 272);
  CHECK(dtype_counts(file) ==
        std::map<std::string_view, int>{{"q4_1", 210}, {"f32", 61}, {"q8_0", 1}});
  CHECK(file.at("token_embd.weight").shape == Shape({49152, 576}, DType::q8_0));
  CHECK(file.at("token_embd.weight").offset_bytes == 1'785'664);
  CHECK(data_line(file, "output_norm.weight") == "f32 [576] ea814bed6299e304\n");
  CHECK(key_line(file, "tokenizer.ggml.tokens") == "array-of-string 49152:258e8b48c4ea861a");
  CHECK(key_line(file, "tokenizer.ggml.token_type") == "array-of-i32 49152:f8a356c4c07e6a27");
  CHECK(key_line(file, "tokenizer.ggml.merges") == "array-of-string 48900:d80db5d5723352fe");
  CHECK(file.metadata().get<std::string>("general.architecture") == "llama");
}

TEST_CASE("models: all-MiniLM-L6-v2, as a folder", "[minilm]") {
  const io::File file = io::open(real_model(minilm));
  CHECK(file.format() == io::Format::safetensors);
  CHECK(file.tensors().size() == 104);
  CHECK(file.sibling("config.json").has_value());
  CHECK(file.metadata().get<std::string>("format") == "pt");
  CHECK(data_line(file, "encoder.layer.3.output.dense.bias") == "f32 [384] eef85d6ecdb7bebc\n");
  CHECK(data_line(file, "encoder.layer.2.output.LayerNorm.bias") == "f32 [384] e6b2cc6e62354f39\n");
}

}  // namespace tenon::testing
