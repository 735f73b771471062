// Decoders on tiny models that scripts made, against f64 logits or those of llama.cpp in f32.
#include "io/temp_folder.hpp"
#include "logits.hpp"
#include "support/expect_error.hpp"
#include "support/rounds.hpp"

#include <tenon/error.hpp>
#include <tenon/models/language_model.hpp>
#include <tenon/models/vocabulary.hpp>
#include <tenon/snapshot.hpp>
#include <tenon/trace.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

using namespace tenon;
using namespace tenon::testing;

namespace {

const char* const architectures[] = {"llama",          "qwen2",    "qwen3",  "gemma3",  "mixtral",
                                     "qwen2moe",       "qwen3moe", "olmoe",  "gpt-oss", "deepseek2",
                                     "deepseek2_lite", "mamba",    "mamba2", "rwkv7"};

/// The others, made of the same parts: of these the logits are compared only.
const char* const further_architectures[] = {"qwen",
                                             "llama_nvfp4",
                                             "qwen3moe_nvfp4",
                                             "olmo2",
                                             "deepseek",
                                             "dots1",
                                             "gemma",
                                             "gemma2",
                                             "phi2",
                                             "phi3",
                                             "smollm3",
                                             "granite",
                                             "granitemoe",
                                             "minicpm",
                                             "internlm2",
                                             "xverse",
                                             "orion",
                                             "exaone",
                                             "exaone4",
                                             "chatglm",
                                             "glm4",
                                             "glm4moe",
                                             "ernie4_5",
                                             "seed_oss",
                                             "arcee",
                                             "nemotron",
                                             "stablelm",
                                             "starcoder2",
                                             "command-r",
                                             "cohere2",
                                             "falcon",
                                             "gptneox",
                                             "gpt2",
                                             "starcoder",
                                             "lfm2",
                                             "lfm2moe",
                                             "granitehybrid",
                                             "qwen35",
                                             "qwen35moe",
                                             "bloom",
                                             "mpt",
                                             "jais",
                                             "refact",
                                             "baichuan_13b",
                                             "stablelm_12b",
                                             "qwen3next",
                                             "falcon-h1",
                                             "nemotron_h",
                                             "jamba",
                                             "qwen2vl",
                                             "qwen3vl",
                                             "qwen3vlmoe",
                                             "ernie4_5-moe",
                                             "hunyuan-dense",
                                             "hunyuan-moe",
                                             "maincoder",
                                             "bailingmoe",
                                             "bailingmoe2",
                                             "minimax-m2",
                                             "mellum",
                                             "pangu-embedded",
                                             "jais2",
                                             "dbrx",
                                             "codeshell",
                                             "nemotron_h_moe",
                                             "nemotron_h_moe_latent",
                                             "mistral3",
                                             "olmo",
                                             "llama4",
                                             "gemma3n",
                                             "gemma4",
                                             "phimoe",
                                             "grok",
                                             "grok_2",
                                             "gemma4_inputs",
                                             "gemma4_experts",
                                             "apertus",
                                             "minicpm3",
                                             "plm",
                                             "exaone-moe",
                                             "deci",
                                             "rwkv6",
                                             "deepseek2_unsplit"};

/// How far a logarithm of a probability may be from llama.cpp's, which reads tanh's GELU from a table of f16
/// values, also for models whose own GELU is that of erf.
double margin_of(std::string_view architecture) {
  constexpr std::string_view by_table[] = {
      "gemma3n",        "gemma",     "gemma2", "phi2",       "gemma4",   "gemma4_inputs",
      "gemma4_experts", "grok",      "grok_2", "starcoder2", "falcon",   "gptneox",
      "gpt2",           "starcoder", "bloom",  "mpt",        "codeshell"};
  return std::ranges::find(by_table, architecture) == std::end(by_table) ? 1e-4 : 2e-2;
}

models::LanguageModel tiny(const std::string& architecture, bool exact, int threads = 2,
                           std::int64_t chunk = 512) {
  models::LanguageModelOptions options;
  options.context = 64;
  options.chunk = chunk;
  options.backend = {.threads = threads, .exact = exact};
  return models::LanguageModel::load("tests/models/data/tiny_" + architecture + ".gguf", options);
}

std::vector<std::int32_t> tiny_tokens(int count = 48) {
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(7 * i % 272);
  return tokens;
}

struct Distance {
  double worst_log_probability = 0;
  double mean_divergence = 0;
};

Distance distance(const std::string& architecture, std::span<const float> got) {
  const HostBuffer reference =
      io::read_npy("tests/models/data/tiny_" + architecture + "_logits.npy");
  const auto want = reference.values<float>();
  REQUIRE(got.size() >= want.size());
  got = got.last(want.size());
  const auto width = static_cast<std::size_t>(reference.shape().dim(1));
  Distance result;
  for (std::size_t row = 0; row < want.size() / width; ++row) {
    const auto p = log_softmax(want.subspan(row * width, width));
    const auto q = log_softmax(got.subspan(row * width, width));
    for (std::size_t i = 0; i < width; ++i) {
      result.worst_log_probability = std::max(result.worst_log_probability, std::fabs(p[i] - q[i]));
    }
    result.mean_divergence +=
        divergence(p, q) * static_cast<double>(width) / static_cast<double>(want.size());
  }
  return result;
}

}  // namespace

