// How a model's files say that its tokens should be drawn.
#include "io/gguf_maker.hpp"
#include "io/temp_folder.hpp"
#include "support/expect_error.hpp"
#include "support/shown_code.hpp"

#include <tenon/error.hpp>
#include <tenon/io/file.hpp>
#include <tenon/models/language_model.hpp>
#include <tenon/models/sampling.hpp>

#include <bit>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include <catch2/catch.hpp>

using namespace tenon;
using namespace tenon::testing;

namespace {

GgufMaker& number(GgufMaker& maker, std::string_view key, float value) {
  return maker.key(key, io::MetaType::f32, ByteWriter().u32(std::bit_cast<std::uint32_t>(value)));
}

models::SamplingDefaults defaults(const GgufMaker& maker, const std::string& json = "") {
  const TempFolder folder;
  const auto path = folder.write("model.gguf", maker.bytes());
  if (!json.empty()) folder.write("generation_config.json", json);
  return models::sampling_defaults(io::open(path));
}

}  // namespace

TEST_CASE("sampling: a model without advice gets ours") {
  const auto got = defaults({});
  CHECK(got.source == "tenon");
  CHECK(got.sampler.temperature == 0.7);
  CHECK(got.sampler.top_p == 0.95);
  CHECK(got.sampler.repetition_penalty == 1.1);
}

TEST_CASE("sampling: the keys of a GGUF file come first") {
  GgufMaker maker;
  number(maker, "general.sampling.temp", 0.5f);
  number(maker, "general.sampling.top_p", 0.75f);
  number(maker, "general.sampling.penalty_repeat", 1.25f);
  maker.key("general.sampling.top_k", io::MetaType::i32, ByteWriter().u32(20));
  maker.key("general.sampling.penalty_last_n", io::MetaType::i32, ByteWriter().u32(0xFFFFFFFF));
  const auto got = defaults(maker, R"({"temperature": 0.9})");
  CHECK(got.source == "general.sampling");
  CHECK(got.sampler.temperature == 0.5);
  CHECK(got.sampler.top_p == 0.75);
  CHECK(got.sampler.top_k == 20);
  CHECK(got.sampler.min_p == 0);
  CHECK(got.sampler.repetition_penalty == 1.25);
  CHECK(got.sampler.repetition_window > 1 << 20);  // -1: all
  CHECK(got.sampler.xtc_probability == 0);
  CHECK(got.sampler.mirostat == 0);
}

TEST_CASE("sampling: XTC and Mirostat in a GGUF file") {
  GgufMaker maker;
  number(maker, "general.sampling.xtc_probability", 0.5f);
  number(maker, "general.sampling.xtc_threshold", 0.25f);
  maker.key("general.sampling.mirostat", io::MetaType::i32, ByteWriter().u32(2));
  number(maker, "general.sampling.mirostat_tau", 4);
  number(maker, "general.sampling.mirostat_eta", 0.25f);
  const auto got = defaults(maker);
  CHECK(got.source == "general.sampling");
  CHECK(got.sampler == nn::SamplerOptions{.temperature = 1,
                                          .xtc_probability = 0.5,
                                          .xtc_threshold = 0.25,
                                          .mirostat = 2,
                                          .mirostat_tau = 4,
                                          .mirostat_eta = 0.25});
  GgufMaker third;
  third.key("general.sampling.mirostat", io::MetaType::i32, ByteWriter().u32(3));
  expect_error(Errc::bad_hyperparameter, [&] { defaults(third); });
}

TEST_CASE("sampling: generation_config.json beside the file comes next") {
  const auto got = defaults({}, R"({"do_sample": true, "temperature": 0.6, "top_k": 20,
                                    "top_p": 0.8, "repetition_penalty": 1.05, "eos_token_id": 7})");
  CHECK(got.source == "generation_config.json");
  CHECK(got.sampler.temperature == 0.6);
  CHECK(got.sampler.top_k == 20);
  CHECK(got.sampler.top_p == 0.8);
  CHECK(got.sampler.repetition_penalty == 1.05);
  CHECK(defaults({}, R"({"do_sample": false, "temperature": 0.6})").sampler.temperature == 0);
  CHECK(defaults({}, R"({"eos_token_id": 7})").source == "tenon");
  CHECK(defaults({}, R"({"typical_p": 0.8})").sampler.typical_p == 0.8);
  expect_error(Errc::bad_hyperparameter, [] { defaults({}, R"({"typical_p": 0})"); });
}

TEST_CASE("sampling: breakers of DRY are the tokens that have a text in them, or its beginning") {
  const auto model = models::LanguageModel::load("tests/models/data/tiny_llama.gguf",
                                                 {.context = 16, .lazy = true});
  const text::Tokenizer& tokenizer = model.tokenizer();
  const auto spelled = [&](std::initializer_list<std::string_view> texts) {
    std::vector<std::string> result;
    for (const auto& breaker : models::dry_breakers(tokenizer, {texts.begin(), texts.end()})) {
      std::string one;
      for (const std::int32_t token : breaker) one += "[" + tokenizer.piece(token) + "]";
      result.push_back(one);
    }
    return result;
  };
  using Spelled = std::vector<std::string>;
  CHECK(spelled({":"}) == Spelled{"[:]"});
  CHECK(spelled({"an"}) == Spelled{"[a][n]", "[an]", "[ a][n]", "[and]"});
  CHECK(spelled({"hei", ":"}) ==
        Spelled{"[:]", "[h][e][i]", "[th][e][i]", "[the][i]", "[ the][i]"});
  CHECK(spelled({}).empty());
  CHECK(models::dry_breakers(tokenizer).size() == 4);
  expect_error(Errc::bad_argument, [&] { spelled({""}); });
}

TEST_CASE("sampling.md: the code that it shows") {
  check_shown_code("docs/sampling.md", "tests/models/sampling_test.cpp", 1);
  const auto model = models::LanguageModel::load("tests/models/data/tiny_llama.gguf",
                                                 {.context = 64, .backend = {.threads = 1}});
  models::Conversation conversation = model.conversation();
  const std::vector<std::int32_t> prompt = model.tokenizer().encode("Once upon a time");

  models::GenerateOptions options;
  options.sampler = {
      .temperature = 1, .min_p = 0.05, .dry_multiplier = 0.8, .xtc_probability = 0.5};
  options.sampler.dry_breakers = models::dry_breakers(model.tokenizer());
  const auto made = models::generate(model, conversation, prompt, options);

  CHECK_FALSE(made.tokens.empty());
}

TEST_CASE("sampling: advice that makes no sense is refused") {
  GgufMaker cold, words;
  number(cold, "general.sampling.temp", -1);
  words.key_text("general.sampling.temp", "hot");
  const auto message = expect_error(Errc::bad_hyperparameter, [&] { defaults(cold); });
  CHECK(message.find("general.sampling.temp is -1") != std::string::npos);
  expect_error(Errc::bad_type, [&] { defaults(words); });
  expect_error(Errc::bad_hyperparameter, [] { defaults({}, R"({"top_p": 1.5})"); });
  expect_error(Errc::bad_type, [] { defaults({}, R"({"top_k": "all"})"); });
  expect_error(Errc::syntax, [] { defaults({}, "{"); });
}
