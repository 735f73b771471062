// What sentence encoders give: see also real_models_test.cpp.
#include "io/temp_folder.hpp"
#include "support/expect_error.hpp"
#include "support/rounds.hpp"

#include <tenon/models/encoder.hpp>

#include <algorithm>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon {
namespace {

/// Two layers of BERT with random weights, and a tokenizer of a few words.
void make_tiny_bert(const testing::TempFolder& folder) {
  for (const char* name : {"config.json", "model.safetensors"}) {
    std::filesystem::copy(std::filesystem::path("python/tests/package/hf/bert") / name,
                          folder / name);
  }
  folder.write("tokenizer.json", R"({
    "version": "1.0",
    "added_tokens": [
      {"id": 0, "content": "[PAD]", "special": true, "single_word": false, "lstrip": false,
       "rstrip": false, "normalized": false},
      {"id": 1, "content": "[UNK]", "special": true, "single_word": false, "lstrip": false,
       "rstrip": false, "normalized": false},
      {"id": 2, "content": "[CLS]", "special": true, "single_word": false, "lstrip": false,
       "rstrip": false, "normalized": false},
      {"id": 3, "content": "[SEP]", "special": true, "single_word": false, "lstrip": false,
       "rstrip": false, "normalized": false}],
    "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                   "strip_accents": null, "lowercase": true},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "post_processor": {
      "type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}},
                 {"Sequence": {"id": "A", "type_id": 0}},
                 {"SpecialToken": {"id": "[SEP]", "type_id": 0}}],
      "pair": [],
      "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [2], "tokens": ["[CLS]"]},
                         "[SEP]": {"id": "[SEP]", "ids": [3], "tokens": ["[SEP]"]}}},
    "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
              "max_input_chars_per_word": 100,
              "vocab": {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "a": 4, "red": 5,
                        "blue": 6, "house": 7, "##s": 8, "car": 9, ".": 10}}})");
}

std::vector<float> embedded(const models::SentenceEncoder& encoder, const std::string& text) {
  const HostBuffer made = encoder.embed(text);
  return {made.values<float>().begin(), made.values<float>().end()};
}

}  // namespace

TEST_CASE("sentence encoder: forks embed on threads of their own") {
  const testing::TempFolder folder;
  make_tiny_bert(folder);
  const auto encoder =
      models::SentenceEncoder::load(folder.path(), {.backend = {.threads = 1, .exact = true}});
  const std::string texts[] = {"a red house.", "blue cars", "a", "red blue car house"};
  std::vector<std::vector<float>> want;
  for (const std::string& text : texts) want.push_back(embedded(encoder, text));
  CHECK(want[0] != want[1]);

  constexpr int count = testing::rounds(200);
  std::vector<int> wrong(3);
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < wrong.size(); ++i) {
      // A fork of a fork is as good, and needs neither.
      threads.emplace_back([&, i, fork = i == 0 ? encoder.fork().fork() : encoder.fork()] {
        for (std::size_t n = 0; n < count; ++n) {
          const std::size_t one = (n + i) % std::size(texts);
          wrong[i] += embedded(fork, texts[one]) != want[one];
        }
      });
    }
    for (int n = 0; n < count; ++n) CHECK(embedded(encoder, texts[0]) == want[0]);
  }
  CHECK(wrong == std::vector<int>(3));
  CHECK(encoder.fork().tokens("blue cars") == encoder.tokens("blue cars"));
}

TEST_CASE("similarity: of rows that there are") {
  const HostBuffer rows = HostBuffer::of<float>(Shape({2, 2}, f32), {1, 0, 0.6f, 0.8f});
  CHECK(models::similarity(rows, 0, 1) == Approx(0.6));
  CHECK(models::similarity(rows, 1, 1) == Approx(1));
  testing::expect_error(Errc::out_of_range, [&] { models::similarity(rows, 0, 2); });
  testing::expect_error(Errc::out_of_range, [&] { models::similarity(rows, -1, 0); });
  testing::expect_error(Errc::bad_shape, [&] { models::similarity(rows.reshape({4}), 0, 1); });
  testing::expect_error(Errc::bad_type, [&] { models::similarity(rows.to(f64), 0, 1); });
}

}  // namespace tenon
