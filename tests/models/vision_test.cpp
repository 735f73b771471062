// Language models that read images: tiny encoders against Hugging Face's transformers in f64, and
// conversations that hold embeddings.
#include "io/temp_folder.hpp"
#include "logits.hpp"
#include "support/expect_error.hpp"
#include "support/rounds.hpp"
#include "support/shown_code.hpp"
#include "vision_files.hpp"

#include <tenon/error.hpp>
#include <tenon/io/file.hpp>
#include <tenon/io/npy.hpp>
#include <tenon/io/save.hpp>
#include <tenon/models/vision.hpp>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace vision_tests {

TEST_CASE("vision: images are prepared as transformers' image processors do") {
  for (const std::string projector : {"mlp", "gemma3", "idefics3"}) {
    INFO(projector);
    const VisionEncoder encoder = tiny_encoder(projector);
    const HostBuffer made = encoder.preprocess(picture()), want = expected(projector + "_pixels");
    CHECK(made.shape() == want.shape());
    // One step of a pixel is 1 / 255 / deviation, above 0.007.
    CHECK(greatest_difference(made.values<float>(), want.values<float>()) < 1e-6);
  }
}

TEST_CASE("vision: embeddings are those of transformers") {
  for (const std::string projector : {"mlp", "gemma3", "idefics3"}) {
    INFO(projector);
    const VisionEncoder encoder = tiny_encoder(projector);
    const HostBuffer made = encoder.encode(picture()), want = expected(projector + "_embeddings");
    CHECK(made.shape() == want.shape());
    CHECK(greatest_difference(made.values<float>(), want.values<float>()) < 2e-5);
    CHECK(greatest_difference(encoder.fork().encode(picture()).values<float>(),
                              made.values<float>()) == 0);
  }
}

TEST_CASE("vision: matrices of layers can be quantised when they are loaded") {
  models::EncoderOptions options = exact_encoder();
  options.weights = DType::q8_0;
  const auto encoder = VisionEncoder::load(folder / "gemma3.gguf", options);
  const HostBuffer made = encoder.encode(picture()), want = expected("gemma3_embeddings");
  const double difference = greatest_difference(made.values<float>(), want.values<float>());
  CHECK(difference > 1e-5);
  CHECK(difference < 0.1);
  options.weights = DType::f16;
  expect_error(Errc::bad_argument, [&] { VisionEncoder::load(folder / "gemma3.gguf", options); });
}

TEST_CASE("vision: logits behind text, an image and text are those of transformers") {
  const HostBuffer want = expected("gemma3_logits");
  const auto vocabulary = static_cast<std::size_t>(want.shape()[1]);
  const HostBuffer image = tiny_encoder("gemma3").encode(picture());
  for (const std::int64_t chunk : {512, 3}) {
    INFO(chunk);
    const LanguageModel model = tiny_model("gemma3", chunk);
    Conversation conversation = model.conversation();
    std::vector<float> rows;
    const auto take = [&](std::span<const float> logits, std::int64_t) {
      rows.insert(rows.end(), logits.begin(), logits.end());
    };
    conversation.read_all(ids(12), take);
    // Of the image only the last logits are known.
    const auto last = conversation.read_embeddings(image.values<float>(), RowAttention::mutual);
    rows.resize(rows.size() + 3 * vocabulary);
    take(last, 1);
    conversation.read_all(ids(11, 12), take);
    CHECK(conversation.position() == want.shape()[0]);
    for (std::size_t row = 0; row < 27; ++row) {
      if (row >= 12 && row < 15) continue;
      INFO(row);
      const auto at = [&](std::span<const float> all) {
        return log_softmax(all.subspan(row * vocabulary, vocabulary));
      };
      const auto made = at(rows), right = at(want.values<float>());
      double worst = 0;
      for (std::size_t i = 0; i < vocabulary; ++i) {
        worst = std::max(worst, std::abs(made[i] - right[i]));
      }
      CHECK(worst < 2e-3);
    }
  }
}

TEST_CASE("vision: whether embeddings see each other changes what is read") {
  const LanguageModel model = tiny_model("gemma3");
  const auto rows = rows_of(4, 32);
  std::vector<Logits> read;
  for (const RowAttention attention : {RowAttention::causal, RowAttention::mutual}) {
    Conversation conversation = model.conversation();
    conversation.read_embeddings(rows, attention);
    read.push_back(after(conversation, ids(2)));
  }
  CHECK(greatest_difference(read[0], read[1]) > 1e-3);
}