TEST_CASE("decoder: exact logits of every architecture equal the reference") {
  for (const char* architecture : architectures) {
    INFO(architecture);
    const auto result = distance(architecture, all_logits(tiny(architecture, true), tiny_tokens()));
    CHECK(result.worst_log_probability < 1e-4);
  }
  int number = 0;
  for (const char* architecture : further_architectures) {
    if (seeks_bad_accesses && number++ % round_stride != 0) continue;
    INFO(architecture);
    const auto result = distance(architecture, all_logits(tiny(architecture, true), tiny_tokens()));
    CHECK(result.worst_log_probability < margin_of(architecture));
  }
}

TEST_CASE("decoder: positions of Llama 4 beyond its first chunk equal the reference") {
  if (seeks_bad_accesses) return;         // the same kernels, for a minute
  const auto tokens = tiny_tokens(8200);  // chunks have 8192
  models::LanguageModelOptions options;
  options.context = 8256;
  options.backend = {.threads = 2, .exact = true};
  const auto model = models::LanguageModel::load("tests/models/data/tiny_llama4.gguf", options);
  auto conversation = model.conversation();
  conversation.read(std::span(tokens).first(8180));
  std::vector<float> got;
  conversation.read_all(std::span(tokens).subspan(8180), [&](std::span<const float> row, auto) {
    got.insert(got.end(), row.begin(), row.end());
  });
  // llama.cpp's angles are products in f32, and far from zero less exact.
  CHECK(distance("llama4_far", got).worst_log_probability < 1e-3);
}

TEST_CASE("decoder: fast logits stay near the reference") {
  for (const char* architecture : architectures) {
    INFO(architecture);
    const auto result =
        distance(architecture, all_logits(tiny(architecture, false), tiny_tokens()));
    CHECK(result.mean_divergence < 5e-3);
    CHECK(result.mean_divergence > 0);  // integers were in fact used
  }
  for (const char* architecture : further_architectures) {
    if (seeks_bad_accesses) break;  // the same kernels as above
    INFO(architecture);
    const auto result =
        distance(architecture, all_logits(tiny(architecture, false), tiny_tokens()));
    // llama.cpp's is up to 0.09 for such random weights: rounding decides between experts.
    CHECK(result.mean_divergence < 0.2);
    CHECK(result.mean_divergence > 0);
  }
}

