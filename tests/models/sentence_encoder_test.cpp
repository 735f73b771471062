// Sentence encoders and rerankers from GGUF files give what llama.cpp and transformers give (recorded by
// python/tests/tiny_encoders_llama_cpp.py and tiny_encoders_transformers.py).
#include "io/temp_folder.hpp"
#include "support/expect_error.hpp"
#include "support/rounds.hpp"
#include "support/shown_code.hpp"

#include <tenon/models/encoder.hpp>
#include <tenon/models/language_model.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

using namespace tenon;
using models::EmbeddingOptions;
using models::Normalization;
using models::Pooling;
using models::SentenceEncoder;
using testing::contains;
using testing::expect_error;
using Json = nlohmann::json;
using Floats = std::vector<float>;
using Strings = std::vector<std::string>;

namespace {

const models::EncoderOptions exactly{.backend = {.threads = 1, .exact = true}};

std::filesystem::path path_of(const std::string& name) {
  return "tests/models/data/encoders/" + name + ".gguf";
}

SentenceEncoder loaded(const std::string& name, const EmbeddingOptions& embedding = {}) {
  return SentenceEncoder::load(path_of(name), exactly, embedding);
}

Json recorded(const char* by = "llama_cpp") {
  std::ifstream file(std::string("tests/models/data/encoders/") + by + ".json");
  return Json::parse(file);
}

Floats values_of(const HostBuffer& made) {
  const auto values = made.values<float>();
  return {values.begin(), values.end()};
}

double length_of(const Floats& x) {
  return std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0));
}

/// The length of the difference, by that of `want`.
double distance(Floats made, const Floats& want) {
  REQUIRE(made.size() == want.size());
  for (std::size_t i = 0; i < made.size(); ++i) made[i] -= want[i];
  return length_of(made) / length_of(want);
}

/// llama.cpp has an approximation of BERT's gelu, in f16.
double tolerance_of(const models::EncoderConfig& config) {
  return config.activation == "gelu" || config.activation == "gelu_tanh" ? 3e-3 : 2e-5;
}

}  // namespace

TEST_CASE("sentence encoder: embeddings and tokens are llama.cpp's") {
  const Json all_recorded = recorded();
  for (const auto& [name, record] : all_recorded.items()) {
    if (!record.contains("embeddings")) continue;
    INFO(name);
    const SentenceEncoder encoder = loaded(name, {.normalization = Normalization::none});
    REQUIRE(models::name(encoder.config().pooling) == record["pooling"].get<std::string>());
    const auto texts = record["texts"].get<Strings>();
    const double tolerance = tolerance_of(encoder.config());
    const bool has_tokens = encoder.config().pooling == Pooling::none;
    Floats all;
    if (!has_tokens) all = values_of(encoder.embed(texts));
    const auto width = static_cast<std::size_t>(encoder.embedding_width());
    for (std::size_t i = 0; i < texts.size(); ++i) {
      INFO(texts[i]);
      CHECK(encoder.tokens(texts[i]) == record["ids"][i].get<std::vector<std::int32_t>>());
      if (has_tokens) {
        const HostBuffer made = encoder.embed_tokens(texts[i]);
        REQUIRE(made.shape()[0] == static_cast<std::int64_t>(record["ids"][i].size()));
        Floats want;
        for (const Json& one : record["embeddings"][i]) {
          const auto row = one.get<Floats>();
          want.insert(want.end(), row.begin(), row.end());
        }
        CHECK(distance(values_of(made), want) < tolerance);
        continue;
      }
      const Floats want = record["embeddings"][i].get<Floats>();
      const Floats one = values_of(encoder.embed(texts[i]));
      CHECK(distance(one, want) < tolerance);
      // Padding and other texts change nothing but the last bits.
      const auto row = all.begin() + static_cast<std::ptrdiff_t>(i * width);
      CHECK(distance(Floats(row, row + static_cast<std::ptrdiff_t>(width)), one) < 2e-6);
    }
  }
}