TEST_CASE("embeddings: those of tokens give what the tokens give") {
  // With added positions, norms of embeddings, scales, states, latent attention, chunks.
  EveryThird third;
  for (const std::string architecture :
       {"llama", "gemma3", "gpt2", "bloom", "granite", "minicpm", "deepseek2", "mamba", "mamba2",
        "rwkv7", "lfm2", "jamba", "qwen3next", "llama4", "gpt-oss"}) {
    if (third.skips()) continue;
    INFO(architecture);
    for (const std::int64_t chunk : {512, 3}) {
      const LanguageModel model = tiny_model(architecture, chunk);
      Conversation tokens = model.conversation(), rows = model.conversation();
      after(tokens, ids(5));
      after(rows, ids(5));
      const Logits want = after(tokens, ids(8, 5));
      const auto made = rows.read_embeddings(embedded(model, ids(8, 5)));
      CHECK(greatest_difference(made, want) < 1e-4);
      CHECK(rows.position() == 13);
      const Ids more = ids(3, 13);
      CHECK(greatest_difference(after(rows, more), after(tokens, more)) < 1e-4);
    }
  }
}

TEST_CASE("embeddings: the conversation says where they are") {
  const LanguageModel model = tiny_model("gemma3");
  Conversation conversation = model.conversation();
  after(conversation, {10, 11});
  conversation.read_embeddings(rows_of(2, 32), RowAttention::mutual);
  conversation.read_embeddings(rows_of(3, 32, 2), RowAttention::mutual);
  after(conversation, {12});
  CHECK(Ids(conversation.tokens().begin(), conversation.tokens().end()) ==
        Ids{10, 11, -3, -3, -5, -5, -5, 12});

  SECTION("rewinding goes to their beginning") {
    CHECK(conversation.rewindable(8) == 8);
    CHECK(conversation.rewindable(7) == 7);
    CHECK(conversation.rewindable(6) == 4);
    CHECK(conversation.rewindable(4) == 4);
    CHECK(conversation.rewindable(3) == 2);
    CHECK(conversation.rewindable(1) == 1);
    CHECK(contains(expect_error(Errc::unsupported, [&] { conversation.rewind(6); }),
                   "read at once, from 4 on"));
    conversation.rewind(4);
    conversation.read_embeddings(rows_of(3, 32, 3), RowAttention::mutual);
    const Logits again = after(conversation, {13});
    Conversation other = model.conversation();
    after(other, {10, 11});
    other.read_embeddings(rows_of(2, 32), RowAttention::mutual);
    other.read_embeddings(rows_of(3, 32, 3), RowAttention::mutual);
    CHECK(greatest_difference(after(other, {13}), again) < 1e-5);
  }
  SECTION("what is kept ends before them") {
    const Ids held(conversation.tokens().begin(), conversation.tokens().end());
    CHECK(conversation.keep_prefix_of(held) == 2);
    CHECK(conversation.position() == 2);
  }
  SECTION("copies and files hold them") {
    Conversation fork = conversation.fork();
    const TempFolder place;
    conversation.save(place / "saved");
    Conversation restored = model.restore(place / "saved");
    CHECK(std::ranges::equal(restored.tokens(), conversation.tokens()));
    CHECK(restored.rewindable(6) == 4);
    const Logits want = after(conversation, {20, 21});
    CHECK(after(fork, {20, 21}) == want);
    CHECK(after(restored, {20, 21}) == want);
  }
  SECTION("a file with embeddings that begin elsewhere is refused") {
    const TempFolder place;
    conversation.save(place / "saved");
    for (const auto& [at, id] : {std::pair{0, -3}, std::pair{2, -2}, std::pair{3, -5},
                                 std::pair{7, -1}, std::pair{3, std::numeric_limits<int>::min()}}) {
      const io::File file = io::open(place / "saved", {.access = io::Access::read});
      std::vector<io::NamedTensor> tensors;
      for (const auto& tensor : file.tensors()) {
        HostBuffer data = tensor.data().contiguous();
        if (tensor.name == "tokens") {
          data.mutable_values<std::int32_t>()[static_cast<std::size_t>(at)] = id;
        }
        tensors.push_back({tensor.name, data});
      }
      std::map<std::string, std::string> facts;
      for (const auto& entry : file.metadata().entries()) {
        facts.emplace(entry.key, file.metadata().get<std::string>(entry.key));
      }
      io::save_safetensors(place / "changed", tensors, facts);
      CHECK(contains(expect_error(Errc::corrupt, [&] { model.restore(place / "changed"); }),
                     "outside"));
    }
  }
}