TEST_CASE(
    "decoder: a cache in blocks or of halves stays near the reference, in pieces and in one") {
  // Architectures whose heads are as wide as a block. llama.cpp's table of GELU is not what is looked for.
  struct Case {
    const char* architecture;
    DType type;
    double exact, rounded;  // the largest divergence; rounded, a token may choose another expert
  };
  const Case cases[] = {
      {"gemma3", DType::q8_0, 5e-4, 5e-3},       {"gemma4", DType::q8_0, 5e-4, 5e-3},
      {"gemma4", DType::f16, 1e-5, 5e-3},        {"gemma4_inputs", DType::q8_0, 5e-4, 5e-3},
      {"gemma4_inputs", DType::f16, 1e-5, 5e-3}, {"gemma4_experts", DType::q8_0, 5e-4, 3e-2},
      {"gemma4_experts", DType::f16, 1e-5, 3e-2}};
  EveryThird third;
  for (const auto& [architecture, type, largest_exact, largest] : cases) {
    for (const bool exact : {true, false}) {
      if (third.skips()) continue;
      INFO(architecture << ", " << name(type) << ", exact " << exact);
      models::LanguageModelOptions options;
      options.context = 64;
      options.cache = type;
      options.backend = {.threads = 2, .exact = exact};
      const auto load = [&, &file = architecture] {
        return models::LanguageModel::load(std::string("tests/models/data/tiny_") + file + ".gguf",
                                           options);
      };
      const auto logits = all_logits(load(), tiny_tokens());
      const auto result = distance(architecture, logits);
      CHECK(result.mean_divergence > 1e-9);  // rounding was done
      CHECK(result.mean_divergence < (exact ? largest_exact : largest));
      const auto width = logits.size() / tiny_tokens().size();
      const auto last = log_softmax(std::span(logits).last(width));
      options.chunk = 1;
      const auto model = load();
      auto conversation = model.conversation();
      const auto one_by_one = log_softmax(conversation.read(tiny_tokens()));
      for (std::size_t i = 0; i < width; ++i) {
        CHECK(one_by_one[i] == Approx(last[i]).margin(exact ? 1e-3 : 0.2));
      }
      options.chunk = 512;
      options.backend.threads = 7;
      CHECK(all_logits(load(), tiny_tokens()) == logits);
    }
  }
}

TEST_CASE("decoder: a cache has room for the layers that attend and those that keep states") {
  const auto sizes = [](const std::string& architecture) {
    const auto config =
        models::DecoderConfig::from(io::open("tests/models/data/tiny_" + architecture + ".gguf"));
    std::string text;
    visit_fields(models::cache_shape(config, 8, f16),
                 [&](const std::string& path, const Shape& shape) {
                   text += path + " " + to_string(shape) + "\n";
                 });
    return text;
  };
  CHECK(sizes("gemma4") ==
        "attention.0.keys f16[4, 1, 2, 8, 32]\nattention.0.values f16[4, 1, 2, 8, 32]\n"
        "attention.1.keys f16[2, 1, 1, 8, 64]\nattention.1.values f16[2, 1, 1, 8, 64]\n");
  // Its last three layers attend to the keys of the second and the third.
  CHECK(sizes("gemma4_inputs") ==
        "attention.0.keys f16[2, 1, 1, 8, 32]\nattention.0.values f16[2, 1, 1, 8, 32]\n"
        "attention.1.keys f16[1, 1, 1, 8, 64]\nattention.1.values f16[1, 1, 1, 8, 64]\n");
  CHECK(sizes("granitehybrid") ==
        "attention.0.keys f16[1, 1, 1, 8, 16]\nattention.0.values f16[1, 1, 1, 8, 16]\n"
        "mamba.conv f32[2, 1, 3, 96]\nmamba.scan f32[2, 1, 16, 4, 16]\n");
  CHECK(sizes("lfm2") ==
        "attention.0.keys f16[1, 1, 1, 8, 16]\nattention.0.values f16[1, 1, 1, 8, 16]\n"
        "short_conv f32[3, 1, 2, 32]\n");
  CHECK(sizes("qwen35") ==
        "attention.0.keys f16[1, 1, 1, 8, 16]\nattention.0.values f16[1, 1, 1, 8, 16]\n"
        "mamba.conv f32[3, 1, 3, 128]\nmamba.scan f32[3, 1, 16, 4, 16]\nshift i32[]\n");
  // Layers of one part each: of four, one attends and two keep states.
  CHECK(sizes("nemotron_h") ==
        "attention.0.keys f16[1, 1, 1, 8, 16]\nattention.0.values f16[1, 1, 1, 8, 16]\n"
        "mamba.conv f32[2, 1, 3, 96]\nmamba.scan f32[2, 1, 16, 4, 8]\n");
  CHECK(sizes("falcon-h1") ==  // both in each layer
        "attention.0.keys f16[2, 1, 1, 8, 16]\nattention.0.values f16[2, 1, 1, 8, 16]\n"
        "mamba.conv f32[2, 1, 3, 64]\nmamba.scan f32[2, 1, 16, 2, 16]\n");
  CHECK(sizes("mamba") == "mamba.conv f32[2, 1, 3, 64]\nmamba.scan f32[2, 1, 16, 64, 1]\n");
}

