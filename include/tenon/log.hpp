#pragma once

#include <functional>
#include <string_view>

namespace tenon {

enum class LogLevel { trace, debug, info, warning, error };

/// Receives the library's messages; called from any thread, one call at a time. It may use the library:
/// what that has to say on the same thread meanwhile is dropped. It must not wait for work on other
/// threads, such as Session::submit()'s, which may have a message and wait for the sink.
using LogSink = std::function<void(LogLevel level, std::string_view message)>;

/// Installs a sink and returns the previous one. Without a sink (the default) the library logs
/// nothing. Errc::busy when a sink calls it.
LogSink set_log_sink(LogSink sink);

/// Whether a sink is installed: check it before composing an expensive message.
bool log_enabled() noexcept;

/// Hands `message` to the sink, if there is one. An exception from the sink is dropped.
void log(LogLevel level, std::string_view message) noexcept;

}  // namespace tenon