TEST_CASE("embeddings: what cannot be read is refused, and nothing changes") {
  const LanguageModel model = tiny_model("gemma3");
  Conversation conversation = model.conversation();
  after(conversation, {10, 11});
  const auto refuse = [&](Errc code, std::size_t numbers, RowAttention attention) {
    const std::vector<float> rows(numbers);
    expect_error(code, [&] { conversation.read_embeddings(rows, attention); });
    CHECK(conversation.position() == 2);
  };
  refuse(Errc::bad_argument, 0, RowAttention::causal);
  refuse(Errc::bad_argument, 33, RowAttention::causal);
  refuse(Errc::limit_exceeded, std::size_t{63} * 32, RowAttention::causal);
  refuse(Errc::unsupported, std::size_t{9} * 32, RowAttention::mutual);  // a window of 8
  conversation.read_embeddings(rows_of(8, 32), RowAttention::mutual);
  CHECK(conversation.position() == 10);
  std::stop_source stop;
  stop.request_stop();
  expect_error(Errc::cancelled, [&] {
    conversation.read_embeddings(rows_of(1, 32), RowAttention::causal,
                                 {.cancel = stop.get_token()});
  });
  CHECK(conversation.position() == 10);
}

TEST_CASE("embeddings: models that cannot read them say so") {
  for (const std::string architecture : {"gemma3n", "gemma4_inputs"}) {
    const LanguageModel model = tiny_model(architecture);
    Conversation conversation = model.conversation();
    const auto rows = rows_of(2, model.config().width);
    CHECK(contains(expect_error(Errc::unsupported, [&] { conversation.read_embeddings(rows); }),
                   model.config().architecture));
  }
  for (const std::string architecture : {"mamba", "deepseek2", "bloom", "llama4"}) {
    const LanguageModel model = tiny_model(architecture);
    Conversation conversation = model.conversation();
    const auto rows = rows_of(2, model.config().width);
    CHECK(contains(expect_error(Errc::unsupported,
                                [&] { conversation.read_embeddings(rows, RowAttention::mutual); }),
                   model.config().architecture));
    CHECK_NOTHROW(conversation.read_embeddings(rows));
  }
}

