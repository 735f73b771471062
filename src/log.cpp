#include <tenon/log.hpp>

#include <atomic>
#include <mutex>
#include <utility>

namespace tenon {
namespace {

struct Log {
  std::mutex mutex;
  LogSink sink;
  std::atomic<bool> enabled{false};
};

// Never destroyed: static destructors may still log.
Log& instance() {
  static Log* const log = new Log;
  return *log;
}

}  // namespace

LogSink set_log_sink(LogSink sink) {
  Log& log = instance();
  const std::scoped_lock lock(log.mutex);
  log.enabled = static_cast<bool>(sink);
  return std::exchange(log.sink, std::move(sink));
}

bool log_enabled() noexcept { return instance().enabled.load(std::memory_order_relaxed); }

void log(LogLevel level, std::string_view message) noexcept {
  Log& log = instance();
  if (!log.enabled.load(std::memory_order_relaxed)) return;
  try {
    const std::scoped_lock lock(log.mutex);
    if (log.sink) log.sink(level, message);
  } catch (...) {
    // A sink's own trouble must not become the caller's.
  }
}

}  // namespace tenon
