#include <tenon/log_spdlog.hpp>

#include <memory>
#include <sstream>

#include <catch2/catch.hpp>
#include <spdlog/sinks/ostream_sink.h>

namespace tenon {

TEST_CASE("log: into an spdlog logger, level by level") {
  std::ostringstream out;
  auto logger = std::make_shared<spdlog::logger>(
      "tenon", std::make_shared<spdlog::sinks::ostream_sink_mt>(out));
  logger->set_pattern("%l %v");
  logger->set_level(spdlog::level::debug);
  LogSink previous = set_log_sink(spdlog_sink(logger));
  log(LogLevel::trace, "below the logger's level");
  log(LogLevel::debug, "a");
  log(LogLevel::info, "b {} is no format string");
  log(LogLevel::warning, "c");
  log(LogLevel::error, "d");
  set_log_sink(std::move(previous));
  CHECK(out.str() == "debug a\ninfo b {} is no format string\nwarning c\nerror d\n");
}

}  // namespace tenon
