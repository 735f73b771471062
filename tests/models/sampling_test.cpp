// How a model's files say that its tokens should be drawn.
#include "io/gguf_maker.hpp"
#include "io/temp_folder.hpp"
#include "support/expect_error.hpp"

#include <tenon/error.hpp>
#include <tenon/io/file.hpp>
#include <tenon/models/sampling.hpp>

#include <bit>
#include <string>

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
