// Conversations that are forked, saved and restored, on tiny models of every kind of cache.
#include "io/temp_folder.hpp"
#include "support/expect_error.hpp"
#include "support/failing_memory.hpp"
#include "support/remote_device.hpp"
#include "support/rounds.hpp"
#include "support/shown_code.hpp"
#include "tiny_models.hpp"

#include <tenon/error.hpp>
#include <tenon/io/file.hpp>
#include <tenon/io/save.hpp>
#include <tenon/models/language_model.hpp>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

using namespace tenon;
using namespace tenon::testing;
using models::Conversation;
using models::LanguageModel;

namespace {

using Ids = std::vector<std::int32_t>;
using Logits = std::vector<float>;

/// Of each kind of cache: keys and values in groups, with windows, in chunks, shared by layers,
/// latent ones; states alone; both, in alternating layers and within one; layers that are one part each.
const char* const kinds[] = {"llama",      "gemma3",       "gpt-oss", "llama4",    "gemma3n",
                             "deepseek2",  "mamba",        "mamba2",  "rwkv6",     "rwkv7",
                             "lfm2",       "jamba",        "deci",    "qwen3next", "falcon-h1",
                             "nemotron_h", "granitehybrid"};

/// Read one by one unless `chunk` says otherwise: logits are then the same bits whatever was read at
/// once.
models::LanguageModelOptions one_by_one(std::int64_t context = 48, std::int64_t chunk = 1) {
  models::LanguageModelOptions options;
  options.context = context;
  options.chunk = chunk;
  options.backend = {.threads = 1};
  return options;
}

LanguageModel tiny_model(const std::string& architecture,
                         const models::LanguageModelOptions& options = one_by_one()) {
  return LanguageModel::load(tiny_path(architecture), options);
}

Ids ids(std::int32_t count, std::int32_t first = 0) {
  Ids tokens;
  for (std::int32_t i = first; i < first + count; ++i) tokens.push_back(7 * i % 272);
  return tokens;
}

Ids held_by(const Conversation& conversation) {
  return {conversation.tokens().begin(), conversation.tokens().end()};
}

Logits after(Conversation& conversation, const Ids& tokens) {
  const auto logits = conversation.read(tokens);
  return {logits.begin(), logits.end()};
}

Logits anew(const LanguageModel& model, const Ids& tokens) {
  Conversation conversation = model.conversation();
  return after(conversation, tokens);
}

/// A saved conversation taken apart, to be written otherwise.
struct Parts {
  explicit Parts(const std::filesystem::path& path) {
    const io::File file = io::open(path, {.access = io::Access::read});
    for (const auto& tensor : file.tensors()) tensors.emplace(tensor.name, tensor.data());
    for (const auto& entry : file.metadata().entries()) {
      metadata.emplace(entry.key, file.metadata().get<std::string>(entry.key));
    }
  }
  void write(const std::filesystem::path& path) const {
    std::vector<io::NamedTensor> list;
    for (const auto& [name, data] : tensors) list.push_back({name, data});
    io::save_safetensors(path, list, metadata);
  }

  std::map<std::string, HostBuffer> tensors;
  std::map<std::string, std::string> metadata;
};

/// The error of restoring a file, which names it.
std::string refused(const LanguageModel& model, const std::filesystem::path& path, Errc code) {
  const std::string what = expect_error(code, [&] { model.restore(path); });
  CHECK(contains(what, path.string()));
  return what;
}

}  // namespace

TEST_CASE("conversation: it tells its tokens") {
  const LanguageModel model = tiny_model("llama");
  Conversation conversation = model.conversation();
  CHECK(conversation.tokens().empty());
  conversation.read(ids(5));
  CHECK(held_by(conversation) == ids(5));
  expect_error(Errc::out_of_range, [&] { conversation.read(Ids{1, 272}); });
  expect_error(Errc::limit_exceeded, [&] { conversation.read(ids(44)); });
  CHECK(held_by(conversation) == ids(5));
  const std::int32_t next = conversation.read_greedy(ids(3, 5));
  conversation.read_greedy({&next, 1});
  conversation.rewind(8);
  CHECK(held_by(conversation) == ids(8));
}

TEST_CASE("conversation: prompts of many lengths") {
  // Each length is a program of its own, which leaves nothing in the graph that declares the weights.
  for (const char* architecture : {"mamba", "rwkv7", "falcon-h1"}) {
    INFO(architecture);
    const LanguageModel model = tiny_model(architecture, one_by_one(48, 48));
    for (std::int32_t length = 1; length <= 30; ++length) {
      Conversation conversation = model.conversation();
      CHECK_NOTHROW(conversation.read(Ids(static_cast<std::size_t>(length), 3)));
    }
  }
}

