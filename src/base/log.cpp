#include "base/immortal.hpp"

#include <tenon/error.hpp>
#include <tenon/fork_aware_mutex.hpp>
#include <tenon/fork_locked_mutex.hpp>
#include <tenon/log.hpp>
#include <tenon/printable.hpp>

#include <atomic>
#include <mutex>
#include <utility>

namespace tenon {
namespace {

struct LogState {
  ForkAwareMutex calls{"log"};  // held while the sink runs
  ForkLockedMutex mutex;        // and this one while it is changed
  LogSink sink;
  std::atomic<bool> enabled{false};
};

// Never destroyed: static destructors may still log.
LogState& instance() {
  return process_wide([] { return LogState(); });
}

/// Whether this thread is in a sink, whose turn does not end before it returns.
thread_local bool is_in_sink = false;

class InSink {
 public:
  InSink() noexcept { is_in_sink = true; }
  ~InSink() { is_in_sink = false; }
  InSink(const InSink&) = delete;
  InSink& operator=(const InSink&) = delete;
};

/// One call at a time. In the child of a fork(), a call of another thread counts as ended.
class Turn {
 public:
  explicit Turn(LogState& state) noexcept : state_(state) { state.calls.lock_or_take_over(); }
  ~Turn() { state_.calls.unlock(); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  LogState& state_;
};

}  // namespace

LogSink set_log_sink(LogSink sink) {
  if (is_in_sink) throw Error(Errc::busy, "set_log_sink", "called by the sink itself");
  LogState& state = instance();
  const Turn turn(state);
  const std::scoped_lock lock(state.mutex);
  state.enabled = static_cast<bool>(sink);
  sink.swap(state.sink);
  return sink;
}

bool log_enabled() noexcept { return instance().enabled.load(std::memory_order_relaxed); }

void log(LogLevel level, std::string_view message) noexcept {
  LogState& state = instance();
  if (is_in_sink || !state.enabled.load(std::memory_order_relaxed)) return;
  try {
    const Turn turn(state);
    const InSink now;
    if (state.sink) state.sink(level, printable(message, LineBreaks::keep));
  } catch (...) {
    // Errors of a sink must not reach the caller.
  }
}

}  // namespace tenon
