// Low-rank adapters of a tiny decoder: gradients, training, files, merging.
#include "../../examples/lora_training.hpp"
#include "io/temp_folder.hpp"
#include "support/expect_error.hpp"

#include <tenon/tenon.hpp>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <fstream>
#include <iterator>
#include <string>
#include <tuple>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

using lora_training::Training;
using Adapters = models::DecoderAdapters<Buffer>;

const char* const tiny_model = "tests/models/data/tiny_llama.gguf";
const models::LoraConfig lora{
    .rank = 3, .alpha = 6, .targets = {"q_proj", "k_proj", "v_proj", "o_proj", "up_proj"}};

HostBuffer token_ids(std::int64_t rows, std::int64_t steps) {
  HostBuffer ids = HostBuffer::uninitialized(Shape({rows, steps}, i32));
  std::int32_t i = 0;
  for (std::int32_t& id : ids.mutable_values<std::int32_t>()) id = 7 * i++ % 97;
  return ids;
}

struct Rig {
  io::File file = io::open(tiny_model);
  models::DecoderConfig config = models::DecoderConfig::from(file);
  WeightsView view = file.view();
  models::Decoder<> decoder = models::Decoder<>::init(view, config);
  DevicePtr device = cpu_device();
  models::DecoderAdapters<Shape> shapes = models::adapter_shapes(decoder, lora);

  Bufferized<Training<>> weights() const {
    Bufferized<Training<>> result;
    result.decoder = io::load(decoder, file, device);
    return result;
  }
};

/// The gradient and the loss.
template <class T = Tensor>
struct Slope {
  Training<T> training;
  TENON_FIELDS(training)
  std::tuple<models::DecoderAdapters<>, Tensor> at(const models::DecoderAdapters<>& adapters,
                                                   const Tensor& ids) const
    requires std::same_as<T, Tensor>
  {
    const Tensor loss = training.loss(adapters, ids);
    return {grad(loss, adapters), loss};
  }
};

double value_of(const Buffer& scalar) { return scalar.to_host().at({}); }

TEST_CASE("decoder: scores of whole sequences are those of the cache's way") {
  for (const std::string architecture :
       {"llama",     "gemma3",        "qwen3",         "olmoe",   "gpt-oss",       "deepseek2",
        "mamba",     "mamba2",        "rwkv7",         "chatglm", "cohere2",       "stablelm",
        "smollm3",   "lfm2",          "granitehybrid", "qwen35",  "refact",        "stablelm_12b",
        "qwen3next", "falcon-h1",     "nemotron_h",    "jamba",   "hunyuan-dense", "llama4",
        "olmo",      "apertus",       "plm",           "deci",    "rwkv6",         "phimoe",
        "gemma4",    "gemma4_experts"}) {
    const io::File file = io::open("tests/models/data/tiny_" + architecture + ".gguf");
    const WeightsView view = file.view();
    const auto decoder = models::Decoder<>::init(view, models::DecoderConfig::from(file));
    HostBuffer ids = HostBuffer::uninitialized(Shape({1, 48}, i32));
    std::int32_t i = 0;
    for (std::int32_t& id : ids.mutable_values<std::int32_t>()) id = 7 * i++ % 272;
    CompileOptions exact;
    exact.backend.exact = true;
    auto run = compile<&models::Decoder<>::scores>(decoder, {ids.shape()}, cpu_device(), exact)
                   .bind(io::load(decoder, file, cpu_device()));
    const HostBuffer got = run(ids.to_device(cpu_device())).to_host();
    const HostBuffer want = io::read_npy("tests/models/data/tiny_" + architecture + "_logits.npy");
    const auto b = want.values<float>(), a = got.values<float>().last(b.size());
    double worst = 0;
    for (std::size_t k = 0; k < a.size(); ++k) {
      worst = std::max(worst, std::fabs(static_cast<double>(a[k]) - static_cast<double>(b[k])));
    }
    INFO(architecture);
    // llama.cpp's GELU is a table of f16 values.
    CHECK(worst < (architecture.starts_with("gemma4") ? 5e-2 : 2e-3));
  }
}

TEST_CASE("decoder: layers that share keys and values have no scores without a cache") {
  for (const auto& [name, architecture] :
       {std::pair("gemma3n", "gemma3n"), {"gemma4_inputs", "gemma4"}}) {
    const io::File file = io::open(std::string("tests/models/data/tiny_") + name + ".gguf");
    const WeightsView view = file.view();
    const auto decoder = models::Decoder<>::init(view, models::DecoderConfig::from(file));
    CHECK(expect_error(Errc::unsupported, [&] {
            compile<&models::Decoder<>::scores>(decoder, {Shape({1, 8}, i32)}, cpu_device());
          }).find(architecture) != std::string::npos);
  }
}