TEST_CASE("conversation: it keeps what it has in common with a text") {
  const LanguageModel model = tiny_model("llama");
  Conversation conversation = model.conversation();
  CHECK(conversation.keep_prefix_of(ids(4)) == 0);
  conversation.read(ids(10));
  Ids other = ids(12);
  other[6] = 1;
  CHECK(conversation.keep_prefix_of(ids(20)) == 10);
  CHECK(conversation.keep_prefix_of(ids(10)) == 9);  // the last is read again, for its logits
  CHECK(conversation.keep_prefix_of(other) == 6);
  CHECK(held_by(conversation) == ids(6));
  CHECK(conversation.keep_prefix_of(ids(1)) == 0);
  expect_error(Errc::bad_argument, [&] { conversation.keep_prefix_of({}); });

  const LanguageModel states = tiny_model("mamba");
  Conversation moving = states.conversation();
  moving.read(ids(10));
  CHECK(moving.keep_prefix_of(ids(11)) == 10);
  CHECK(moving.keep_prefix_of(ids(10)) == 0);
  CHECK(after(moving, ids(10)) == anew(states, ids(10)));
}

TEST_CASE("conversation: forks and restored ones continue bit by bit as the first") {
  const TempFolder folder;
  const auto path = folder / "saved.safetensors";
  int number = 0;
  for (const std::string& architecture : tiny_architectures()) {
    if (number++ % round_stride != 0) continue;
    CAPTURE(architecture);
    for (const std::int64_t chunk : {1, 512}) {
      CAPTURE(chunk);
      const LanguageModel model = tiny_model(architecture, one_by_one(48, chunk));
      Conversation first = model.conversation();
      first.read(ids(17));
      Conversation fork = first.fork(), twin = first.fork();
      first.save(path);
      Conversation restored = model.restore(path);
      const LanguageModel larger = tiny_model(architecture, one_by_one(500, chunk));
      Conversation moved = larger.restore(path);
      // The fork goes another way first; neither of them knows.
      CHECK(after(fork, ids(9, 100)) != after(first, ids(9, 17)));
      CHECK(held_by(first) == ids(26));
      Conversation straight = model.conversation();
      straight.read(ids(17));
      const Logits want = after(straight, ids(9, 17));
      CHECK(std::ranges::equal(want, after(twin, ids(9, 17))));
      CHECK(std::ranges::equal(want, after(restored, ids(9, 17))));
      CHECK(std::ranges::equal(want, after(moved, ids(9, 17))));
      CHECK(held_by(moved) == ids(26));
      CHECK(moved.capacity() == 500);
      const Logits next = after(straight, ids(1, 26));
      CHECK(next == after(first, ids(1, 26)));
      CHECK(next == after(twin, ids(1, 26)));
      CHECK(next == after(restored, ids(1, 26)));
      CHECK(next == after(moved, ids(1, 26)));
    }
  }
}