TEST_CASE("sentence encoder: embeddings and scores are those of transformers in f64") {
  const Json records = recorded();
  const Json exact = recorded("transformers");
  CHECK(exact.size() == 8);
  for (const auto& [name, wanted] : exact.items()) {
    INFO(name);
    if (name == "roberta") continue;  // a folder
    const Json& record = records[name];
    const SentenceEncoder encoder = loaded(name, {.normalization = Normalization::none});
    if (record.contains("scores")) {
      const auto documents = record["documents"].get<Strings>();
      const Floats scores = values_of(encoder.score(record["query"].get<std::string>(), documents));
      CHECK(distance(scores, wanted.get<Floats>()) < 2e-5);
      continue;
    }
    const auto texts = record["texts"].get<Strings>();
    for (std::size_t i = 0; i < texts.size(); ++i) {
      INFO(texts[i]);
      if (record["pooling"] == "none") {
        const Floats first = wanted[i][0].get<Floats>();
        const Floats made = values_of(encoder.embed_tokens(texts[i]));
        CHECK(distance(Floats(made.begin(), made.begin() + 32), first) < 2e-5);
      } else {
        CHECK(distance(values_of(encoder.embed(texts[i])), wanted[i].get<Floats>()) < 2e-5);
      }
    }
  }
}

TEST_CASE("sentence encoder: a folder of RoBERTa, with the pooling that it states") {
  const Json wanted = recorded("transformers")["roberta"];
  const auto folder = path_of("roberta").replace_extension();
  const auto encoder =
      SentenceEncoder::load(folder, exactly, {.normalization = Normalization::none});
  CHECK(encoder.config().pooling == Pooling::cls);
  CHECK(encoder.config().first_position == 2);
  CHECK(encoder.config().max_tokens == 18);
  const auto texts = wanted["texts"].get<Strings>();
  for (std::size_t i = 0; i < texts.size(); ++i) {
    INFO(texts[i]);
    const Floats want = wanted["embeddings"][i].get<Floats>();
    CHECK(distance(values_of(encoder.embed(texts[i])), want) < 2e-5);
  }
}

TEST_CASE("sentence encoder: what the files of sentence-transformers say") {
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / "tenon_sentence_modules";
  fs::remove_all(folder);
  fs::copy(path_of("roberta").replace_extension(), folder, fs::copy_options::recursive);
  fs::rename(folder / "1_Pooling", folder / "pooling");
  const auto write = [&](const char* name, const std::string& text) {
    std::ofstream(folder / name) << text;
  };
  const auto config = [&] { return models::EncoderConfig::from(io::open(folder)); };
  const auto pooling = [&](const std::string& text) {
    write("pooling/config.json", text);
    return config().pooling;
  };
  const auto refused = [&](Errc code, const std::string& text) {
    return expect_error(code, [&] { pooling(text); });
  };
  CHECK(config().pooling == Pooling::mean);  // no modules, no folder of the usual name
  const std::string transformer =
                        R"({"path": "", "type": "sentence_transformers.models.Transformer"},)",
                    normalize =
                        R"({"path": "2", "type": "sentence_transformers.models.Normalize"},)",
                    dense = R"({"path": "3", "type": "sentence_transformers.models.Dense"},)",
                    last =
                        R"({"path": "pooling", "type": "sentence_transformers.models.Pooling"}])";
  write("modules.json", "[" + transformer + normalize + last);
  // A default of sentence-transformers, whose newer files name the mode.
  CHECK(pooling("{}") == Pooling::mean);
  CHECK(pooling(R"({"pooling_mode": "lasttoken", "include_prompt": true})") == Pooling::last);
  CHECK(pooling(R"({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false})") ==
        Pooling::cls);
  CHECK(contains(refused(Errc::unsupported, R"({"pooling_mode_cls_token": true})"),
                 "'cls_token and mean_tokens'"));
  CHECK(contains(refused(Errc::unsupported, R"({"pooling_mode": "max"})"), "'max'"));
  write("pooling/config.json", "{}");
  write("modules.json", "[" + transformer + dense + last);
  CHECK(contains(expect_error(Errc::unsupported, config), "sentence_transformers.models.Dense"));
  write("modules.json", R"([{"path": "../pooling", "type": "a.Pooling"}])");
  expect_error(Errc::bad_reference, config);
  write("modules.json", "[1]");
  expect_error(Errc::bad_type, config);
  write("modules.json", "[" + transformer + last);
  write("sentence_bert_config.json", R"({"max_seq_length": null})");
  CHECK(config().max_tokens == 18);
  write("sentence_bert_config.json", R"({"max_seq_length": 7})");
  CHECK(config().max_tokens == 7);
  fs::remove_all(folder);
}