TEST_CASE("lora: gradients are finite differences, and the first change is none") {
  const Rig rig;
  const HostBuffer ids = token_ids(2, 9);
  CompileOptions exact;
  exact.backend.exact = true;
  const Training<> training{rig.decoder};
  const auto bound = [&](auto&& exe) { return exe.bind(rig.weights()); };
  auto loss =
      bound(compile<&Training<>::loss>(training, {rig.shapes, ids.shape()}, rig.device, exact));
  auto adapters = train::initialize(rig.shapes, 3, rig.device, models::lora_initial);
  const double before = value_of(loss(adapters, ids.to_device(rig.device)));
  for (const nn::Lora<Buffer>& change : {*adapters.layers[0].query, *adapters.layers[1].up}) {
    CHECK(change.scale == 2);
    for (const float b : change.b.to_host().values<float>()) CHECK(b == 0);
  }

  Bufferized<Slope<>> weights;
  weights.training.decoder = io::load(rig.decoder, rig.file, rig.device);
  auto slope =
      compile<&Slope<>::at>(Slope<>{{rig.decoder}}, {rig.shapes, ids.shape()}, rig.device, exact)
          .bind(weights);
  // Away from b = 0, where a has no gradient.
  adapters = train::initialize(rig.shapes, 3, rig.device, [](std::string_view, const Shape&) {
    return train::Initial{train::Initial::Kind::uniform, 0.3};
  });
  const auto [gradients, at] = slope(adapters, ids.to_device(rig.device));
  CHECK(value_of(at) != Approx(before));
  const auto check_factor = [&](Buffer& factor, const Buffer& gradient, std::size_t place) {
    HostBuffer values = factor.to_host();
    const float kept = values.values<float>()[place];
    const auto loss_at = [&](float value) {
      HostBuffer changed = HostBuffer::uninitialized(values.shape());
      std::ranges::copy(values.values<float>(), changed.mutable_values<float>().begin());
      changed.mutable_values<float>()[place] = value;
      factor = changed.to_device(rig.device);
      return value_of(loss(adapters, ids.to_device(rig.device)));
    };
    constexpr float step = 4e-3f;
    const double difference = (loss_at(kept + step) - loss_at(kept - step)) / (2.0 * step);
    loss_at(kept);
    const double want = gradient.to_host().values<float>()[place];
    INFO("place " << place << ": " << difference << ", gradient " << want);
    CHECK(std::fabs(difference - want) < 2e-3 + 0.02 * std::fabs(want));
  };
  const auto& slopes = gradients;
  for (std::size_t layer = 0; layer < adapters.layers.size(); ++layer) {
    auto& mine = adapters.layers[layer];
    const auto& its = slopes.layers[layer];
    for (const std::size_t place : {std::size_t{0}, std::size_t{5}}) {
      check_factor(mine.query->a, its.query->a, place);
      check_factor(mine.key->b, its.key->b, place);
      check_factor(mine.up->b, its.up->b, place);
      check_factor(mine.output->a, its.output->a, place);
    }
  }
}

TEST_CASE("lora: training, files that PEFT reads, merging") {
  const Rig rig;
  const HostBuffer ids = token_ids(2, 17);
  const Training<> training{rig.decoder};
  auto adapters = train::initialize(rig.shapes, 3, rig.device, models::lora_initial);
  auto state = training.optimizer.start(adapters, rig.device);
  const Buffer rate = train::scalar(1e-2, f32, rig.device);
  auto step =
      compile<&Training<>::step>(
          training, {rig.shapes, train::shapes_of(state), ids.shape(), rate.shape()}, rig.device)
          .bind(rig.weights());
  double first = 0, last = 0;
  for (int i = 0; i < 25; ++i) {
    Buffer loss;
    std::tie(adapters, state, loss) =
        step(std::move(adapters), std::move(state), ids.to_device(rig.device), rate);
    last = value_of(loss);
    if (i == 0) first = last;
  }
  INFO("loss " << first << ", then " << last);
  CHECK(last < 0.8 * first);

  const TempFolder folder;
  models::save_adapters(folder / "adapter", adapters, lora, rig.config);
  std::ifstream json(folder / "adapter" / "adapter_config.json");
  const std::string text{std::istreambuf_iterator<char>(json), {}};
  CHECK(text.find("\"peft_type\":\"LORA\"") != std::string::npos);
  CHECK(text.find("\"r\":3,\"lora_alpha\":6") != std::string::npos);
  const io::File saved = io::open(folder / "adapter" / "adapter_model.safetensors");
  const Shape query_b =
      saved.at("base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight").shape;
  CHECK(query_b == rig.shapes.layers[1].query->b);
  CHECK(saved.find("base_model.model.model.layers.0.mlp.down_proj.lora_A.weight") == nullptr);

  const auto [read, config] = models::load_adapters(folder / "adapter", rig.decoder);
  CHECK(config.rank == 3);
  CHECK(config.targets == lora.targets);
  std::size_t compared = 0;
  for (std::size_t layer = 0; layer < read.layers.size(); ++layer) {
    for (const auto part :
         {&models::LayerAdapters<HostBuffer>::query, &models::LayerAdapters<HostBuffer>::key,
          &models::LayerAdapters<HostBuffer>::up}) {
      const auto& got = *(read.layers[layer].*part);
      const auto& want =
          part == &models::LayerAdapters<HostBuffer>::query ? *adapters.layers[layer].query
          : part == &models::LayerAdapters<HostBuffer>::key ? *adapters.layers[layer].key
                                                            : *adapters.layers[layer].up;
      CHECK(std::ranges::equal(got.a.values<float>(), want.a.to_host().values<float>()));
      CHECK(std::ranges::equal(got.b.values<float>(), want.b.to_host().values<float>()));
      ++compared;
    }
  }
  CHECK(compared == 3 * rig.decoder.layers.size());

  // Merged weights do what the adapters do.
  CompileOptions exact;
  exact.backend.exact = true;
  auto loss = compile<&Training<>::loss>(training, {rig.shapes, ids.shape()}, rig.device, exact)
                  .bind(rig.weights());
  const double with = value_of(loss(adapters, ids.to_device(rig.device)));
  Bufferized<Training<>> merged = rig.weights();
  merged.decoder = models::merge_adapters(merged.decoder, adapters, rig.device);
  auto plain = compile<&Training<>::loss>(training, {rig.shapes, ids.shape()}, rig.device, exact)
                   .bind(merged);
  const auto none = train::initialize(rig.shapes, 3, rig.device, models::lora_initial);
  const double after = value_of(plain(none, ids.to_device(rig.device)));
  INFO("with adapters " << with << ", merged " << after);
  CHECK(std::fabs(after - with) < 0.05 * (first - with));  // the merged weights are quantised again
}