TEST_CASE("conversation: random ways to the same tokens give the same logits") {
  const TempFolder folder;
  const std::uint64_t seed = test_seed();
  INFO("TENON_TEST_SEED=" << seed);
  std::mt19937_64 random(seed);
  const auto below = [&](std::size_t end) { return static_cast<std::size_t>(random() % end); };
  constexpr int steps = rounds(120);
  EveryThird third;
  for (const std::string architecture : kinds) {
    if (third.skips()) continue;
    CAPTURE(architecture);
    const LanguageModel contexts[] = {tiny_model(architecture, one_by_one(40)),
                                      tiny_model(architecture, one_by_one(64))};
    struct Known {
      const LanguageModel* model;
      Conversation conversation;
      Ids tokens;
    };
    std::vector<Known> all{{&contexts[0], contexts[0].conversation(), {}}};
    for (int step = 0; step < steps; ++step) {
      Known& one = all[below(all.size())];
      const auto room = static_cast<std::size_t>(one.conversation.capacity()) - one.tokens.size();
      switch (below(4)) {
        case 0: {  // read
          Ids more(std::min(room, below(7) + 1));
          if (more.empty()) break;
          for (std::int32_t& id : more) id = static_cast<std::int32_t>(below(272));
          one.tokens.insert(one.tokens.end(), more.begin(), more.end());
          REQUIRE(after(one.conversation, more) == anew(*one.model, one.tokens));
          break;
        }
        case 1: {  // rewind
          const auto to =
              one.conversation.rewindable(static_cast<std::int64_t>(below(one.tokens.size() + 1)));
          one.conversation.rewind(to);
          one.tokens.resize(static_cast<std::size_t>(to));
          break;
        }
        case 2: {  // fork
          if (all.size() == 5) all.erase(all.begin() + static_cast<std::ptrdiff_t>(below(4)) + 1);
          Known& source = all[below(all.size())];
          all.push_back({source.model, source.conversation.fork(), source.tokens});
          break;
        }
        default: {  // save and restore, with the same capacity or the other one
          const auto path = folder / "saved.safetensors";
          one.conversation.save(path);
          const LanguageModel& to = contexts[below(2)];
          if (static_cast<std::int64_t>(one.tokens.size()) > to.context()) {
            expect_error(Errc::limit_exceeded, [&] { to.restore(path); });
            break;
          }
          one.model = &to;
          one.conversation = to.restore(path);
          break;
        }
      }
      for (const Known& known : all) REQUIRE(held_by(known.conversation) == known.tokens);
    }
    for (Known& known : all) {
      if (known.conversation.position() == known.conversation.capacity()) continue;
      const Logits got = after(known.conversation, {7});
      known.tokens.push_back(7);
      REQUIRE(got == anew(*known.model, known.tokens));
    }
  }
}

TEST_CASE("conversation: the file has what its tokens take, and no more") {
  const TempFolder folder;
  const auto path = folder / "saved.safetensors";
  const LanguageModel model = tiny_model("lfm2", one_by_one(4096));
  Conversation conversation = model.conversation();
  conversation.read(ids(3));
  conversation.save(path);
  const Parts parts(path);
  const auto& config = model.config();
  std::size_t wanted = 1;
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    const std::string name = "layers." + std::to_string(layer) + ".";
    CHECK(parts.tensors.contains(name + "attention.keys") == config.attends(layer));
    CHECK(parts.tensors.contains(name + "short_conv") == config.keeps_state(layer));
    wanted += config.attends(layer) ? 2 : 1;
    if (!config.attends(layer)) continue;
    CHECK(parts.tensors.at(name + "attention.keys").shape() ==
          Shape({1, config.kv_heads, 3, config.head_dim}, f16));
  }
  CHECK(parts.tensors.size() == wanted);
  CHECK(parts.metadata.at("architecture") == "lfm2");
  CHECK(parts.metadata.at("cache") == "f16");
  CHECK(std::ranges::equal(parts.tensors.at("tokens").values<std::int32_t>(), ids(3)));
}

TEST_CASE("conversation: every type of cache is saved, and tied to its type") {
  const TempFolder folder;
  const auto path = folder / "saved.safetensors";
  const DType types[] = {f32, f16, bf16, DType::q8_0};
  for (const DType type : types) {
    CAPTURE(name(type));
    auto options = one_by_one();
    options.cache = type;
    const LanguageModel model = tiny_model("gemma3", options);  // its heads are as wide as a block
    Conversation conversation = model.conversation();
    conversation.read(ids(20));
    conversation.save(path);
    Conversation restored = model.restore(path);
    CHECK(after(restored, ids(4, 20)) == after(conversation, ids(4, 20)));
    options.cache = type == f16 ? f32 : f16;
    CHECK(contains(refused(tiny_model("gemma3", options), path, Errc::incompatible), "'cache'"));
  }
}

TEST_CASE("conversation: one without tokens is forked, saved and restored") {
  const TempFolder folder;
  for (const std::string architecture : {"llama", "rwkv7", "jamba"}) {
    CAPTURE(architecture);
    const LanguageModel model = tiny_model(architecture);
    Conversation conversation = model.conversation();
    conversation.read(ids(4));
    conversation.rewind(0);
    conversation.save(folder / "empty.safetensors");
    Conversation restored = model.restore(folder / "empty.safetensors");
    Conversation fork = conversation.fork();
    CHECK(restored.position() == 0);
    CHECK(after(restored, ids(4)) == anew(model, ids(4)));
    CHECK(after(fork, ids(4)) == anew(model, ids(4)));
  }
}