TEST_CASE("sentence encoder: texts beside longer ones in language models") {
  const Strings texts{"a red house", "in",
                      "the cats sat on a mat with the dogs and the other cats in the garden"};
  testing::EveryThird third;
  for (const char* const name :
       {"bloom", "deepseek2", "gemma3", "gpt-oss", "granitehybrid", "jamba", "lfm2", "llama4",
        "mamba", "mamba2", "qwen35", "rwkv6", "rwkv7"}) {
    if (third.skips()) continue;
    INFO(name);
    const auto path = std::string("tests/models/data/tiny_") + name + ".gguf";
    for (const Pooling pooling : {Pooling::last, Pooling::mean}) {
      const auto encoder = SentenceEncoder::load(path, exactly, {.pooling = pooling});
      const Floats all = values_of(encoder.embed(texts));
      const auto width = encoder.embedding_width();
      for (std::size_t i = 0; i < texts.size(); ++i) {
        const auto row = all.begin() + static_cast<std::ptrdiff_t>(i) * width;
        CHECK(distance(Floats(row, row + width), values_of(encoder.embed(texts[i]))) < 5e-6);
      }
    }
  }
  const auto shared = std::string("tests/models/data/tiny_gemma3n.gguf");
  expect_error(Errc::unsupported,
               [&] { SentenceEncoder::load(shared, exactly, {.pooling = Pooling::last}); });
}

TEST_CASE("sentence encoder: scores of rerankers are llama.cpp's") {
  const Json all_recorded = recorded();
  for (const auto& [name, record] : all_recorded.items()) {
    if (!record.contains("scores")) continue;
    INFO(name);
    const SentenceEncoder encoder = loaded(name);
    REQUIRE(encoder.config().pooling == Pooling::rank);
    const auto query = record["query"].get<std::string>();
    const auto documents = record["documents"].get<Strings>();
    const Floats scores = values_of(encoder.score(query, documents));
    const Floats want = record["scores"].get<Floats>();
    CHECK(distance(scores, want) < tolerance_of(encoder.config()));
    for (std::size_t i = 0; i < documents.size(); ++i) {
      INFO(documents[i]);
      CHECK(encoder.tokens(query, documents[i]) ==
            record["ids"][i].get<std::vector<std::int32_t>>());
      CHECK(scores[i] ==
            Approx(values_of(encoder.score(query, {&documents[i], 1}))[0]).margin(2e-6));
    }
  }
}

TEST_CASE("sentence encoder: what an embedding is divided by") {
  const std::string text = "the cat is on the mat";
  const Floats plain =
      values_of(loaded("nomic-bert", {.normalization = Normalization::none}).embed(text));
  double taxi = 0, most = 0;
  for (const float x : plain) {
    taxi += std::abs(double{x});
    most = std::max(most, std::abs(double{x}));
  }
  const auto check = [&](Normalization normalization, double divisor) {
    const Floats made =
        values_of(loaded("nomic-bert", {.normalization = normalization}).embed(text));
    Floats want = plain;
    for (float& x : want) x = static_cast<float>(x / divisor);
    CHECK(distance(made, want) < 1e-6);
  };
  check(Normalization::euclidean, length_of(plain));
  check(Normalization::taxicab, taxi);
  check(Normalization::max_int16, most / 32760);
}