TEST_CASE("decoder: what a plan computes grows with no layer of the cache") {
  for (const char* architecture : {"llama", "gemma4", "gemma4_inputs", "gemma3n", "granitehybrid",
                                   "lfm2", "qwen35", "nemotron_h", "jamba", "deci"}) {
    INFO(architecture);
    const auto plan = [&](std::int64_t context) {
      models::LanguageModelOptions options;
      options.context = context;
      options.backend.threads = 2;
      return models::LanguageModel::load(
                 std::string("tests/models/data/tiny_") + architecture + ".gguf", options)
          .plan();
    };
    const PlanReport small = plan(64), large = plan(16384);
    CHECK(large.slab_bytes == small.slab_bytes);  // else a layer's keys are copied
    CHECK(large.activation_bytes == small.activation_bytes);
    for (const std::string& copy : large.copies) {
      // The residual stream, and of an input that is a result as it is the one number: the shift.
      const bool is_shift = std::string(architecture) == "qwen35" && copy == "x6";
      CHECK((copy == "carry0" || is_shift));
    }
  }
}

TEST_CASE("decoder: packed weights that were kept give the same logits") {
  const TempFolder folder;
  EveryThird third;
  for (const char* architecture : architectures) {
    if (third.skips()) continue;
    INFO(architecture);
    const auto file = folder / (std::string(architecture) + ".gguf");
    std::filesystem::copy(std::string("tests/models/data/tiny_") + architecture + ".gguf", file);
    models::LanguageModelOptions options;
    options.context = 64;
    options.backend.threads = 2;
    const auto logits = [&] {
      return all_logits(models::LanguageModel::load(file, options), tiny_tokens());
    };
    const auto want = logits();
    options.packed_folder = folder / "packed" / architecture;
    CHECK(logits() == want);
    REQUIRE_FALSE(std::filesystem::is_empty(options.packed_folder));
    const auto kept = std::filesystem::directory_iterator(options.packed_folder)->path();
    const auto written = std::filesystem::last_write_time(kept);
    CHECK(logits() == want);
    CHECK(std::filesystem::last_write_time(kept) == written);

    // The kept bytes are what is computed with: the file's own have gone, its age has not.
    const auto age = std::filesystem::last_write_time(file);
    const io::File opened = io::open(file);
    const char* const large[] = {"blk.0.ffn_up_exps.weight", "blk.0.ffn_up.weight",
                                 "blk.0.ssm_in.weight", "blk.0.channel_mix_key.weight"};
    const auto* const name =
        std::ranges::find_if(large, [&](const char* one) { return opened.find(one) != nullptr; });
    const auto& up = opened.at(*name);
    const auto offset = static_cast<std::streamoff>(up.offset_bytes);
    std::fstream(file, std::ios::in | std::ios::out | std::ios::binary)
        .seekp(offset)
        .write("\0\0\0\0\0\0\0\0", 8);
    std::filesystem::last_write_time(file, age);
    CHECK(logits() == want);

    // A file that was written since is another file.
    std::filesystem::last_write_time(file, age + std::chrono::seconds(1));
    const auto other = logits();
    CHECK(other != want);
    options.packed_folder.clear();
    CHECK(logits() == other);
  }
}

