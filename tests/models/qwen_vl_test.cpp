// The Qwen-VL families: tiny encoders and language models against Hugging Face's transformers in f64, and conversations
// whose images have positions of two axes.
#include "logits.hpp"
#include "support/failing_memory.hpp"
#include "vision_files.hpp"

#include <map>
#include <stop_token>

namespace vision_tests {

namespace {

using models::ImageGrid;

const std::vector<std::string> families{"qwen2vl", "qwen25vl", "qwen3vl"};

/// The language model of a family; that of Qwen3-VL with two layers to which images add something.
LanguageModel qwen_model(const std::string& family, std::int64_t chunk = 512) {
  if (family != "qwen3vl") return tiny_model("qwen2vl", chunk);
  const io::File file = io::open("tests/models/data/tiny_qwen3vl.gguf");
  io::Metadata metadata = file.metadata();
  metadata.set("qwen3vl.n_deepstack_layers", 2);
  std::vector<io::NamedTensor> tensors;
  for (const io::TensorEntry& entry : file.tensors()) tensors.push_back({entry.name, entry.data()});
  const TempFolder place;
  io::save_gguf(place / "qwen3vl.gguf", metadata, tensors);
  models::LanguageModelOptions options;
  options.context = 64;
  options.chunk = chunk;
  options.backend = {.threads = 1, .exact = true};
  return LanguageModel::load(place / "qwen3vl.gguf", options);
}

/// Rows and columns of the picture's embeddings.
ImageGrid grid_of(const VisionEncoder& encoder) { return encoder.config().size_of(37, 23); }

std::vector<float> image_rows(const LanguageModel& model, const ImageGrid& grid,
                              unsigned seed = 1) {
  return rows_of(grid.embeddings(), model.config().image_row(), seed);
}

Ids held(const Conversation& conversation) {
  return {conversation.tokens().begin(), conversation.tokens().end()};
}

}  // namespace

TEST_CASE("qwen-vl: an image's size is that of transformers' smart_resize") {
  const struct {
    std::int64_t patch, min, max, height, width, rows, columns;
  } cases[] = {{14, 3136, 12845056, 1, 1, 2, 2},         {14, 3136, 12845056, 37, 23, 3, 2},
               {14, 3136, 12845056, 42, 70, 2, 2},       {14, 3136, 12845056, 1000, 5, 29, 1},
               {14, 3136, 12845056, 1080, 1920, 39, 69}, {14, 3136, 3211264, 3000, 4000, 55, 73},
               {14, 3136, 3211264, 20, 4000, 1, 143},    {16, 65536, 4194304, 1, 1, 8, 8},
               {16, 65536, 4194304, 37, 23, 11, 7},      {16, 65536, 4194304, 1000, 5, 114, 1},
               {16, 65536, 4194304, 97, 640, 4, 21},     {4, 512, 100000, 5, 5, 3, 3},
               {4, 512, 100000, 20, 4000, 2, 500},       {4, 512, 100000, 3000, 4000, 34, 45}};
  for (const auto& one : cases) {
    INFO(one.height << " x " << one.width << " in " << one.min << " to " << one.max);
    models::VisionConfig config;
    config.patch_size = one.patch;
    config.merge = 2;
    config.min_pixels = one.min;
    config.max_pixels = one.max;
    const ImageGrid made = config.size_of(one.height, one.width);
    CHECK(made.rows == one.rows);
    CHECK(made.columns == one.columns);
    expect_error(Errc::bad_argument, [&] { config.size_of(201, 1); });
    expect_error(Errc::bad_argument, [&] { config.size_of(3, 601); });
  }
}

TEST_CASE("qwen-vl: images are prepared as transformers' image processor does") {
  for (const std::string family : {"qwen2vl", "qwen3vl"}) {
    INFO(family);
    const HostBuffer made = tiny_encoder(family).preprocess(picture());
    const HostBuffer want = expected(family + "_pixels");
    CHECK(made.shape() == want.shape());
    CHECK(greatest_difference(made.values<float>(), want.values<float>()) < 1e-6);
  }
}

TEST_CASE("qwen-vl: embeddings are those of transformers") {
  for (const std::string& family : families) {
    INFO(family);
    const VisionEncoder encoder = tiny_encoder(family);
    const HostBuffer made = encoder.encode(picture()), want = expected(family + "_embeddings");
    CHECK(made.shape() == want.shape());
    CHECK(greatest_difference(made.values<float>(), want.values<float>()) < 2e-5);
    const VisionEncoder fork = encoder.fork();
    CHECK(greatest_difference(fork.encode(picture()).values<float>(), made.values<float>()) == 0);
    // Another size, and the first again.
    const HostBuffer wide = fork.encode(picture().permute(std::vector<int>{1, 0, 2}));
    CHECK(wide.shape() == made.shape());
    CHECK(greatest_difference(wide.values<float>(), made.values<float>()) > 1e-2);
    CHECK(greatest_difference(fork.encode(picture()).values<float>(), made.values<float>()) == 0);
  }
}

TEST_CASE("qwen-vl: logits behind text, an image and text are those of transformers") {
  for (const std::string& family : families) {
    const HostBuffer want = expected(family + "_logits");
    const auto vocabulary = static_cast<std::size_t>(want.shape()[1]);
    const VisionEncoder encoder = tiny_encoder(family);
    const HostBuffer image = encoder.encode(picture());
    for (const std::int64_t chunk : {512, 4}) {
      INFO(family << " in chunks of " << chunk);
      const LanguageModel model = qwen_model(family, chunk);
      Conversation conversation = model.conversation();
      std::map<std::size_t, Logits> rows;
      const auto reads = [&](const Ids& tokens) {
        auto row = static_cast<std::size_t>(conversation.position());
        conversation.read_all(tokens, [&](std::span<const float> logits, std::int64_t count) {
          for (std::int64_t i = 0; i < count; ++i, ++row) {
            const auto one = logits.subspan(static_cast<std::size_t>(i) * vocabulary, vocabulary);
            rows[row] = {one.begin(), one.end()};
          }
        });
      };
      reads(ids(12));
      const auto last = conversation.read_image(image.values<float>(), grid_of(encoder));
      rows[static_cast<std::size_t>(conversation.position()) - 1] = {last.begin(), last.end()};
      reads(ids(11, 12));
      CHECK(conversation.position() == want.shape()[0]);
      CHECK(rows.size() == 24);
      for (const auto& [row, logits] : rows) {
        INFO(row);
        const auto made = log_softmax(logits);
        const auto right = log_softmax(want.values<float>().subspan(row * vocabulary, vocabulary));
        double worst = 0;
        for (std::size_t i = 0; i < vocabulary; ++i) {
          worst = std::max(worst, std::abs(made[i] - right[i]));
        }
        CHECK(worst < 2e-3);
      }
    }
  }
}

TEST_CASE("qwen-vl: embeddings of tokens give what the tokens give, before and behind an image") {
  for (const std::string family : {"qwen2vl", "qwen3vl"}) {
    INFO(family);
    const LanguageModel model = qwen_model(family);
    Conversation tokens = model.conversation(), rows = model.conversation();
    const ImageGrid grid{2, 5};
    for (const bool is_behind : {false, true}) {
      if (is_behind) {
        tokens.read_image(image_rows(model, grid), grid);
        rows.read_image(image_rows(model, grid), grid);
      }
      const Logits want = after(tokens, ids(6));
      CHECK(greatest_difference(rows.read_embeddings(embedded(model, ids(6))), want) < 1e-4);
      CHECK(greatest_difference(after(rows, ids(2)), after(tokens, ids(2))) < 1e-4);
    }
  }
}

TEST_CASE("qwen-vl: where an image's rows stand matters, and what stands behind it") {
  const LanguageModel model = qwen_model("qwen2vl");
  std::vector<Logits> read;
  for (const ImageGrid& grid : {ImageGrid{2, 6}, ImageGrid{6, 2}, ImageGrid{12, 1}}) {
    Conversation conversation = model.conversation();
    after(conversation, ids(3));
    conversation.read_image(image_rows(model, {2, 6}), grid);
    CHECK(conversation.position() == 15);
    read.push_back(after(conversation, ids(2, 3)));
  }
  CHECK(greatest_difference(read[0], read[1]) > 1e-4);
  CHECK(greatest_difference(read[1], read[2]) > 1e-4);
}

TEST_CASE("qwen-vl: behind an image for which memory ran out, positions are right") {
  const LanguageModel model = qwen_model("qwen2vl", 4);
  const ImageGrid grid{2, 3};
  const std::vector<float> rows = image_rows(model, grid);
  Conversation conversation = model.conversation();
  after(conversation, ids(3));
  // What two tokens give behind the three, and behind an image.
  const auto behind = [&](bool image) {
    conversation.rewind(3);
    if (image) conversation.read_image(rows, grid);
    return after(conversation, ids(2));
  };
  const Logits without = behind(false), with = behind(true);
  CHECK(greatest_difference(with, without) > 1e-4);
  testing::fail_allocations(
      200,
      [&] {
        conversation.rewind(3);
        conversation.read_image(rows, grid);
        conversation.rewind(3);
      },
      [&] {
        CHECK(greatest_difference(behind(false), without) == 0);
        CHECK(greatest_difference(behind(true), with) == 0);
      });
}

TEST_CASE("qwen-vl: conversations with images go back, are copied and saved") {
  for (const std::string family : {"qwen2vl", "qwen3vl"}) {
    INFO(family);
    const LanguageModel model = qwen_model(family, 4);
    const ImageGrid first{2, 3}, second{3, 3};
    Conversation conversation = model.conversation();
    after(conversation, ids(2));
    conversation.read_image(image_rows(model, first), first);
    const Logits between = after(conversation, ids(3, 2));
    conversation.read_image(image_rows(model, second, 2), second);
    CHECK(conversation.position() == 20);
    CHECK(held(conversation)[2] == -3);
    CHECK(held(conversation)[19] == -12);

    SECTION("rewinding takes the positions back") {
      CHECK(conversation.rewindable(15) == 11);
      CHECK(conversation.rewindable(9) == 9);
      expect_error(Errc::unsupported, [&] { conversation.rewind(15); });
      conversation.rewind(8);
      CHECK(greatest_difference(after(conversation, ids(3, 2)), between) < 1e-5);
      conversation.rewind(2);
      Conversation fresh = model.conversation();
      CHECK(greatest_difference(after(conversation, ids(4, 2)), after(fresh, ids(6))) < 1e-5);
      conversation.rewind(1);
      CHECK(conversation.keep_prefix_of(ids(3)) == 1);
    }
    SECTION("copies and files") {
      Conversation fork = conversation.fork();
      const TempFolder place;
      conversation.save(place / "saved");
      Conversation restored = model.restore(place / "saved");
      CHECK(held(restored) == held(conversation));
      const Logits want = after(conversation, {20, 21});
      CHECK(after(fork, {20, 21}) == want);
      CHECK(after(restored, {20, 21}) == want);
      restored.rewind(8);
      CHECK(greatest_difference(after(restored, ids(3, 2)), between) < 1e-5);
    }
    SECTION("a file whose images do not fit its tokens is refused") {
      const TempFolder place;
      conversation.save(place / "saved");
      const auto changed = [&](Errc code, const std::vector<std::int32_t>& numbers,
                               const Shape& shape) {
        const io::File file = io::open(place / "saved", {.access = io::Access::read});
        std::vector<io::NamedTensor> tensors;
        for (const auto& tensor : file.tensors()) {
          HostBuffer data = tensor.data().contiguous();
          if (tensor.name == "images") data = HostBuffer::of(shape, std::span(numbers));
          tensors.push_back({tensor.name, data});
        }
        std::map<std::string, std::string> facts;
        for (const auto& entry : file.metadata().entries()) {
          facts.emplace(entry.key, file.metadata().get<std::string>(entry.key));
        }
        io::save_safetensors(place / "changed", tensors, facts);
        expect_error(code, [&] { model.restore(place / "changed"); });
      };
      const Shape two({2, 3}, i32);
      // As it is saved, so that the others are refused for what differs: shifts of 3 - 6 and 3 - 9 more.
      const std::vector<std::int32_t> right{2, 8, -3, 11, 20, -9};
      const HostBuffer saved = io::open(place / "saved").find("images")->data();
      CHECK(std::ranges::equal(saved.values<std::int32_t>(), right));
      for (const auto& [at, number] : {std::pair{0, 1},
                                       {0, -1},
                                       {1, 2},
                                       {1, 9},
                                       {2, 1},
                                       {2, -6},
                                       {3, 2},
                                       {4, 21},
                                       {4, 19},
                                       {5, -2},
                                       {5, std::numeric_limits<int>::min()}}) {
        INFO(at << " " << number);
        std::vector<std::int32_t> numbers = right;
        numbers[static_cast<std::size_t>(at)] = number;
        if (at == 4 && number == 19) continue;  // it is the digest that refuses a part of an image
        changed(Errc::corrupt, numbers, two);
      }
      changed(Errc::bad_shape, right, Shape({6}, i32));
      changed(Errc::bad_shape, {}, Shape({0, 3}, i32));
      changed(Errc::corrupt, {2, 8, -3}, Shape({1, 3}, i32));
    }
  }
}

TEST_CASE("qwen-vl: models that keep states, too, have images") {
  // Of Qwen3.5, whose encoder is that of Qwen3-VL without DeepStack.
  for (const std::int64_t chunk : {512, 4}) {
    const LanguageModel model = tiny_model("qwen35", chunk);
    const ImageGrid grid{2, 5}, other{5, 2};
    Conversation conversation = model.conversation(), turned = model.conversation();
    after(conversation, ids(3));
    after(turned, ids(3));
    const auto rows = image_rows(model, grid);
    conversation.read_image(rows, grid);
    turned.read_image(rows, other);
    Conversation fork = conversation.fork();
    const TempFolder place;
    conversation.save(place / "saved");
    Conversation restored = model.restore(place / "saved");
    const Logits want = after(conversation, ids(4, 3));
    CHECK(after(fork, ids(4, 3)) == want);
    CHECK(after(restored, ids(4, 3)) == want);
    CHECK(greatest_difference(after(turned, ids(4, 3)), want) > 1e-4);
    CHECK(conversation.rewindable(16) == 0);
    conversation.rewind(0);
    Conversation fresh = model.conversation();
    CHECK(after(conversation, ids(4)) == after(fresh, ids(4)));
  }
}

TEST_CASE("qwen-vl: an image that is read in part has what it was read of") {
  const LanguageModel model = qwen_model("qwen2vl", 4);
  const ImageGrid grid{3, 3};
  const auto rows = image_rows(model, grid);
  std::stop_source stop;
  Conversation conversation = model.conversation();
  after(conversation, ids(2));
  stop.request_stop();
  expect_error(Errc::cancelled,
               [&] { conversation.read_image(rows, grid, {.cancel = stop.get_token()}); });
  CHECK(conversation.position() == 2);
  Conversation other = model.conversation();
  CHECK(greatest_difference(after(conversation, ids(2, 2)), after(other, ids(4))) < 1e-5);
}

TEST_CASE("qwen-vl: what cannot be read is refused, and nothing changes") {
  const LanguageModel model = qwen_model("qwen3vl");
  Conversation conversation = model.conversation();
  after(conversation, ids(2));
  const auto refuse = [&](Errc code, std::size_t numbers, const ImageGrid& grid) {
    const std::vector<float> rows(numbers);
    expect_error(code, [&] { conversation.read_image(rows, grid); });
    CHECK(conversation.position() == 2);
  };
  refuse(Errc::bad_argument, 0, {0, 0});
  refuse(Errc::bad_argument, 96, {1, 2});
  refuse(Errc::bad_argument, 96 * 2, {-1, -2});
  refuse(Errc::bad_argument, 97, {1, 1});
  refuse(Errc::bad_argument, 32, {1, 1});
  refuse(Errc::bad_argument, 96, {std::int64_t{1} << 62, 4});
  refuse(Errc::limit_exceeded, std::size_t{96} * 63, {7, 9});
  const LanguageModel other = tiny_model("gemma3");
  Conversation plain = other.conversation();
  CHECK(contains(expect_error(Errc::unsupported, [&] { plain.read_image(rows_of(4, 32), {2, 2}); }),
                 "gemma3"));
}

TEST_CASE("qwen-vl: a model's sections have to fit its heads") {
  for (const std::vector<std::int32_t>& sections :
       {std::vector<std::int32_t>{3, 3, 3, 0}, {3, 3}, {3, 3, 2, 1}, {-3, 3, 8}, {}}) {
    const io::File file = io::open("tests/models/data/tiny_qwen2vl.gguf");
    io::Metadata metadata = file.metadata();
    metadata.set_array("qwen2vl.rope.dimension_sections", std::span<const std::int32_t>(sections));
    std::vector<io::NamedTensor> tensors;
    for (const io::TensorEntry& entry : file.tensors()) {
      tensors.push_back({entry.name, entry.data()});
    }
    const TempFolder place;
    io::save_gguf(place / "changed.gguf", metadata, tensors);
    CHECK(contains(expect_error(Errc::bad_hyperparameter,
                                [&] { LanguageModel::load(place / "changed.gguf"); }),
                   "dimension_sections"));
  }
}

TEST_CASE("qwen-vl: prompts with images") {
  const HostBuffer image = picture();
  for (const std::string& family : families) {
    INFO(family);
    const LanguageModel model = qwen_model(family);
    const VisionEncoder encoder = tiny_encoder(family);
    const auto parts = models::image_prompt(model, encoder, "a<__media__>b", {&image, 1});
    REQUIRE(parts.size() == 3);
    CHECK(model.tokenizer().decode(parts[0].tokens) == "a<|vision_start|>");
    CHECK(model.tokenizer().decode(parts[2].tokens) == "<|vision_end|>b");
    CHECK(parts[1].grid.rows == grid_of(encoder).rows);
    CHECK(parts[1].positions() == grid_of(encoder).embeddings());
  }
  const LanguageModel model = qwen_model("qwen2vl");
  const VisionEncoder encoder = tiny_encoder("qwen2vl");
  const auto parts = models::image_prompt(model, encoder, "<__media__>", {&image, 1});
  Conversation conversation = model.conversation(), other = model.conversation();
  const auto made = models::generate(model, conversation, parts,
                                     {.max_tokens = 5, .sampler = {.temperature = 0}});
  REQUIRE(made.tokens.size() == 5);
  other.read(parts[0].tokens);
  other.read_image(parts[1].rows.values<float>(), parts[1].grid);
  Ids next = parts[2].tokens;
  for (const std::int32_t token : made.tokens) {
    const std::int32_t drawn = other.read_greedy(next);
    CHECK(drawn == token);
    next = {drawn};
  }
}

TEST_CASE("qwen-vl: limits of an image's embeddings") {
  const auto file = folder / "qwen2vl.gguf";  // whose embeddings have 64 pixels
  const auto config = [&](const models::ImageLimits& limits) {
    return VisionEncoder::load(file, exact_encoder(), limits).config();
  };
  CHECK(config({}).size_of(37, 23).embeddings() == 15);
  CHECK(config({.min_embeddings = 100}).size_of(37, 23).embeddings() >= 100);
  CHECK(config({.max_embeddings = 6}).size_of(37, 23).embeddings() == 3);
  CHECK(config({.max_embeddings = 6}).size_of(370, 230).embeddings() == 3);
  CHECK(config({4, 4}).size_of(64, 64).embeddings() == 4);
  for (const auto& [min, max] : {std::pair{-1, 0}, {0, -1}, {5, 4}, {262145, 0}, {0, 262145}}) {
    expect_error(Errc::bad_argument, [&] { config({min, max}); });
  }
  expect_error(Errc::unsupported, [&] {
    VisionEncoder::load(folder / "gemma3.gguf", exact_encoder(), {.max_embeddings = 4});
  });
}

TEST_CASE("qwen-vl: encoders and models of different families are refused") {
  const auto refuse = [](const LanguageModel& model, const std::string& projector,
                         const std::string& says) {
    const VisionEncoder encoder = tiny_encoder(projector);
    CHECK(contains(
        expect_error(Errc::incompatible, [&] { models::image_prompt(model, encoder, "a", {}); }),
        says));
  };
  refuse(tiny_model("gemma3"), "qwen2vl", "positions of images have two axes");
  refuse(qwen_model("qwen2vl"), "gemma3", "positions of images have one");
  refuse(qwen_model("qwen2vl"), "qwen3vl", "96");
  refuse(qwen_model("qwen3vl"), "qwen2vl", "96");
  refuse(tiny_model("qwen3vl"), "qwen3vl", "96");  // a file that does not tell of those layers
}

TEST_CASE("qwen-vl: images of no use are refused") {
  const VisionEncoder encoder = tiny_encoder("qwen2vl");
  const auto refuse = [&](Errc code, const Shape& shape) {
    expect_error(code, [&] { encoder.encode(HostBuffer::zeros(shape)); });
  };
  refuse(Errc::bad_type, Shape({4, 4, 3}, f32));
  refuse(Errc::bad_shape, Shape({4, 4}, u8));
  refuse(Errc::bad_argument, Shape({0, 4, 3}, u8));
  refuse(Errc::bad_argument, Shape({1, 201, 3}, u8));
  for (const std::string& family : families) {
    const HostBuffer made = tiny_encoder(family).encode(HostBuffer::zeros(Shape({1, 1, 3}, u8)));
    for (const float x : made.values<float>()) REQUIRE(std::isfinite(x));
  }
}

TEST_CASE("qwen-vl: files without what is needed are refused by name") {
  SECTION("sizes") {
    const struct {
      const char* family;
      const char* key;
      std::vector<std::int64_t> values;
    } cases[] = {{"qwen3vl", "spatial_merge_size", {0, -1, 17}},
                 {"qwen2vl", "attention.head_count", {0, 3, 16}},
                 {"qwen2vl", "image_min_pixels", {0, 100001}},
                 {"qwen2vl", "image_max_pixels", {0, 63, std::int64_t{1} << 25}},
                 {"qwen2vl", "spatial_merge_size", {0, 17}},
                 {"qwen25vl", "n_wa_pattern", {-1, 513}},
                 {"qwen25vl", "patch_size", {57}}};
    for (const auto& [family, key, values] : cases) {
      for (const std::int64_t value : values) {
        INFO(family << " " << key << " = " << value);
        TinyEncoder encoder(family);
        encoder.metadata.set(std::string("clip.vision.") + key, value);
        CHECK(contains(encoder.refused(Errc::bad_hyperparameter), key));
      }
    }
    TinyEncoder encoder("qwen25vl");
    encoder.remove("clip.vision.n_wa_pattern");
    CHECK(contains(encoder.refused(Errc::bad_key), "n_wa_pattern"));
  }
  SECTION("tensors that are missing or have other sizes") {
    for (const std::string& family : families) {
      const TinyEncoder whole(family);
      for (std::size_t i = 0; i < whole.tensors.size(); ++i) {
        const std::string& name = whole.tensors[i].name;
        INFO(family << " " << name);
        // Without its first matrix there is no such layer, and the next file's width differs.
        const bool is_optional = name.ends_with(".bias") || name.ends_with("fc1.weight") ||
                                 name.ends_with("ffn_gate.weight");
        if (!is_optional) {
          TinyEncoder encoder(family);
          encoder.tensors.erase(encoder.tensors.begin() + static_cast<std::ptrdiff_t>(i));
          const std::string named =
              name.ends_with("attn_qkv.weight") ? std::string("attn_q") : name;
          CHECK(contains(encoder.refused(Errc::bad_reference), named));
        }
        TinyEncoder cut(family);
        HostBuffer& data = cut.tensors[i].data;
        data = data.slice(0, 0, data.shape()[0] - 1).contiguous();
        cut.refused(Errc::corrupt);
      }
    }
  }
  SECTION("a file that is cut") {
    const TempFolder place;
    for (const std::string& family : families) {
      const auto size = std::filesystem::file_size(folder / (family + ".gguf"));
      for (const std::uintmax_t kept : {size / 2, std::uintmax_t{100}, size - 1}) {
        const auto path = place / "cut.gguf";
        std::filesystem::copy_file(folder / (family + ".gguf"), path,
                                   std::filesystem::copy_options::overwrite_existing);
        std::filesystem::resize_file(path, kept);
        try {
          VisionEncoder::load(path, exact_encoder());
          FAIL("it was read");
        } catch (const Error& error) {
          CHECK(contains(error.what(), "cut.gguf"));
        }
      }
    }
  }
}

}  // namespace vision_tests
