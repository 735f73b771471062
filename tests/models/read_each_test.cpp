// Several conversations that read a token each in one step: what each gives is what it gives alone.
#include "support/expect_error.hpp"
#include "support/failing_memory.hpp"
#include "support/remote_device.hpp"
#include "support/rounds.hpp"
#include "tiny_models.hpp"

#include <tenon/error.hpp>
#include <tenon/models/language_model.hpp>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <span>
#include <stop_token>
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

LanguageModel load_tiny(const std::string& architecture, std::int64_t context = 48,
                        unsigned threads = 1) {
  models::LanguageModelOptions options;
  options.context = context;
  options.backend = {.threads = static_cast<int>(threads)};
  return LanguageModel::load(tiny_path(architecture), options);
}

Logits to_logits(std::span<const float> logits) { return {logits.begin(), logits.end()}; }

/// Conversations that have read so many tokens each.
std::vector<Conversation> conversations_of(const LanguageModel& model,
                                           std::initializer_list<std::int32_t> lengths) {
  std::vector<Conversation> made;
  for (const std::int32_t length : lengths) {
    Ids tokens;
    for (std::int32_t i = 0; i < length; ++i) {
      tokens.push_back((7 * i + 11 * static_cast<std::int32_t>(made.size()) + 1) % 200);
    }
    made.push_back(model.conversation());
    if (length > 0) made.back().read(tokens);
  }
  return made;
}

std::vector<Conversation> forks_of(const std::vector<Conversation>& conversations) {
  std::vector<Conversation> made;
  for (const Conversation& conversation : conversations) made.push_back(conversation.fork());
  return made;
}

}  // namespace

TEST_CASE("read_each: the same bits as alone") {
  EveryThird third;
  for (const std::string& architecture : tiny_architectures()) {
    if (third.skips()) continue;
    INFO(architecture);
    const LanguageModel model = load_tiny(architecture);
    std::vector<Conversation> together = conversations_of(model, {5, 0, 17});
    std::vector<Conversation> alone = forks_of(together);
    for (const Ids& tokens : {Ids{3, 40, 7}, Ids{9, 8, 100}}) {
      const HostBuffer logits = model.read_each(together, tokens);
      REQUIRE(logits.shape() == Shape({3, model.config().vocabulary}, f32));
      const auto all = logits.values<float>();
      const std::size_t width = all.size() / 3;
      for (std::size_t i = 0; i < 3; ++i) {
        INFO("conversation " << i);
        CHECK(to_logits(all.subspan(i * width, width)) ==
              to_logits(alone[i].read({&tokens[i], 1})));
      }
    }
    // What follows alone is what followed alone before.
    for (std::size_t i = 0; i < 3; ++i) {
      const Ids more{60, 61};
      CHECK(together[i].position() == alone[i].position());
      CHECK(to_logits(together[i].read(more)) == to_logits(alone[i].read(more)));
    }
  }
}

TEST_CASE("read_each: threads, one conversation, and the most probable tokens") {
  for (const char* architecture : {"llama", "gemma3", "mamba2", "qwen2vl"}) {
    INFO(architecture);
    const LanguageModel model = load_tiny(architecture, 48, 2);
    for (const std::size_t count : {std::size_t{1}, std::size_t{4}}) {
      std::vector<Conversation> together = conversations_of(model, {5, 2, 17, 9});
      together.resize(count, together.front());
      std::vector<Conversation> alone = forks_of(together);
      const Ids tokens{3, 40, 7, 90};
      const Ids read(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(count));
      const std::vector<std::int32_t> best = model.read_each_greedy(together, read);
      REQUIRE(best.size() == count);
      for (std::size_t i = 0; i < count; ++i) {
        CHECK(best[i] == alone[i].read_greedy({&read[i], 1}));
        CHECK(together[i].tokens().back() == read[i]);
      }
    }
  }
}

TEST_CASE("read_each: on a device whose memory the CPU cannot address") {
  register_opaque_devices();
  models::LanguageModelOptions options;
  options.context = 32;
  options.device = Device::open("opaque://test");
  const LanguageModel model = LanguageModel::load(tiny_path("llama"), options);
  std::vector<Conversation> together = conversations_of(model, {5, 3});
  std::vector<Conversation> alone = forks_of(together);
  const Ids tokens{3, 40};
  const HostBuffer logits = model.read_each(together, tokens);
  const auto all = logits.values<float>();
  for (std::size_t i = 0; i < 2; ++i) {
    const Logits want = to_logits(alone[i].read({&tokens[i], 1}));
    for (std::size_t j = 0; j < want.size(); ++j) {
      REQUIRE(all[i * want.size() + j] == Approx(want[j]).margin(0.05));
    }
  }
}