TEST_CASE("decoder: a second start takes the tokenizer's tables from the packed file") {
  const TempFolder folder;
  const auto file = folder / "model.gguf";
  std::filesystem::copy("tests/models/data/tiny_llama.gguf", file);
  models::LanguageModelOptions options;
  options.context = 64;
  options.backend.threads = 1;
  options.packed_folder = folder / "packed";
  // Whether a start uses the kept tables; it keeps those that it had to make.
  const auto start = [&] {
    const auto model = models::LanguageModel::load(file, options);
    const auto anew = models::load_tokenizer(io::open(file));
    for (const char* text : {"abc", "Hello, world", "<s> \xC5\x81\xFF 123", ""}) {
      CHECK(model.tokenizer().encode(text) == anew.encode(text));
    }
    model.conversation().read(tiny_tokens());
    return model.tokenizer().uses_kept_tables();
  };
  CHECK_FALSE(start());
  CHECK(start());

  for (std::uint64_t eighth = 0; eighth < 8; ++eighth) {
    const auto packed = std::filesystem::directory_iterator(options.packed_folder)->path();
    const Snapshot::Section section = *Snapshot::open(packed).find("of tokenizer tables");
    std::string bytes = read_bytes(packed);
    char& damaged = bytes[section.offset + section.size_bytes * eighth / 8];
    damaged = static_cast<char>(damaged ^ 1);
    std::ofstream(packed, std::ios::binary) << bytes;
    CHECK_FALSE(start());
    CHECK(start());
  }

  // The file has the same age, a token another text: tables are tied to the vocabulary itself.
  const auto age = std::filesystem::last_write_time(file);
  const io::File opened = io::open(file);
  const auto* const token = reinterpret_cast<const std::byte*>(
      opened.metadata().strings("tokenizer.ggml.tokens")[200].data());
  std::fstream(file, std::ios::in | std::ios::out | std::ios::binary)
      .seekp(token - opened.shards().front()->mapped().data())
      .put('\x01');
  std::filesystem::last_write_time(file, age);
  CHECK_FALSE(start());
  CHECK(start());
}

TEST_CASE("decoder: caches that cannot hold keys are refused") {
  const auto refused = [](const char* architecture, DType type) {
    return expect_error(Errc::bad_argument, [&] {
      models::LanguageModelOptions options;
      options.cache = type;
      models::LanguageModel::load(std::string("tests/models/data/tiny_") + architecture + ".gguf",
                                  options);
    });
  };
  CHECK(refused("llama", DType::i32).find("a cache of i32 cannot") != std::string::npos);
  CHECK(refused("llama", DType::q8_0).find("blocks of 32, heads have 16") != std::string::npos);
  CHECK(refused("mamba", DType::f16).find("states of f32") != std::string::npos);
}

TEST_CASE("decoder: one piece, chunks and single tokens give the same logits") {
  const auto tokens = tiny_tokens();
  std::vector<const char*> models(std::begin(architectures), std::end(architectures));
  for (const char* more :
       {"phi3",      "gpt2",          "cohere2",        "lfm2",          "granitehybrid",
        "qwen35",    "bloom",         "refact",         "stablelm_12b",  "qwen3next",
        "falcon-h1", "nemotron_h",    "jamba",          "hunyuan-dense", "mistral3",
        "llama4",    "gemma3n",       "minicpm3",       "deci",          "rwkv6",
        "gemma4",    "gemma4_inputs", "gemma4_experts", "phimoe",        "grok_2"}) {
    models.push_back(more);
  }
  EveryThird third;
  for (const char* architecture : models) {
    if (third.skips()) continue;
    INFO(architecture);
    const auto read = [&](std::int64_t chunk) {
      const auto model = tiny(architecture, true, 2, chunk);
      auto conversation = model.conversation();
      const auto logits = conversation.read(tokens);
      return std::vector<float>(logits.begin(), logits.end());
    };
    const auto whole = log_softmax(read(512));
    for (const std::int64_t chunk : {7, 1, 16}) {
      if (seeks_bad_accesses && chunk != 7) continue;  // other tests read single tokens
      const auto pieces = log_softmax(read(chunk));
      for (std::size_t i = 0; i < whole.size(); ++i)
        CHECK(whole[i] == Approx(pieces[i]).margin(1e-4));
    }
  }
}

TEST_CASE("decoder: the number of threads changes no bit") {
  EveryThird third;
  for (const bool exact : {false, true}) {
    for (const char* architecture : architectures) {
      if (third.skips()) continue;
      INFO(architecture);
      const auto one = all_logits(tiny(architecture, exact, 1), tiny_tokens());
      for (const int threads : {2, 7}) {
        const auto many = all_logits(tiny(architecture, exact, threads), tiny_tokens());
        CHECK(std::memcmp(one.data(), many.data(), one.size() * sizeof(float)) == 0);
      }
    }
  }
}

TEST_CASE("decoder: rewinding reads on as if the rest had never been") {
  const auto model = tiny("llama", true);
  const auto tokens = tiny_tokens();
  auto conversation = model.conversation();
  const auto first = conversation.read(std::span(tokens).first(20));
  const std::vector<float> want(first.begin(), first.end());
  conversation.read(std::span(tokens).subspan(20));
  conversation.rewind(19);
  const auto again = conversation.read(std::span(tokens).subspan(19, 1));
  for (std::size_t i = 0; i < want.size(); ++i) CHECK(again[i] == Approx(want[i]).margin(1e-4));
  expect_error(Errc::out_of_range, [&] { conversation.rewind(21); });
}

