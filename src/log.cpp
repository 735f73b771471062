#include "immortal.hpp"

#include <tenon/log.hpp>
#include <tenon/printable.hpp>

#include <atomic>
#include <mutex>
#include <utility>

namespace tenon {
namespace {

struct LogState {
  std::mutex mutex;
  LogSink sink;
  std::atomic<bool> enabled{false};
};

// Never destroyed: static destructors may still log.
LogState& instance() {
  static LogState& state = immortal<LogState>();
  return state;
}

}  // namespace

LogSink set_log_sink(LogSink sink) {
  LogState& state = instance();
  const std::scoped_lock lock(state.mutex);
  state.enabled = static_cast<bool>(sink);
  return std::exchange(state.sink, std::move(sink));
}

bool log_enabled() noexcept { return instance().enabled.load(std::memory_order_relaxed); }

void log(LogLevel level, std::string_view message) noexcept {
  LogState& state = instance();
  if (!state.enabled.load(std::memory_order_relaxed)) return;
  try {
    const std::scoped_lock lock(state.mutex);
    if (state.sink) state.sink(level, printable(message, LineBreaks::keep));
  } catch (...) {
    // A sink's own trouble must not become the caller's.
  }
}

}  // namespace tenon