Adapters strong_adapters(const Rig& rig, std::uint64_t seed) {
  return train::initialize(rig.shapes, seed, rig.device, [](std::string_view, const Shape&) {
    return train::Initial{train::Initial::Kind::uniform, 0.3};
  });
}

std::vector<float> logits_of(const models::LanguageModelOptions& options) {
  models::LanguageModelOptions exact = options;
  exact.backend.exact = true;
  const auto model = models::LanguageModel::load(tiny_model, exact);
  auto conversation = model.conversation();
  const HostBuffer ids = token_ids(1, 11);
  const std::span<const float> logits = conversation.read(ids.values<std::int32_t>());
  return {logits.begin(), logits.end()};
}

TEST_CASE("lora: a language model runs with the adapters of a folder and of a GGUF file") {
  const Rig rig;
  const TempFolder folder;
  const Adapters adapters = strong_adapters(rig, 5);
  models::save_adapters(folder / "peft", adapters, lora, rig.config);
  models::save_adapters(folder / "lora.gguf", adapters, lora, rig.config);
  models::save_adapters(folder / "other.gguf", strong_adapters(rig, 6), lora, rig.config);

  CompileOptions exact;
  exact.backend.exact = true;
  auto bound = compile<&models::Decoder<>::scores>(rig.decoder, {token_ids(1, 11).shape()},
                                                   rig.device, exact)
                   .bind(models::merge_adapters(io::load(rig.decoder, rig.file, rig.device),
                                                adapters, rig.device));
  const HostBuffer scores = bound(token_ids(1, 11).to_device(rig.device)).to_host();
  const auto want = scores.values<float>().last(static_cast<std::size_t>(scores.shape()[2]));

  const std::vector<float> got = logits_of({.adapters = {{folder / "peft"}}});
  const std::vector<float> plain = logits_of({});
  REQUIRE(got.size() == want.size());
  double error = 0, change = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    error = std::max(error, std::fabs(double{got[i]} - double{want[i]}));
    change = std::max(change, std::fabs(double{got[i]} - double{plain[i]}));
  }
  INFO("error " << error << ", change " << change);
  CHECK(change > 0.1);
  CHECK(error < 0.2 * change);  // merged weights are quantised again, to 4 bits
  CHECK(logits_of({.adapters = {{folder / "lora.gguf"}}}) == got);

  // Twice a half is a whole; scales and several adapters add up in the sum of the ranks.
  const auto path = folder / "lora.gguf";
  const auto differ = [](const std::vector<float>& a, const std::vector<float>& b) {
    double largest = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      largest = std::max(largest, std::fabs(double{a[i]} - double{b[i]}));
    }
    return largest;
  };
  CHECK(differ(logits_of({.adapters = {{path, 0.25}, {path, 0.75}}}), got) < 1e-3 * change);
  CHECK(differ(logits_of({.adapters = {{path, 0.5}}}), got) > 0.1 * change);
  CHECK(logits_of({.adapters = {{path, 0}}}) == plain);
  expect_error(Errc::bad_argument, [&] { logits_of({.adapters = {{path, NAN}}}); });

  // A folder of packed weights serves the model with and without any adapters.
  const std::vector<float> other = logits_of({.adapters = {{folder / "other.gguf"}}});
  CHECK(other != got);
  for (int start = 0; start < 2; ++start) {
    const auto packed = folder / "packed";
    CHECK(logits_of({.packed_folder = packed, .adapters = {{folder / "lora.gguf"}}}) == got);
    CHECK(logits_of({.packed_folder = packed, .adapters = {{folder / "other.gguf"}}}) == other);
    CHECK(logits_of({.packed_folder = packed}) == plain);
  }
}