TEST_CASE("decoder: states that only move on go back to their beginning") {
  for (const char* architecture : {"mamba", "mamba2", "rwkv7", "lfm2", "granitehybrid", "qwen35",
                                   "falcon-h1", "nemotron_h", "jamba", "rwkv6"}) {
    INFO(architecture);
    const auto model = tiny(architecture, true);
    const auto tokens = tiny_tokens();
    auto conversation = model.conversation();
    const auto first = conversation.read(std::span(tokens).first(20));
    const std::vector<float> want(first.begin(), first.end());
    CHECK(conversation.rewindable(20) == 20);
    CHECK(conversation.rewindable(99) == 20);
    CHECK(conversation.rewindable(19) == 0);
    CHECK_NOTHROW(conversation.rewind(20));
    expect_error(Errc::unsupported, [&] { conversation.rewind(19); });
    expect_error(Errc::out_of_range, [&] { conversation.rewind(21); });
    CHECK(conversation.position() == 20);
    conversation.rewind(0);
    const auto again = conversation.read(std::span(tokens).first(20));
    CHECK(std::vector<float>(again.begin(), again.end()) == want);
  }
  CHECK(tiny("llama", true).conversation().rewindable(0) == 0);
}

TEST_CASE("decoder: a full context and wrong tokens are refused, and the conversation goes on") {
  const auto model = tiny("qwen3", true);
  const auto tokens = tiny_tokens();
  auto conversation = model.conversation();
  conversation.read(tokens);
  expect_error(Errc::limit_exceeded, [&] { conversation.read(tokens); });
  const std::int32_t beyond = 272;
  expect_error(Errc::out_of_range, [&] { conversation.read({&beyond, 1}); });
  expect_error(Errc::bad_argument, [&] { conversation.read({}); });
  CHECK(conversation.position() == 48);
  CHECK_NOTHROW(conversation.read(std::span(tokens).first(16)));
  CHECK(conversation.position() == conversation.capacity());
}

TEST_CASE("decoder: a conversation that has read refuses to be watched, and nothing changes") {
  const auto model = tiny("llama", true);
  const auto tokens = tiny_tokens();
  const auto all_first = [&](auto& conversation) {
    conversation.read_all(tokens, [](std::span<const float>, std::int64_t) {});
  };
  const auto next_first = [&](auto& conversation) { conversation.read(tokens); };
  const auto check = [&](const auto& read) {
    auto conversation = model.conversation();
    conversation.enable_time_profile(true);
    read(conversation);
    const std::size_t steps = conversation.step_times().size();
    CHECK(steps > 0);
    expect_error(Errc::call_order, [&] { conversation.enable_time_profile(false); });
    expect_error(Errc::call_order, [&] { conversation.set_trace(std::make_shared<Trace>()); });
    conversation.rewind(0);
    read(conversation);
    CHECK(conversation.step_times().size() == steps);
  };
  check(all_first);
  check(next_first);
}

TEST_CASE("decoder: equal layers are one function that repeats, on the CPU, in planned memory") {
  const auto model = tiny("llama", false);
  std::int64_t layers = 0;
  for (const Instruction& instruction : model.program().main().body) {
    if (instruction.kind == Instruction::Kind::repeat) layers += instruction.count;
  }
  CHECK(layers == model.config().layers);
  const PlanReport plan = model.plan();
  CHECK(plan.slab_bytes < plan.activation_bytes);
  CHECK(plan.copies.empty());
}

TEST_CASE("decoder: generation ends at its length, and greedy text repeats") {
  const auto model = tiny("llama", true);
  const auto prompt = model.tokenizer().encode("abc");
  models::GenerateOptions options;
  options.max_tokens = 12;
  std::string streamed;
  auto first = model.conversation();
  const auto a = models::generate(model, first, prompt, options,
                                  [&](std::string_view text) { streamed += text; });
  auto second = model.conversation();
  const auto b = models::generate(model, second, prompt, options);
  CHECK(a.tokens == b.tokens);
  CHECK(a.text == streamed);
  CHECK((a.tokens.size() == 12 || a.end == models::Generated::End::token));
}