TEST_CASE("conversation: forks draw and score as the first would") {
  const LanguageModel model = tiny_model("qwen35");
  Conversation conversation = model.conversation();
  const std::int32_t next = conversation.read_greedy(ids(9));
  Conversation fork = conversation.fork();
  CHECK(fork.read_greedy({&next, 1}) == conversation.read_greedy({&next, 1}));
  const nn::SamplerOptions options{.temperature = 0.9, .top_k = 20};
  CHECK(fork.read_sampled({&next, 1}, options) == conversation.read_sampled({&next, 1}, options));
  const auto rows = [](Conversation& of) {
    Logits all;
    of.read_all(ids(5), [&](std::span<const float> row, std::int64_t) {
      all.insert(all.end(), row.begin(), row.end());
    });
    return all;
  };
  CHECK(rows(fork) == rows(conversation));
}

TEST_CASE("conversation: forks are used on threads of their own") {
  const LanguageModel model = tiny_model("llama");
  Conversation conversation = model.conversation();
  conversation.read(ids(10));
  std::vector<Logits> got(3);
  {
    std::vector<std::jthread> threads;
    for (std::int32_t i = 0; i < 3; ++i) {
      threads.emplace_back([&, i, fork = conversation.fork()]() mutable {
        got[static_cast<std::size_t>(i)] = after(fork, ids(20, i));
      });
    }
    conversation.read(ids(20, 50));
  }
  for (std::int32_t i = 0; i < 3; ++i) {
    Ids whole = ids(10);
    const Ids more = ids(20, i);
    whole.insert(whole.end(), more.begin(), more.end());
    CHECK(got[static_cast<std::size_t>(i)] == anew(model, whole));
  }
  conversation.rewind(0);
  const TempFolder folder;
  conversation.read_all(ids(2), [&](std::span<const float>, std::int64_t) {
    expect_error(Errc::busy, [&] { conversation.fork(); });
    expect_error(Errc::busy, [&] { conversation.save(folder / "busy.safetensors"); });
  });
  CHECK(folder.entries() == 0);
}

TEST_CASE("conversation: forks of a cache that the CPU cannot address are copied where they lie") {
  register_opaque_devices();
  const TempFolder folder;
  const auto path = folder / "saved.safetensors";
  EveryThird third;
  for (const std::string architecture : {"llama", "gemma3", "deepseek2", "rwkv7", "lfm2"}) {
    if (third.skips()) continue;
    CAPTURE(architecture);
    auto options = one_by_one();
    options.cache = f32;
    options.backend.exact = true;
    const LanguageModel on_cpu = tiny_model(architecture, options);
    const DevicePtr device = Device::open("opaque://test");
    {
      options.device = device;
      const LanguageModel model = tiny_model(architecture, options);
      Conversation conversation = model.conversation();
      conversation.read(ids(9));
      auto& memory = dynamic_cast<FakeRegion&>(device->default_mem_region());
      const int before = memory.transfers;
      Conversation fork = conversation.fork();
      // States begin as zeros, which are written; keys and values go nowhere.
      CHECK(memory.transfers - before <= (model.config().is_recurrent() ? 4 : 0));
      const Logits want = anew(model, ids(14));
      CHECK(after(fork, ids(5, 9)) == want);
      conversation.save(path);
      Conversation restored = model.restore(path);
      CHECK(after(restored, ids(5, 9)) == want);
      // Another device has the same model.
      Conversation elsewhere = on_cpu.restore(path);
      const Logits got = after(elsewhere, ids(5, 9));
      for (std::size_t i = 0; i < want.size(); ++i) CHECK(got[i] == Approx(want[i]).margin(1e-3));
    }
    CHECK(device->default_mem_region().all_chunks().empty());
  }
}

TEST_CASE("conversation: a saved one is tied to the contents of its model, not to the place") {
  const TempFolder folder;
  const auto path = folder / "saved.safetensors";
  const std::string bytes = read_bytes("tests/models/data/tiny_llama.gguf");
  const auto load = [&](std::string_view name, const std::string& with) {
    return LanguageModel::load(folder.write(name, with), one_by_one());
  };
  const LanguageModel model = load("model.gguf", bytes);
  Conversation conversation = model.conversation();
  conversation.read(ids(8));
  conversation.save(path);
  Conversation moved = load("elsewhere/renamed.gguf", bytes).restore(path);
  CHECK(after(moved, ids(3, 8)) == after(conversation, ids(3, 8)));

  // The same header, other values.
  std::string tuned = bytes;
  for (const io::TensorEntry& tensor : model.file().tensors()) {
    for (std::uint64_t i = 0; i < tensor.size_bytes; i += 2) {
      tuned[tensor.offset_bytes + i] = static_cast<char>(tuned[tensor.offset_bytes + i] ^ 1);
    }
  }
  CHECK(contains(refused(load("tuned.gguf", tuned), path, Errc::incompatible), "another model"));
  CHECK(contains(refused(tiny_model("qwen2"), path, Errc::incompatible), "'architecture'"));
  CHECK(contains(refused(tiny_model("llama", one_by_one(7)), path, Errc::limit_exceeded),
                 "8 tokens do not fit a context of 7"));
}