template <class T = Tensor>
struct Scores {
  models::Decoder<T> decoder;
  TENON_FIELDS(decoder)
  Tensor of(const models::DecoderAdapters<>& adapters, const Tensor& tokens) const
    requires std::same_as<T, Tensor>
  {
    return models::with_adapters(decoder, adapters).scores(tokens);
  }
};

/// A decoder whose queries, keys and values are one weight, and gate and up.
struct FusedRig {
  std::string model = "tests/models/data/tiny_phi3.gguf";
  io::File file = io::open(model);
  models::Decoder<> decoder = [&] {
    models::DecoderConfig config = models::DecoderConfig::from(file);
    config.has_long_context = true;  // llama.cpp ran with 1024 positions
    return models::Decoder<>::init(file.view(), config);
  }();
  DevicePtr device = cpu_device();
  HostBuffer ids = [] {
    HostBuffer made = HostBuffer::uninitialized(Shape({1, 48}, i32));
    std::int32_t i = 0;
    for (std::int32_t& id : made.mutable_values<std::int32_t>()) id = 7 * i++ % 272;
    return made;
  }();

  Adapters to_device(const models::DecoderAdapters<HostBuffer>& adapters) const {
    return map_fields<Buffer>(adapters, [&](const std::string&, const HostBuffer& factor) {
      return factor.to_device(device);
    });
  }
  /// Logits of the last 16 positions, with adapters beside the weights.
  HostBuffer scores(const Adapters& adapters) const {
    const auto shapes = map_fields<Shape>(
        adapters, [](const std::string&, const Buffer& factor) { return factor.shape(); });
    CompileOptions exact;
    exact.backend.exact = true;
    Bufferized<Scores<>> weights;
    weights.decoder = io::load(decoder, file, device);
    return compile<&Scores<>::of>(Scores<>{decoder}, {shapes, ids.shape()}, device, exact)
        .bind(weights)(adapters, ids.to_device(device))
        .to_host();
  }
  HostBuffer merged_scores(const Adapters& adapters) const {
    CompileOptions exact;
    exact.backend.exact = true;
    return compile<&models::Decoder<>::scores>(decoder, {ids.shape()}, device, exact)
        .bind(models::merge_adapters(io::load(decoder, file, device), adapters, device))(
            ids.to_device(device))
        .to_host();
  }
};

double largest_difference(const HostBuffer& got, const HostBuffer& want) {
  const auto b = want.values<float>(), a = got.values<float>().last(b.size());
  double worst = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    worst = std::max(worst, std::fabs(double{a[i]} - double{b[i]}));
  }
  return worst;
}

