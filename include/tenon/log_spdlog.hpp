#pragma once

#include <tenon/log.hpp>

#include <memory>
#include <utility>

#include <spdlog/logger.h>

namespace tenon {

/// A sink that forwards to an spdlog logger: set_log_sink(spdlog_sink(spdlog::default_logger())).
/// The including program needs spdlog; the library itself does not link it.
inline LogSink spdlog_sink(std::shared_ptr<spdlog::logger> logger) {
  return [logger = std::move(logger)](LogLevel level, std::string_view message) {
    constexpr spdlog::level::level_enum levels[] = {spdlog::level::trace, spdlog::level::debug,
                                                    spdlog::level::info, spdlog::level::warn,
                                                    spdlog::level::err};
    logger->log(levels[static_cast<int>(level)],
                spdlog::string_view_t(message.data(), message.size()));
  };
}

}  // namespace tenon