TEST_CASE("conversation: files that are cut short or that have other bytes are refused") {
  const TempFolder folder;
  const auto path = folder / "saved.safetensors";
  const std::uint64_t seed = test_seed();
  INFO("TENON_TEST_SEED=" << seed);
  std::mt19937_64 random(seed);
  EveryThird third;
  for (const std::string architecture : {"llama", "mamba", "lfm2"}) {
    if (third.skips()) continue;
    CAPTURE(architecture);
    const LanguageModel model = tiny_model(architecture);
    Conversation conversation = model.conversation();
    conversation.read(ids(5));
    conversation.save(path);
    const std::string good = read_bytes(path);
    const auto damaged = [&](const std::string& bytes) {
      folder.write("damaged.safetensors", bytes);
      try {
        model.restore(folder / "damaged.safetensors");
      } catch (const Error& error) {
        CHECK(contains(error.what(), "damaged.safetensors"));
        CHECK(error_class(error.code()) == ErrorClass::input);
        return;
      }
      FAIL("a damaged file was taken");
    };
    for (int i = 0; i < rounds(60); ++i) damaged(good.substr(0, random() % good.size()));
    damaged(good + '\0');
    std::size_t header = 0;
    std::copy_n(good.data(), 8, reinterpret_cast<char*>(&header));
    for (int i = 0; i < rounds(400); ++i) {
      // Half of them in the header.
      const std::size_t at = random() % (i % 2 == 0 ? header + 8 : good.size());
      std::string bytes = good;
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
      CAPTURE(at);
      damaged(bytes);
    }
  }
}

TEST_CASE("conversation: files with other contents than it writes are refused by name") {
  const TempFolder folder;
  const auto path = folder / "saved.safetensors";
  const auto changed = folder / "changed.safetensors";
  const LanguageModel model = tiny_model("llama");
  Conversation conversation = model.conversation();
  conversation.read(ids(5));
  conversation.save(path);
  const auto refuse = [&](Errc code, const std::string& says, auto change) {
    Parts parts(path);
    change(parts);
    parts.write(changed);
    CHECK(contains(refused(model, changed, code), says));
  };
  const auto set = [](const char* key, const char* value) {
    return [=](Parts& parts) { parts.metadata[key] = value; };
  };
  const auto tokens = [](const Shape& shape) {
    return [=](Parts& parts) { parts.tensors["tokens"] = HostBuffer::zeros(shape); };
  };
  const std::string keys = "layers.0.attention.keys";
  const auto as = [&](const Shape& shape) {
    return [=](Parts& parts) { parts.tensors[keys] = HostBuffer::zeros(shape); };
  };

  refuse(Errc::bad_magic, "no saved conversation",
         [](Parts& parts) { parts.metadata.erase("tenon.conversation"); });
  refuse(Errc::unsupported_version, "version 2", set("tenon.conversation", "2"));
  refuse(Errc::bad_key, "'model'", [](Parts& parts) { parts.metadata.erase("model"); });
  refuse(Errc::bad_key, "'digest'", [](Parts& parts) { parts.metadata.erase("digest"); });
  refuse(Errc::incompatible, "'model'", set("model", "00"));
  refuse(Errc::incompatible, "'adapters'", set("adapters", "00"));
  refuse(Errc::incompatible, "'long_context'", set("long_context", "true"));
  refuse(Errc::corrupt, "digest", set("capacity", "49"));
  refuse(Errc::corrupt, "digest", set("more", "more"));
  refuse(Errc::corrupt, "digest", set("digest", "00"));
  refuse(Errc::bad_reference, "'tokens'", [](Parts& parts) { parts.tensors.erase("tokens"); });
  refuse(Errc::bad_type, "'tokens'", tokens(Shape({5}, i64)));
  refuse(Errc::bad_shape, "'tokens'", tokens(Shape({1, 5}, i32)));
  refuse(Errc::bad_shape, "keys", tokens(Shape({4}, i32)));  // fewer than there are keys
  refuse(Errc::bad_reference, "1", tokens(Shape({0}, i32)));
  refuse(Errc::limit_exceeded, "49 tokens", tokens(Shape({49}, i32)));
  for (const std::int32_t id : {-1, 272}) {
    refuse(Errc::corrupt, "outside", [&](Parts& parts) {
      parts.tensors["tokens"] = HostBuffer::of<std::int32_t>(Shape({5}, i32), {1, 2, 3, 4, id});
    });
  }
  refuse(Errc::corrupt, "digest", tokens(Shape({5}, i32)));  // others of the vocabulary
  refuse(Errc::bad_reference, "tensors", [&](Parts& parts) { parts.tensors.erase(keys); });
  refuse(Errc::bad_reference, keys, [&](Parts& parts) {
    parts.tensors["other"] = parts.tensors[keys];
    parts.tensors.erase(keys);
  });
  const auto& config = model.config();
  refuse(Errc::bad_type, keys, as(Shape({1, config.kv_heads, 5, config.head_dim}, bf16)));
  refuse(Errc::bad_shape, keys, as(Shape({1, config.kv_heads, 6, config.head_dim}, f16)));
  refuse(Errc::bad_shape, keys, as(Shape({1, 5, config.kv_heads, config.head_dim}, f16)));
  refuse(Errc::corrupt, "digest", as(Shape({1, config.kv_heads, 5, config.head_dim}, f16)));

  expect_error(Errc::not_found, [&] { model.restore(folder / "none.safetensors"); });
  refused(model, "tests/models/data/tiny_llama.gguf", Errc::bad_magic);
  folder.write("text.safetensors", "not a tensor in sight");  // of which 8 letters are a size
  expect_error(Errc::limit_exceeded, [&] { model.restore(folder / "text.safetensors"); });
  expect_error(Errc::io_error, [&] { conversation.save(folder / "no/such/folder/file"); });
}