TEST_CASE("lora: parts of one weight, as llama.cpp computes them") {
  const FusedRig rig;
  CHECK(rig.decoder.config.has_fused_attention);
  CHECK(rig.decoder.config.has_fused_gate);
  const auto [read, config] =
      models::load_adapters("tests/train/data/phi3_adapters.gguf", rig.decoder);
  CHECK(config.targets ==
        std::vector<std::string>{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj"});
  REQUIRE(read.layers[1].key);
  CHECK(read.layers[1].key->b.shape()[0] == rig.decoder.layers[1].attention->key->rows);
  const HostBuffer want = io::read_npy("tests/train/data/phi3_adapters_logits.npy");
  const HostBuffer plain = io::read_npy("tests/models/data/tiny_phi3_logits.npy");
  const double change = largest_difference(plain, want);
  REQUIRE(change > 1);
  const Adapters adapters = rig.to_device(read);
  CHECK(largest_difference(rig.scores(adapters), want) < 2e-3);

  // A language model with the file, and one with a folder and a file that were made of it.
  const TempFolder folder;
  models::save_adapters(folder / "peft", adapters, config, rig.decoder.config);
  models::save_adapters(folder / "lora.gguf", adapters, config, rig.decoder.config);
  const io::File saved = io::open(folder / "peft" / "adapter_model.safetensors");
  const io::TensorEntry* const fused =
      saved.find("base_model.model.model.layers.0.self_attn.qkv_proj.lora_A.weight");
  REQUIRE(fused != nullptr);
  CHECK(fused->shape[0] == config.rank);  // one factor a, as it was read
  CHECK(saved.find("base_model.model.model.layers.1.mlp.gate_up_proj.lora_B.weight") != nullptr);
  for (const std::filesystem::path& path :
       {std::filesystem::path("tests/train/data/phi3_adapters.gguf"), folder / "peft",
        folder / "lora.gguf"}) {
    INFO(path.string());
    models::LanguageModelOptions options{.adapters = {{path}}};
    options.backend.exact = true;
    const auto model = models::LanguageModel::load(rig.model, options);
    auto conversation = model.conversation();
    const std::span<const float> logits = conversation.read(rig.ids.values<std::int32_t>());
    double worst = 0;
    const auto last = want.values<float>().last(logits.size());
    for (std::size_t i = 0; i < logits.size(); ++i) {
      worst = std::max(worst, std::fabs(double{logits[i]} - double{last[i]}));
    }
    CHECK(worst < 2e-3);
  }

  // Merged weights are quantised again.
  CHECK(largest_difference(rig.merged_scores(adapters), want) < 0.3 * change);
}

TEST_CASE("lora: targets of one weight with factors of their own") {
  const FusedRig rig;
  const models::LoraConfig some{.rank = 2, .alpha = 4, .targets = {"q_proj", "v_proj", "up_proj"}};
  const auto initial = [](std::string_view, const Shape&) {
    return train::Initial{train::Initial::Kind::uniform, 0.3};
  };
  auto adapters =
      train::initialize(models::adapter_shapes(rig.decoder, some), 4, rig.device, initial);
  adapters.layers[1].value->scale = 0.5;  // the others' is 2
  const HostBuffer want = rig.scores(adapters);
  const HostBuffer plain = rig.scores(train::initialize(models::adapter_shapes(rig.decoder, some),
                                                        4, rig.device, models::lora_initial));
  const double change = largest_difference(plain, want);
  REQUIRE(change > 0.5);
  const TempFolder folder;
  for (const char* name : {"peft", "lora.gguf"}) {
    INFO(name);
    models::save_adapters(folder / name, adapters, some, rig.decoder.config);
    const auto read = models::load_adapters(folder / name, rig.decoder).first;
    CHECK(read.layers[0].query->a.shape()[0] == 4);  // both ranks
    CHECK(largest_difference(rig.scores(rig.to_device(read)), want) < 1e-4 * change);
  }

  // What is merged is in the rows of the target alone.
  const auto before = io::load(rig.decoder, rig.file, rig.device);
  models::DecoderAdapters<Buffer> one;
  one.layers.resize(rig.decoder.layers.size());
  one.layers[0].value = adapters.layers[0].value;
  const auto after = models::merge_adapters(before, one, rig.device);
  const nn::Linear<Buffer>& value = *after.layers[0].attention->value;
  const auto dense = [](const Buffer& buffer) { return buffer.to_host().to(f32); };
  const HostBuffer old = dense(before.layers[0].attention->value->weight);
  const HostBuffer made = dense(value.weight),
                   queries = dense(after.layers[0].attention->query.weight);
  CHECK(std::ranges::equal(made.values<float>(), queries.values<float>()));
  const auto row = [&](const HostBuffer& array, std::int64_t i) {
    const auto width = static_cast<std::size_t>(array.shape()[1]);
    return array.values<float>().subspan(static_cast<std::size_t>(i) * width, width);
  };
  for (std::int64_t i = 0; i < made.shape()[0]; ++i) {
    const bool is_its = i >= value.first_row && i < value.first_row + value.rows;
    INFO("row " << i);
    CHECK(std::ranges::equal(row(made, i), row(old, i)) == !is_its);
  }

  const auto shapes_of = [&](std::vector<std::string> names, const models::Decoder<>& decoder) {
    return models::adapter_shapes(decoder, {.rank = 2, .targets = std::move(names)});
  };
  const auto whole = shapes_of({"qkv_proj", "gate_up_proj"}, rig.decoder);
  CHECK((whole.layers[0].key && whole.layers[0].gate && !whole.layers[0].output));
  expect_error(Errc::bad_argument, [&] { shapes_of({"qkv_proj"}, Rig().decoder); });
  adapters.layers[0].query->b = adapters.layers[0].value->b;
  if (adapters.layers[0].query->b.shape()[0] != rig.decoder.layers[0].attention->query.rows) {
    expect_error(Errc::shape_mismatch, [&] {
      models::save_adapters(folder / "bad.gguf", adapters, some, rig.decoder.config);
    });
    expect_error(Errc::shape_mismatch, [&] { rig.merged_scores(adapters); });
  }
}

TEST_CASE("lora: what is saved makes the same change, whatever its ranks and scales") {
  const Rig rig;
  const TempFolder folder;
  const auto largest = [](const std::vector<float>& a, const std::vector<float>& b) {
    double value = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      value = std::max(value, std::fabs(double{a[i]} - double{b[i]}));
    }
    return value;
  };
  const models::LoraConfig more{.rank = 5, .alpha = 20, .targets = {"q_proj", "down_proj"}};
  const auto wide = train::initialize(models::adapter_shapes(rig.decoder, more), 8, rig.device,
                                      [](std::string_view, const Shape&) {
                                        return train::Initial{train::Initial::Kind::uniform, 0.3};
                                      });
  models::save_adapters(folder / "a.gguf", strong_adapters(rig, 5), lora, rig.config);
  models::save_adapters(folder / "b.gguf", wide, more, rig.config);
  const std::vector<models::AdapterSource> sources{{folder / "a.gguf", 0.5}, {folder / "b.gguf"}};
  const std::vector<float> both = logits_of({.adapters = sources}), plain = logits_of({});
  const double change = largest(both, plain);
  REQUIRE(change > 0.1);

  // Two added up: of other ranks and scales than any configuration says.
  const Adapters sum = map_fields<Buffer>(
      models::load_adapters(sources, rig.decoder),
      [&](const std::string&, const HostBuffer& factor) { return factor.to_device(rig.device); });
  for (const models::LoraConfig& config : {lora, more, models::LoraConfig{.alpha = 0}}) {
    for (const char* name : {"sum.gguf", "sum"}) {
      models::save_adapters(folder / name, sum, config, rig.config);
      INFO(name << ", alpha " << config.alpha);
      CHECK(largest(logits_of({.adapters = {{folder / name}}}), both) < 1e-4 * change);
    }
  }
  // An adapter that changes nothing, not one of which the file's alpha of 0 means the rank.
  models::LoraConfig none = lora;
  none.alpha = 0;
  Adapters still = strong_adapters(rig, 5);
  for (auto& layer : still.layers) {
    for (auto* slot : {&layer.query, &layer.key, &layer.value, &layer.output, &layer.up}) {
      (*slot)->scale = none.scale();
    }
  }
  for (const char* name : {"still.gguf", "still"}) {
    models::save_adapters(folder / name, still, none, rig.config);
    CHECK(logits_of({.adapters = {{folder / name}}}) == plain);
  }
  // A folder of PEFT's has a target in every layer; a GGUF file need not.
  Adapters part = wide;
  part.layers[0].down.reset();
  expect_error(Errc::bad_argument,
               [&] { models::save_adapters(folder / "part", part, more, rig.config); });
  models::save_adapters(folder / "part.gguf", part, more, rig.config);
  CHECK_FALSE(models::load_adapters(folder / "part.gguf", rig.decoder).first.layers[0].down);
  expect_error(Errc::bad_argument,
               [&] { models::save_adapters(folder / "none.gguf", {}, more, rig.config); });
  part.layers[1].query->a = part.layers[1].query->b;
  expect_error(Errc::shape_mismatch,
               [&] { models::save_adapters(folder / "part.gguf", part, more, rig.config); });
}

TEST_CASE("lora: adapters that do not fit the decoder are named") {
  const Rig rig;
  const auto weights = io::load(rig.decoder, rig.file, rig.device);
  const auto refused = [&](Errc code, std::string_view name, const auto& change) {
    Adapters adapters = strong_adapters(rig, 5);
    change(adapters.layers);
    try {
      models::merge_adapters(weights, adapters, rig.device);
      FAIL("merged");
    } catch (const Error& error) {
      CHECK(error.code() == code);
      CHECK(std::string_view(error.what()).find(name) != std::string_view::npos);
    }
    expect_error(code, [&] { models::with_adapters(weights, adapters); });
  };
  refused(Errc::bad_argument, "1 layers", [](auto& layers) { layers.pop_back(); });
  refused(Errc::shape_mismatch, "up_proj of layer 1",
          [](auto& layers) { layers[1].up->a = layers[1].up->b; });
  refused(Errc::shape_mismatch, "up_proj of layer 1",
          [](auto& layers) { layers[1].up->a = Buffer(); });
  refused(Errc::bad_argument, "k_proj of layer 0",
          [](auto& layers) { layers[0].key->scale = INFINITY; });
  // Of a decoder whose layers have no such parts.
  const io::File file = io::open("tests/models/data/tiny_mamba.gguf");
  const auto mamba = models::Decoder<>::init(file.view(), models::DecoderConfig::from(file));
  Adapters adapters = strong_adapters(rig, 5);
  adapters.layers.resize(mamba.layers.size());
  const auto states = io::load(mamba, file, rig.device);
  expect_error(Errc::bad_argument, [&] { models::merge_adapters(states, adapters, rig.device); });
  expect_error(Errc::bad_argument, [&] { models::with_adapters(states, adapters); });
}

TEST_CASE("lora: GGUF files of adapters") {
  using namespace std::string_view_literals;
  const Rig rig;
  const TempFolder folder;
  const std::filesystem::path path = folder / "lora.gguf";
  const auto write = [&](std::vector<io::Metadata::Entry> facts,
                         const std::vector<io::NamedTensor>& tensors) {
    io::save_gguf(path, io::Metadata(std::move(facts), nullptr, "test"), tensors);
  };
  const auto facts = [](std::string_view architecture, float alpha) {
    return std::vector<io::Metadata::Entry>{{"general.architecture", architecture},
                                            {"general.type", "adapter"sv},
                                            {"adapter.type", "lora"sv},
                                            {"adapter.lora.alpha", alpha}};
  };
  const Shape& query = rig.decoder.layers[0].attention->query.weight.shape();
  const auto factor = [](std::int64_t rows, std::int64_t columns) {
    return HostBuffer::zeros(Shape({rows, columns}, f16));
  };
  const io::NamedTensor a{"blk.1.attn_q.weight.lora_a", factor(5, query[1])},
      b{"blk.1.attn_q.weight.lora_b", factor(query[0], 5)};

  write(facts("llama", 10), {a, b});
  const auto [read, config] = models::load_adapters(path, rig.decoder);
  REQUIRE(read.layers.size() == rig.decoder.layers.size());
  CHECK(!read.layers[0].query);
  REQUIRE(read.layers[1].query);
  CHECK(read.layers[1].query->scale == 2);
  CHECK(read.layers[1].query->a.shape().dtype() == f32);
  CHECK(config.rank == 5);
  CHECK(config.targets == std::vector<std::string>{"q_proj"});

  const std::string what =
      expect_error(Errc::unsupported, [&] { models::LanguageModel::load(path); });
  CHECK(what.find("lora.gguf: a file of adapters") != std::string::npos);

  write(facts("llama", 0), {a, b});
  CHECK(models::load_adapters(path, rig.decoder).first.layers[1].query->scale == 1);

  const auto refused = [&](Errc code, std::vector<io::Metadata::Entry> of,
                           const std::vector<io::NamedTensor>& tensors) {
    write(std::move(of), tensors);
    expect_error(code, [&] { models::load_adapters(path, rig.decoder); });
  };
  refused(Errc::bad_reference, facts("qwen2", 10), {a, b});
  refused(Errc::bad_reference, facts("llama", 10), {a});
  refused(Errc::unsupported, facts("llama", 10), {b});
  refused(Errc::unsupported, facts("llama", 10), {a, b, {"token_embd.weight.lora_a", a.data}});
  refused(Errc::unsupported, facts("llama", 10), {a, b, {"blk.7.attn_q.weight.lora_a", a.data}});
  refused(Errc::shape_mismatch, facts("llama", 10), {{a.name, factor(5, query[1] + 32)}, b});
  refused(Errc::shape_mismatch, facts("llama", 10), {{a.name, factor(4, query[1])}, b});
  refused(Errc::unsupported, {{"general.architecture", "llama"sv}}, {a, b});
  refused(Errc::bad_key, {{"general.architecture", "llama"sv}, {"general.type", "adapter"sv}},
          {a, b});
}

TEST_CASE("lora: a merged weight is W + scale B A") {
  const HostBuffer w = HostBuffer::of<float>(Shape({2, 3}, f32), {1, 2, 3, 4, 5, 6});
  const nn::Lora<HostBuffer> change{HostBuffer::of<float>(Shape({1, 3}, f32), {1, 0, -1}),
                                    HostBuffer::of<float>(Shape({2, 1}, f32), {10, 100}), 0.5};
  const HostBuffer sum = models::merged(w, change);
  const std::vector<float> want{6, 2, -2, 54, 5, -44};
  CHECK(std::ranges::equal(sum.values<float>(), want));
  CHECK(w.values<float>()[0] == 1);
  CHECK(models::merged(w.to(f16), change).shape().dtype() == f16);
}

TEST_CASE("lora: PEFT's ranks and scales by module, and layers without adapters") {
  const Rig rig;
  const TempFolder folder;
  models::save_adapters(folder / "", strong_adapters(rig, 5), lora, rig.config);
  const std::string value = "base_model.model.model.layers.1.self_attn.v_proj.lora_";
  std::vector<io::NamedTensor> tensors;
  {
    const io::File file = io::open(folder / "adapter_model.safetensors");
    for (const io::TensorEntry& entry : file.tensors()) {
      HostBuffer data = file.at(entry.name).data();
      if (entry.name.find("layers.0.self_attn.o_proj") != std::string::npos) continue;
      if (entry.name == value + "A.weight") data = data.slice(0, 0, 2);
      if (entry.name == value + "B.weight") data = data.slice(1, 0, 2);
      tensors.push_back({entry.name, data.contiguous()});
    }
  }
  io::save_safetensors(folder / "adapter_model.safetensors", tensors);
  const auto load = [&](const std::string& members) {
    std::ofstream(folder / "adapter_config.json")
        << R"({"r": 3, "lora_alpha": 6, )" << members << '}';
    return models::load_adapters(folder / "", rig.decoder).first;
  };
  const std::string found = R"("target_modules": "all-linear", )";
  const std::string ranks = R"("rank_pattern": {"^model.layers.1.self_attn.v_proj": 2})";
  const auto plain = load(found + ranks);
  CHECK_FALSE(plain.layers[0].output);
  CHECK(plain.layers[1].output->scale == 2);
  CHECK(plain.layers[1].value->a.shape()[0] == 2);
  CHECK(plain.layers[1].value->scale == 3);
  const auto scaled = load(found + ranks + R"(, "use_rslora": true,
      "alpha_pattern": {"up_proj": 9, "layers.0.self_attn.q_proj": 1.5})");
  CHECK(scaled.layers[0].up->scale == 9 / std::sqrt(3.0));
  CHECK(scaled.layers[0].query->scale == 1.5 / std::sqrt(3.0));
  CHECK(scaled.layers[1].query->scale == 6 / std::sqrt(3.0));
  CHECK(scaled.layers[1].value->scale == 6 / std::sqrt(2.0));
  expect_error(Errc::shape_mismatch, [&] { load(found + R"("rank_pattern": {})"); });
  // Named modules have to be there, in the layers that are named.
  const std::string most =
      R"("target_modules": ["q_proj", "k_proj", "self_attn.v_proj", "mlp.up_proj")";
  CHECK(load(most + R"(, "layers.1.self_attn.o_proj"], )" + ranks).layers[1].output);
  expect_error(Errc::bad_reference, [&] { load(most + R"(, "o_proj"], )" + ranks); });
  expect_error(Errc::unsupported, [&] { load(found + ranks + R"(, "layers_to_transform": [1])"); });
  std::erase_if(tensors, [](const io::NamedTensor& tensor) {
    return tensor.name.find("layers.1.") == std::string::npos;
  });
  io::save_safetensors(folder / "adapter_model.safetensors", tensors);
  for (const char* one : {"1", "[1]"}) {
    const auto upper =
        load(most + R"(, "o_proj"], )" + ranks + R"(, "layers_to_transform": )" + one);
    CHECK_FALSE(upper.layers[0].query);
    CHECK(upper.layers[1].output);
  }
}

TEST_CASE("lora: what is refused") {
  const Rig rig;
  models::LoraConfig config = lora;
  config.rank = 0;
  expect_error(Errc::bad_argument, [&] { models::adapter_shapes(rig.decoder, config); });
  config = lora;
  config.targets.emplace_back("lm_head");
  expect_error(Errc::bad_argument, [&] { models::adapter_shapes(rig.decoder, config); });
  const HostBuffer w = HostBuffer::zeros(Shape({4, 3}, f32));
  expect_error(Errc::shape_mismatch, [&] {
    models::merged(w,
                   {HostBuffer::zeros(Shape({2, 4}, f32)), HostBuffer::zeros(Shape({4, 2}, f32))});
  });
  const TempFolder folder;
  expect_error(Errc::not_found, [&] { models::load_adapters(folder / "none", rig.decoder); });
  const auto refused = [&](Errc code, const std::string& json) {
    std::ofstream(folder / "adapter_config.json") << json;
    expect_error(code, [&] { models::load_adapters(folder / "", rig.decoder); });
  };
  refused(Errc::syntax, "{");
  refused(Errc::unsupported, R"({"peft_type": "IA3"})");
  refused(Errc::unsupported,
          R"({"r": 3, "lora_alpha": 6, "target_modules": [], "use_dora": true})");
  refused(Errc::unsupported, R"({"r": 3, "lora_alpha": 6, "target_modules": [], "bias": "all"})");
  refused(Errc::unsupported,
          R"({"r": 3, "lora_alpha": 6, "target_modules": [], "alpha_pattern": {".*q_proj": 9}})");
  refused(Errc::bad_key, R"({"r": 3, "lora_alpha": 6, "target_modules": [], "rank_pattern": [9]})");
  refused(Errc::bad_key,
          R"({"r": 3, "lora_alpha": 6, "target_modules": [], "rank_pattern": {"q_proj": 9.5}})");
  refused(Errc::bad_key,
          R"({"r": 3, "lora_alpha": 6, "target_modules": [], "layers_to_transform": ["all"]})");
  refused(
      Errc::unsupported,
      R"({"r": 3, "lora_alpha": 6, "target_modules": [], "init_lora_weights": "pissa_niter_4"})");
  refused(Errc::bad_key, R"({"r": 3, "lora_alpha": 6, "target_modules": 5})");
  refused(Errc::bad_argument, R"({"r": 3, "lora_alpha": 6, "target_modules": ["lm_head"]})");
  refused(Errc::not_found, R"({"r": 3, "lora_alpha": 6, "target_modules": ["q_proj"]})");
  auto adapters = train::initialize(rig.shapes, 3, rig.device, models::lora_initial);
  models::save_adapters(folder / "", adapters, lora, rig.config);
  refused(Errc::shape_mismatch, R"({"r": 4, "lora_alpha": 6, "target_modules": ["q_proj"]})");
  refused(Errc::bad_reference, R"({"r": 3, "lora_alpha": 6, "target_modules": ["gate_proj"]})");
  refused(
      Errc::bad_argument,
      R"({"r": 3, "lora_alpha": 6, "target_modules": ["q_proj"], "rank_pattern": {"q_proj": 0}})");
  refused(Errc::unsupported, R"({"r": 3, "lora_alpha": 6, "target_modules": ["q_proj"],
                                 "alpha_pattern": {"q_proj": 9, "self_attn.q_proj": 8}})");
  refused(Errc::bad_reference, R"({"r": 3, "lora_alpha": 6, "target_modules": ["q_proj"],
                                   "layers_to_transform": 99})");
  // The file has factors of other targets, too.
  refused(Errc::unsupported, R"({"r": 3, "lora_alpha": 6, "target_modules": ["q_proj"]})");
}

}  // namespace
}  // namespace tenon::testing