TEST_CASE("image prompt: markers become images with the text around them") {
  const auto shown = [](const LanguageModel& model, std::span<const PromptPart> parts) {
    std::string text;
    for (const PromptPart& part : parts) {
      text += part.rows.is_empty() ? model.tokenizer().decode(part.tokens)
                                   : "[" + std::to_string(part.positions()) + "]";
    }
    return text;
  };
  const HostBuffer image = picture();
  const std::vector<HostBuffer> images{image, image};
  SECTION("gemma3") {
    const LanguageModel model = tiny_model("gemma3");
    const VisionEncoder encoder = tiny_encoder("gemma3");
    const auto parts =
        models::image_prompt(model, encoder, "one <__media__> two <__media__>", images);
    CHECK(shown(model, parts) ==
          "one <start_of_image>[4]<end_of_image> two <start_of_image>[4]<end_of_image>");
    REQUIRE(parts.size() == 5);
    CHECK(parts[1].attention == RowAttention::mutual);
    CHECK(greatest_difference(parts[3].rows.values<float>(),
                              encoder.encode(image).values<float>()) == 0);
    CHECK(models::image_prompt(model, encoder, "no image", {}).size() == 1);

    const std::span<const HostBuffer> one(images.data(), 1);
    for (const char* text : {"none", "<__media__> <__media__>"}) {
      expect_error(Errc::bad_argument, [&] { models::image_prompt(model, encoder, text, one); });
    }
    // A message's spelling of a control token stays text.
    const text::Prompt prompt{.text = "<|im_start|>a <|im_end|><__media__> b <|im_end|>",
                              .content = {{12, 38}}};
    const auto chat = models::image_prompt(model, encoder, prompt, one);
    REQUIRE(chat.size() == 3);
    CHECK(std::ranges::count(chat[0].tokens, 1) == 1);
    CHECK(std::ranges::count(chat[0].tokens, 2) == 0);
    CHECK(std::ranges::count(chat[2].tokens, 2) == 1);
  }
  SECTION("mlp") {
    const LanguageModel model = tiny_model("llama");
    const auto parts = models::image_prompt(model, tiny_encoder("mlp"), "a<__media__>b",
                                            std::span(images).first(1));
    CHECK(shown(model, parts) == "a[16]b");
    CHECK(parts[1].attention == RowAttention::causal);
  }
  SECTION("idefics3") {
    const LanguageModel model = tiny_model("llama");
    const auto parts = models::image_prompt(model, tiny_encoder("idefics3"), "a<__media__>b",
                                            std::span(images).first(1));
    const std::string mark = "<fake_token_around_image>";
    CHECK(shown(model, parts) == "a" + mark + "<row_1_col_1>[4]" + mark + "<row_1_col_2>[4]\n" +
                                     mark + "<row_2_col_1>[4]" + mark + "<row_2_col_2>[4]\n" +
                                     mark + "<row_3_col_1>[4]" + mark + "<row_3_col_2>[4]\n\n" +
                                     mark + "<global-img>[4]" + mark + "b");
    CHECK(parts[1].attention == RowAttention::causal);
    CHECK_NOTHROW(expect_error(Errc::incompatible, [&] {
      TinyEncoder other("idefics3");
      other.metadata.set("clip.vision.projection_dim", 31);
      for (io::NamedTensor& tensor : other.tensors) {
        if (tensor.name == "mm.model.fc.weight")
          tensor.data = tensor.data.slice(0, 0, 31).contiguous();
      }
      const TempFolder place;
      io::save_gguf(place / "other.gguf", other.metadata, other.tensors);
      models::image_prompt(model, VisionEncoder::load(place / "other.gguf"), "a", {});
    }));
  }
}

TEST_CASE("image prompt: is read by generate()") {
  const LanguageModel model = tiny_model("gemma3");
  const VisionEncoder encoder = tiny_encoder("gemma3");
  const HostBuffer image = picture();
  const auto parts = models::image_prompt(model, encoder, "see <__media__>:", {&image, 1});
  Conversation conversation = model.conversation();
  const auto made =
      models::generate(model, conversation, parts,
                       {.max_tokens = 6, .sampler = {.temperature = 0, .repetition_penalty = 1.2}});
  std::int64_t positions = 0;
  for (const PromptPart& part : parts) positions += part.positions();
  CHECK(made.prompt_tokens == positions);
  CHECK(made.tokens.size() == 6);

  Conversation other = model.conversation();
  other.read(parts[0].tokens);
  other.read_embeddings(parts[1].rows.values<float>(), parts[1].attention);
  Ids history = parts[0].tokens;
  history.insert(history.end(), parts[2].tokens.begin(), parts[2].tokens.end());
  nn::Sampler sampler({.temperature = 0, .repetition_penalty = 1.2});
  Ids next = parts[2].tokens, drawn;
  for (int i = 0; i < 6; ++i) {
    drawn.push_back(sampler.sample(other.read(next), history));
    history.push_back(drawn.back());
    next = {drawn.back()};
  }
  CHECK(drawn == made.tokens);

  const auto beginning = std::span(parts).first(2);
  expect_error(Errc::bad_argument, [&] { models::generate(model, conversation, beginning, {}); });
  expect_error(Errc::bad_argument,
               [&] { models::generate(model, conversation, std::span<const PromptPart>(), {}); });
  for (const auto& [code, rows] :
       {std::pair{Errc::bad_shape, HostBuffer::zeros(Shape({2, 64}, f32))},
        std::pair{Errc::bad_shape, HostBuffer::zeros(Shape({32}, f32))},
        std::pair{Errc::bad_type, HostBuffer::zeros(Shape({2, 32}, f64))}}) {
    const std::vector<PromptPart> wrong{{.rows = rows}, {.tokens = {10}}};
    Conversation fresh = model.conversation();
    expect_error(code, [&] { models::generate(model, fresh, wrong, {}); });
    CHECK(fresh.position() == 0);
  }
  std::stop_source stop;
  stop.request_stop();
  Conversation third = model.conversation();
  CHECK(models::generate(model, third, parts, {.interrupt = {.cancel = stop.get_token()}}).end ==
        models::Generated::End::cancelled);
}