TEST_CASE("sentence encoder: poolings that are asked for") {
  const std::string text = "the cat is on the mat";
  const auto of = [&](Pooling pooling) {
    return loaded("bert", {.pooling = pooling, .normalization = Normalization::none});
  };
  const HostBuffer each = of(Pooling::none).embed_tokens(text);
  const Floats rows = values_of(each);
  const std::ptrdiff_t width = 32;
  const auto count = each.shape()[0];
  const auto row = [&](std::int64_t at) {
    return Floats(rows.begin() + at * width, rows.begin() + (at + 1) * width);
  };
  Floats mean(32);
  for (std::int64_t at = 0; at < count; ++at) {
    for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += row(at)[i] / static_cast<float>(count);
  }
  // Beside a longer text, so that there is padding.
  const Strings texts{text, "a red house in the garden, behind the other houses and the old owl"};
  const auto first_of = [&](Pooling pooling) {
    const Floats both = values_of(of(pooling).embed(texts));
    return Floats(both.begin(), both.begin() + width);
  };
  CHECK(distance(first_of(Pooling::mean), mean) < 1e-5);
  CHECK(distance(first_of(Pooling::cls), row(0)) < 1e-5);
  CHECK(distance(first_of(Pooling::last), row(count - 1)) < 1e-5);
  // A decoder's file is one of its embeddings where a pooling is asked for.
  const auto decoder = SentenceEncoder::load("tests/models/data/tiny_qwen3.gguf", exactly,
                                             {.pooling = Pooling::last});
  CHECK(length_of(values_of(decoder.embed("abc"))) == Approx(1));
  CHECK(models::find_pooling("last") == Pooling::last);
  CHECK_FALSE(models::find_pooling("median"));
}

TEST_CASE("sentence encoder: long texts lose their end, but for the token that ends one") {
  const auto encoder = loaded("bert");
  std::string text;
  for (int i = 0; i < 400; ++i) text += "a ";
  const auto ids = encoder.tokens(text);
  CHECK(std::ssize(ids) == encoder.config().max_tokens);
  CHECK(ids.back() == encoder.tokenizer().sep());
  CHECK(length_of(values_of(encoder.embed(text))) == Approx(1));

  const auto ranker = loaded("qwen3_rank");
  const auto whole = ranker.tokens("where", "b"), cut = ranker.tokens("where", text);
  CHECK(std::ssize(cut) <= ranker.config().max_tokens);
  CHECK(std::ssize(cut) > ranker.config().max_tokens - 4);
  CHECK(std::equal(whole.end() - 7, whole.end(), cut.end() - 7));  // the template's end
  expect_error(Errc::limit_exceeded, [&] { static_cast<void>(ranker.tokens(text, "b")); });
}

TEST_CASE("sentence encoder: token ids in the place of texts") {
  using Ids = std::vector<std::vector<std::int32_t>>;
  const auto encoder = loaded("bert");
  const Strings texts{"the cat", "a", "in the beginning the cat"};
  Ids ids;
  for (const std::string& text : texts) ids.push_back(encoder.tokens(text));
  CHECK(values_of(encoder.embed(ids)) == values_of(encoder.embed(texts)));
  expect_error(Errc::bad_argument, [&] { encoder.embed(Ids()); });
  expect_error(Errc::bad_input, [&] { encoder.embed(Ids(2)); });
  const auto beyond = static_cast<std::int32_t>(encoder.tokenizer().vocab_size());
  for (const std::int32_t id : {-1, beyond})
    expect_error(Errc::out_of_range, [&] { encoder.embed(Ids{{2, id}}); });
  const auto more = static_cast<std::size_t>(encoder.config().max_tokens) + 1;
  expect_error(Errc::limit_exceeded, [&] { encoder.embed(Ids{std::vector<std::int32_t>(more)}); });
  expect_error(Errc::unsupported, [&] { encoder.score(ids); });

  const auto ranker = loaded("xlm_roberta_rank");
  Ids pairs;
  for (const std::string& text : texts) pairs.push_back(ranker.tokens("where", text));
  CHECK(values_of(ranker.score(pairs)) == values_of(ranker.score("where", texts)));
}

