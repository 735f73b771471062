#include <tenon/error.hpp>
#include <tenon/log.hpp>

#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon {
namespace {

/// Installs a sink for one test and puts the one before back.
class ScopedSink {
 public:
  explicit ScopedSink(LogSink sink) : previous_(set_log_sink(std::move(sink))) {}
  ~ScopedSink() { set_log_sink(std::move(previous_)); }
  ScopedSink(const ScopedSink&) = delete;
  ScopedSink& operator=(const ScopedSink&) = delete;

 private:
  LogSink previous_;
};

}  // namespace

TEST_CASE("log: silent without a sink") {
  const ScopedSink none(nullptr);
  CHECK_FALSE(log_enabled());
  log(LogLevel::error, "to nobody");

  std::vector<std::pair<LogLevel, std::string>> heard;
  {
    const ScopedSink sink(
        [&](LogLevel level, std::string_view text) { heard.emplace_back(level, text); });
    CHECK(log_enabled());
    log(LogLevel::warning, "to the sink");
  }
  CHECK_FALSE(log_enabled());
  log(LogLevel::warning, "to nobody again");
  REQUIRE(heard.size() == 1);
  CHECK(heard[0].first == LogLevel::warning);
  CHECK(heard[0].second == "to the sink");
}

TEST_CASE("log: a sink's exception is dropped") {
  const ScopedSink sink([](LogLevel, std::string_view) { throw std::runtime_error("disk full"); });
  CHECK_NOTHROW(log(LogLevel::info, "message"));
}

TEST_CASE("log: what a sink logs itself is dropped, and it cannot be replaced by itself") {
  std::vector<std::string> heard;
  bool is_refused = false;
  const ScopedSink sink([&](LogLevel, std::string_view text) {
    heard.emplace_back(text);
    log(LogLevel::info, "from the sink");
    try {
      set_log_sink(nullptr);
    } catch (const Error& error) {
      is_refused = error.code() == Errc::busy;
      throw;
    }
  });
  log(LogLevel::info, "one");
  log(LogLevel::info, "two");
  CHECK(heard == std::vector<std::string>{"one", "two"});
  CHECK(is_refused);
}

TEST_CASE("log: one call at a time") {
  int inside = 0, most = 0, calls = 0;
  {
    const ScopedSink sink([&](LogLevel, std::string_view) {
      most = std::max(most, ++inside);
      ++calls;
      --inside;
    });
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([] {
        for (int i = 0; i < 200; ++i) log(LogLevel::debug, "tick");
      });
    }
    for (auto& thread : threads) thread.join();
  }
  CHECK(calls == 800);
  CHECK(most == 1);
}

}  // namespace tenon