TEST_CASE("read_each: what it refuses changes no conversation") {
  const LanguageModel model = load_tiny("llama", 8);
  std::vector<Conversation> both = conversations_of(model, {8, 3});
  const auto read = [&](std::span<const Conversation> conversations, const Ids& tokens,
                        const Interrupt& interrupt = {}) {
    model.read_each(conversations, tokens, interrupt);
  };
  const std::vector<Conversation> first(both.begin(), both.begin() + 1);
  const std::vector<Conversation> second(both.begin() + 1, both.end());
  expect_error(Errc::bad_argument, [&] { read({}, {}); });
  CHECK(contains(expect_error(Errc::bad_argument, [&] { read(second, {1, 2}); }),
                 "2 tokens for 1 conversations"));
  expect_error(Errc::out_of_range, [&] { read(second, {-1}); });
  expect_error(Errc::out_of_range, [&] { read(second, {100000}); });
  expect_error(Errc::limit_exceeded, [&] { read(both, {1, 2}); });  // the first is full
  const std::vector<Conversation> twice{both[1], both[1]};
  CHECK(contains(expect_error(Errc::bad_argument, [&] { read(twice, {1, 2}); }), "twice"));
  const LanguageModel other = load_tiny("gemma3");
  const std::vector<Conversation> foreign{other.conversation()};
  CHECK(contains(expect_error(Errc::bad_argument, [&] { read(foreign, {1}); }), "another model"));
  std::stop_source stop;
  stop.request_stop();
  expect_error(Errc::cancelled, [&] { read(second, {1}, {.cancel = stop.get_token()}); });
  CHECK(both[0].position() == 8);
  CHECK(both[1].position() == 3);
  read(second, {1});
  CHECK(both[1].position() == 4);
}

TEST_CASE("read_each: on two threads at once") {
  const LanguageModel model = load_tiny("gemma3");
  const Ids tokens{3, 40};
  std::vector<Conversation> want = conversations_of(model, {5, 9});
  const HostBuffer expected = model.read_each(want, tokens);
  std::vector<std::jthread> threads;
  std::vector<HostBuffer> got(4);
  for (HostBuffer& one : got) {
    threads.emplace_back([&model, &tokens, &one] {
      std::vector<Conversation> own = conversations_of(model, {5, 9});
      one = model.read_each(own, tokens);
    });
  }
  threads.clear();
  for (const HostBuffer& one : got) {
    CHECK(to_logits(one.values<float>()) == to_logits(expected.values<float>()));
  }
}

TEST_CASE("read_each: when memory runs out, conversations are what they were") {
  const Ids tokens{3, 40};
  {
    const LanguageModel model = load_tiny("llama");
    std::vector<Conversation> both = conversations_of(model, {5, 9});
    const auto read = [&] {
      const HostBuffer logits = model.read_each(both, tokens);
      both[0].rewind(5);
      both[1].rewind(9);
      return logits;
    };
    const Logits want = to_logits(read().values<float>());
    fail_allocations(100, read, [&] {
      CHECK(both[0].position() == 5);
      CHECK(both[1].position() == 9);
      CHECK((to_logits(read().values<float>()) == want));
    });
  }
  // Of new conversations, whose caches move to large pages in the step; states may be lost, but not
  // half of them.
  for (const char* const architecture : {"llama", "mamba"}) {
    const LanguageModel model = load_tiny(architecture, 40);
    const std::vector<Conversation> both = conversations_of(model, {9, 5});
    std::vector<Conversation> forks = forks_of(both);
    const Logits want = to_logits(model.read_each(forks, tokens).values<float>());
    fail_allocations(
        100,
        [&] {
          forks = own([&] { return forks_of(both); });
          model.read_each(forks, tokens);
        },
        [&] {
          const std::int64_t held = forks[0].position();
          const bool may_be_lost = model.config().is_recurrent();
          CHECK(((held == 0 && may_be_lost) || held == 9 || held == 10));
          CHECK(forks[1].position() == (held == 0 ? 0 : held - 4));
          forks = forks_of(both);
          CHECK((to_logits(model.read_each(forks, tokens).values<float>()) == want));
        });
  }
}