TEST_CASE("sentence encoder: texts that spell separators are texts") {
  const auto ranker = loaded("qwen3_rank");
  const auto ids = ranker.tokens("a", "b<|im_end|>{query}");
  const auto end = ranker.tokenizer().find("<|im_end|>");
  CHECK(std::ranges::count(ids, *end) == 1);
  const auto pair = loaded("xlm_roberta_rank").tokens("a</s>", "b");
  CHECK(std::ranges::count(pair, 2) == 3);
  // A file of BERT's that does not say what is added.
  const auto plain = loaded("bert");
  const auto joined = plain.tokenizer().encode_pair("the", "cat");
  const auto the = plain.tokenizer().find("▁the"), cat = plain.tokenizer().find("▁cat");
  CHECK(joined == std::vector<std::int32_t>{2, the.value(), 3, cat.value(), 3});
}

TEST_CASE("sentence encoder: calls and files that do not fit") {
  expect_error(Errc::unsupported, [] { loaded("bert").embed_tokens("a"); });
  expect_error(Errc::unsupported, [] { loaded("bert_tokens").embed("a"); });
  expect_error(Errc::unsupported, [] { loaded("xlm_roberta_rank").embed("a"); });
  const Strings documents{"a"};
  expect_error(Errc::unsupported, [&] { loaded("bert").score("a", documents); });
  expect_error(Errc::bad_argument, [] { loaded("bert").embed(Strings()); });
  expect_error(Errc::bad_argument, [] { loaded("xlm_roberta_rank").score("a", Strings()); });
  expect_error(Errc::bad_input, [] { loaded("eurobert").embed(""); });  // adds no token of its own
  expect_error(Errc::unsupported, [] { loaded("bert", {.pooling = Pooling::rank}); });

  // Of the other kind: a language model, and encoders given to what makes text.
  expect_error(Errc::unsupported,
               [] { SentenceEncoder::load("tests/models/data/tiny_llama.gguf"); });
  for (const char* name : {"bert", "gemma-embedding", "modern-bert", "qwen2_mutual"}) {
    INFO(name);
    CHECK(models::is_encoder(io::open(path_of(name))));
    expect_error(Errc::unsupported, [&] { models::LanguageModel::load(path_of(name)); });
  }
  CHECK_FALSE(models::is_encoder(io::open(path_of("qwen3_embedding"))));
}

TEST_CASE("sentence encoder: weights of a GGUF file narrowed while loading") {
  const std::string text = "the cat is on the mat";
  const auto plain = loaded("eurobert");
  const auto narrow = SentenceEncoder::load(
      path_of("eurobert"), {.backend = {.threads = 1, .exact = true}, .weights = DType::q8_0});
  const double apart = distance(values_of(narrow.embed(text)), values_of(plain.embed(text)));
  CHECK(apart > 1e-6);
  CHECK(apart < 0.05);
  const auto forked = plain.fork();
  CHECK(values_of(forked.embed(text)) == values_of(plain.embed(text)));
}

TEST_CASE("embeddings.md: the code that it shows") {
  testing::check_shown_code("docs/embeddings.md", "tests/models/sentence_encoder_test.cpp", 1);
  const testing::TempFolder folder;
  const auto copy = [&](const char* from, const char* to) {
    std::filesystem::copy_file(path_of(from), folder / to);
  };
  copy("gemma-embedding", "embeddinggemma-300m.gguf");
  copy("qwen3_rank", "Qwen3-Reranker-0.6B.gguf");
  const Strings documents{"On the mat.", "Stocks fell on Monday.", "It sits."};

  const auto encoder = models::SentenceEncoder::load(folder / "embeddinggemma-300m.gguf");
  const HostBuffer rows = encoder.embed({"A cat sits on the mat.", "A kitten rests on a rug."});
  const auto reranker = models::SentenceEncoder::load(folder / "Qwen3-Reranker-0.6B.gguf");
  const HostBuffer scores =
      reranker.score("Where does the cat sit?", documents);  // f32 [documents]

  CHECK(rows.shape()[0] == 2);
  CHECK(scores.shape() == Shape({3}, f32));
}