TEST_CASE("vision.md: the code that it shows") {
  check_shown_code("docs/vision.md", "tests/models/vision_test.cpp", 1);
  const std::string model_file = "tests/models/data/tiny_gemma3.gguf";
  const auto mmproj_file = folder / "gemma3.gguf";
  const HostBuffer given = picture();
  const std::int64_t height = 37, width = 23;
  const auto pixels = given.values<std::uint8_t>();

  const auto model = LanguageModel::load(model_file);
  const auto encoder = VisionEncoder::load(mmproj_file);
  const HostBuffer image = HostBuffer::of(Shape({height, width, 3}, u8), pixels);
  const auto prompt = models::image_prompt(model, encoder, "What is <__media__>?", {&image, 1});
  Conversation conversation = model.conversation();
  const auto answer = models::generate(model, conversation, prompt, {.max_tokens = 8});

  CHECK(answer.tokens.size() == 8);
}

TEST_CASE("vision: other arrays than images are refused") {
  const VisionEncoder encoder = tiny_encoder("gemma3");
  const auto refuse = [&](Errc code, const Shape& shape) {
    expect_error(code, [&] { encoder.encode(HostBuffer::zeros(shape)); });
  };
  refuse(Errc::bad_type, Shape({4, 4, 3}, f32));
  refuse(Errc::bad_shape, Shape({4, 4}, u8));
  refuse(Errc::bad_shape, Shape({4, 4, 4}, u8));
  refuse(Errc::bad_argument, Shape({0, 4, 3}, u8));
  refuse(Errc::bad_argument, Shape({4, 0, 3}, u8));
  refuse(Errc::limit_exceeded, Shape({1, 32769, 3}, u8));
  // Borders would make 2^30 pixels of 2^15.
  for (const Shape& line : {Shape({1, 32768, 3}, u8), Shape({32768, 1, 3}, u8)}) {
    const std::string message = expect_error(
        Errc::limit_exceeded, [&] { tiny_encoder("mlp").encode(HostBuffer::zeros(line)); });
    CHECK(contains(message, "square"));
  }
  // One pixel, a line, and a view that is not dense.
  for (const Shape& shape :
       {Shape({1, 1, 3}, u8), Shape({1, 700, 3}, u8), Shape({700, 1, 3}, u8)}) {
    for (const std::string projector : {"mlp", "gemma3", "idefics3"}) {
      const HostBuffer made = tiny_encoder(projector).encode(HostBuffer::zeros(shape));
      for (const float x : made.values<float>()) REQUIRE(std::isfinite(x));
    }
  }
  const HostBuffer turned = picture().permute(std::vector<int>{1, 0, 2});
  CHECK(greatest_difference(encoder.encode(turned).values<float>(),
                            encoder.encode(turned.contiguous()).values<float>()) == 0);
}