TEST_CASE("decoder: the greedy token is the one that the sampler draws from the logits") {
  const auto tokens = tiny_tokens();
  EveryThird third;
  for (const char* architecture : architectures) {
    if (third.skips()) continue;
    for (const bool exact : {true, false}) {
      for (const int threads : {1, 2, 7}) {
        // More threads than processors wait for each other: a second for what takes others 50 ms.
        if (threads > 2 && architecture != architectures[0]) continue;
        if (seeks_bad_accesses && threads == 1) continue;  // two threads make no other accesses
        INFO(architecture << ", exact " << exact << ", threads " << threads);
        const auto model = tiny(architecture, exact, threads, 7);
        auto by_logits = model.conversation(), by_token = model.conversation();
        nn::Sampler sampler({});
        const auto drawn = [&](std::span<const std::int32_t> read) {
          return sampler.sample(by_logits.read(read).first(model.tokenizer().vocab_size()), {});
        };
        std::int32_t token = drawn(std::span(tokens).first(20));  // in chunks
        CHECK(by_token.read_greedy(std::span(tokens).first(20)) == token);
        const int count = threads > 2 ? rounds(4) : rounds(40);
        for (int i = 0; i < count; ++i) {
          const std::int32_t next = drawn({&token, 1});
          CHECK(by_token.read_greedy({&token, 1}) == next);
          token = next;
        }
        CHECK(by_token.position() == 20 + count);
      }
    }
  }
}

TEST_CASE("decoder: a state that is NaN has no greedy token") {
  const TempFolder folder;
  const auto file = folder / "nan.gguf";
  std::filesystem::copy("tests/models/data/tiny_llama.gguf", file);
  const auto offset =
      static_cast<std::streamoff>(io::open(file).at("output_norm.weight").offset_bytes);
  const float nan = std::nanf("");
  std::fstream(file, std::ios::in | std::ios::out | std::ios::binary)
      .seekp(offset)
      .write(reinterpret_cast<const char*>(&nan), sizeof nan);
  for (const bool exact : {false, true}) {
    models::LanguageModelOptions options;
    options.context = 64;
    options.backend = {.threads = 2, .exact = exact};
    const auto model = models::LanguageModel::load(file, options);
    const auto tokens = tiny_tokens();
    auto conversation = model.conversation();
    expect_error(Errc::bad_input, [&] { conversation.read_greedy(tokens); });
    auto other = model.conversation();
    expect_error(Errc::bad_input, [&] { models::generate(model, other, tokens, {}); });
  }
}

TEST_CASE("LanguageModel: a model or conversation that was moved from says so") {
  models::LanguageModelOptions options;
  options.context = 16;
  options.backend = {.threads = 1, .exact = true};
  auto model = models::LanguageModel::load("tests/models/data/tiny_llama.gguf", options);
  auto conversation = model.conversation();
  auto moved = std::move(conversation);
  const std::int32_t tokens[] = {3, 1, 4};
  expect_error(Errc::call_order, [&] { conversation.read(tokens); });
  expect_error(Errc::call_order, [&] { conversation.read_greedy(tokens); });
  expect_error(Errc::call_order, [&] { conversation.read_all(tokens, [](auto, auto) {}); });
  expect_error(Errc::call_order, [&] { conversation.position(); });
  expect_error(Errc::call_order, [&] { conversation.capacity(); });
  expect_error(Errc::call_order, [&] { conversation.rewind(0); });
  CHECK(!moved.read(tokens).empty());
  const auto kept = std::move(model);
  expect_error(Errc::call_order, [&] { model.conversation(); });
  expect_error(Errc::call_order, [&] { model.config(); });
  expect_error(Errc::call_order, [&] { model.tokenizer(); });
  expect_error(Errc::call_order, [&] { model.file(); });
  expect_error(Errc::call_order, [&] { model.context(); });
  expect_error(Errc::call_order, [&] { model.load_times(); });
  expect_error(Errc::call_order, [&] { model.chat_format(); });
  expect_error(Errc::call_order, [&] { model.program(); });
  expect_error(Errc::call_order, [&] { model.plan(); });
  CHECK(kept.context() == 16);
}