TEST_CASE("conversation: LongRoPE's keys are those of one length of the context") {
  const TempFolder folder;
  const auto path = folder / "saved.safetensors";
  const auto load = [&](std::int64_t context) { return tiny_model("phi3", one_by_one(context)); };
  const LanguageModel model = load(32);
  REQUIRE(model.file().find("rope_factors_long.weight") != nullptr);
  const std::int64_t trained = model.config().rope.original_context;
  Conversation conversation = model.conversation();
  conversation.read(ids(5));
  conversation.save(path);
  CHECK(contains(refused(load(trained + 1), path, Errc::incompatible), "'long_context'"));
  CHECK(load(trained).restore(path).position() == 5);
}

TEST_CASE("A03: memory runs out while conversations are forked, saved and restored") {
  const TempFolder folder;
  const auto path = folder / "saved.safetensors";
  for (const std::string architecture : {"llama", "lfm2"}) {
    CAPTURE(architecture);
    const LanguageModel model = tiny_model(architecture);
    Conversation conversation = model.conversation();
    conversation.read(ids(7));
    conversation.save(path);
    const std::string good = read_bytes(path);
    fail_allocations(
        100,
        [&] {
          conversation.fork();
          conversation.save(path);
          model.restore(path);
        },
        [&] {
          CHECK(read_bytes(path) == good);
          CHECK(held_by(conversation) == ids(7));
          Conversation fork = conversation.fork();
          CHECK(after(fork, ids(2, 7)) == anew(model, ids(9)));
        });
  }
}

TEST_CASE("conversations.md: the code that it shows") {
  check_shown_code("docs/conversations.md", "tests/models/conversation_test.cpp", 1);
  const TempFolder folder;
  const auto file = folder / "prompt.safetensors";
  const LanguageModel model = tiny_model("llama");
  const Ids prompt = ids(6), longer = ids(9);

  Conversation conversation = model.conversation();
  conversation.read(prompt);
  Conversation other = conversation.fork();  // for a second answer, also on another thread
  conversation.save(file);

  Conversation later = model.restore(file);  // in another process, or with another context
  const std::size_t kept = later.keep_prefix_of(longer);
  const auto logits = later.read(std::span(longer).subspan(kept));

  CHECK(kept == 6);
  CHECK(std::ranges::equal(logits, anew(model, longer)));
  CHECK(after(other, Ids{longer.begin() + 6, longer.end()}) == anew(model, longer));
}