TEST_CASE("vision: files without what is needed are refused by name") {
  SECTION("keys") {
    for (const char* key :
         {"general.architecture", "clip.projector_type", "clip.vision.block_count",
          "clip.vision.embedding_length", "clip.vision.feed_forward_length",
          "clip.vision.attention.head_count", "clip.vision.image_size", "clip.vision.patch_size",
          "clip.vision.projection_dim", "clip.vision.image_mean", "clip.vision.image_std"}) {
      TinyEncoder encoder("gemma3");
      encoder.remove(key);
      // Without the first key of a projector the second is asked for.
      const std::string named =
          std::string(key) == "clip.projector_type" ? "clip.vision.projector_type" : key;
      CHECK(contains(encoder.refused(Errc::bad_key), named));
    }
  }
  SECTION("sizes") {
    const std::int64_t huge = std::int64_t{1} << 40;
    const struct {
      const char* key;
      std::vector<std::int64_t> values;
    } cases[] = {{"block_count", {0, -1, 513, huge}},
                 {"embedding_length", {0, -32, huge}},
                 {"feed_forward_length", {0, huge}},
                 {"attention.head_count", {0, 3, -2, 64, huge}},
                 {"image_size", {0, -16, huge}},
                 {"patch_size", {0, 17, -4, huge}},
                 {"projection_dim", {0, -1, huge}},
                 {"projector.scale_factor", {0, 3, 5, huge}},
                 {"preproc_image_size", {-1, 16 * 32 + 1, huge}}};
    for (const auto& [key, values] : cases) {
      for (const std::int64_t value : values) {
        INFO(key << " = " << value);
        TinyEncoder encoder("idefics3");
        encoder.metadata.set(std::string("clip.vision.") + key, value);
        CHECK(contains(encoder.refused(Errc::bad_hyperparameter), key));
      }
    }
  }
  SECTION("colours") {
    const float none = std::numeric_limits<float>::quiet_NaN();
    for (const std::vector<float>& values :
         {std::vector<float>{}, std::vector<float>{1, 1}, std::vector<float>{1, 0, 1},
          std::vector<float>{1, none, 1}}) {
      TinyEncoder encoder("gemma3");
      encoder.metadata.set_array("clip.vision.image_std", std::span<const float>(values));
      CHECK(contains(encoder.refused(Errc::bad_hyperparameter), "image_std"));
    }
  }
  SECTION("tensors that are missing or have other sizes") {
    for (const std::string projector : {"mlp", "gemma3", "idefics3"}) {
      const TinyEncoder whole(projector);
      for (std::size_t i = 0; i < whole.tensors.size(); ++i) {
        const std::string& name = whole.tensors[i].name;
        INFO(projector << " " << name);
        const bool is_optional =
            name.ends_with(".bias") || name == "v.post_ln.weight" || name == "v.pre_ln.weight";
        TinyEncoder encoder(projector);
        encoder.tensors.erase(encoder.tensors.begin() + static_cast<std::ptrdiff_t>(i));
        if (name == "v.class_embd") {  // then there is a position too many
          CHECK(contains(encoder.refused(Errc::corrupt), "position_embd"));
        } else if (!is_optional) {
          CHECK(contains(encoder.refused(Errc::bad_reference), name));
        }
        TinyEncoder cut(projector);
        HostBuffer& data = cut.tensors[i].data;
        data = data.slice(0, 0, data.shape()[0] - 1).contiguous();
        cut.refused(Errc::corrupt);
      }
    }
  }
  SECTION("layers of LLaVA") {
    const auto set = [](TinyEncoder& encoder, std::initializer_list<std::int32_t> layers) {
      encoder.metadata.set_array("clip.vision.feature_layer",
                                 std::span<const std::int32_t>(layers.begin(), layers.size()));
    };
    for (const auto& layers : {std::initializer_list<std::int32_t>{}, {0}, {3}, {-1}, {1, 2}}) {
      TinyEncoder encoder("mlp");
      set(encoder, layers);
      CHECK(contains(encoder.refused(Errc::unsupported), "feature_layer"));
    }
    const TempFolder place;
    const auto encoded = [&](std::int32_t layer) {
      TinyEncoder encoder("mlp");
      set(encoder, {layer});
      io::save_gguf(place / "one.gguf", encoder.metadata, encoder.tensors);
      return VisionEncoder::load(place / "one.gguf", exact_encoder()).encode(picture());
    };
    const HostBuffer want = expected("mlp_embeddings");
    CHECK(greatest_difference(encoded(2).values<float>(), want.values<float>()) < 2e-5);
    CHECK(greatest_difference(encoded(1).values<float>(), want.values<float>()) > 1e-2);
    TinyEncoder encoder("mlp");
    encoder.metadata.set_array("clip.vision.image_grid_pinpoints",
                               std::span<const std::int32_t>(std::vector<std::int32_t>{16, 32}));
    CHECK(contains(encoder.refused(Errc::unsupported), "image_grid_pinpoints"));
  }
  SECTION("other projectors, and files of language models") {
    TinyEncoder encoder("gemma3");
    encoder.metadata.set("clip.projector_type", "pixtral");
    CHECK(contains(encoder.refused(Errc::unsupported), "pixtral"));
    encoder.metadata.set("clip.projector_type", 3);
    encoder.refused(Errc::bad_type);
    TinyEncoder blind("gemma3");
    blind.metadata.set("clip.has_vision_encoder", false);
    blind.refused(Errc::unsupported);
    CHECK(contains(expect_error(Errc::unsupported,
                                [] { VisionEncoder::load("tests/models/data/tiny_llama.gguf"); }),
                   "llama"));
    expect_error(Errc::unsupported, [] { LanguageModel::load(folder / "gemma3.gguf"); });
  }
}

}  // namespace vision_tests
