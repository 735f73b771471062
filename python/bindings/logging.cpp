#include "bindings.hpp"

#include <tenon/fork_locked_mutex.hpp>
#include <tenon/log.hpp>

#include <array>
#include <iterator>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

// The library calls a sink one message at a time. If the sink took the interpreter's lock, a thread that has it and waits for
// its turn would wait for ever. So the sink only keeps messages, and the main thread hands them to Python's logging at its next
// instruction.

namespace tenon::python {
namespace {

struct Message {
  LogLevel level;
  std::string text;
};

struct Messages {
  ForkLockedMutex mutex;
  std::vector<Message> waiting;
};

/// The number of a level in Python's logging, which has none for traces.
int python_level(LogLevel level) noexcept {
  constexpr std::array numbers = {5, 10, 20, 30, 40};
  return numbers[static_cast<std::size_t>(level)];
}

/// To Python's logger "tenon". Errors of handlers and filters are dropped; what is no error, such as the KeyboardInterrupt
/// of Ctrl-C, is thrown.
void hand_over(const Message& message) {
  try {
    const nb::object logger = nb::module_::import_("logging").attr("getLogger")("tenon");
    const nb::object text = nb::steal(PyUnicode_DecodeUTF8(
        message.text.data(), static_cast<Py_ssize_t>(message.text.size()), "replace"));
    logger.attr("log")(python_level(message.level), "%s", text);
  } catch (const nb::python_error& error) {
    if (!error.matches(PyExc_Exception)) throw;
  }
}

/// Hands over what waits. Where a message throws, the ones after it wait for the next call.
void deliver(Messages& messages) {
  std::vector<Message> taken;
  {
    const std::scoped_lock lock(messages.mutex);
    taken.swap(messages.waiting);
  }
  for (auto one = taken.begin(); one != taken.end(); ++one) {
    try {
      hand_over(*one);
    } catch (...) {
      const std::scoped_lock lock(messages.mutex);
      messages.waiting.insert(messages.waiting.begin(), std::next(one), taken.end());
      throw;
    }
  }
}

/// What Python's main thread calls: -1 with Python's error set, which it raises.
int deliver_pending(void* held) noexcept {
  try {
    deliver(*static_cast<Messages*>(held));
  } catch (nb::python_error& error) {
    error.restore();
    return -1;
  } catch (const std::exception&) {  // no memory for a message
  }
  return 0;
}

void keep(Messages& messages, LogLevel level, std::string_view text) {
  constexpr std::size_t most = 10'000;  // where the main thread does not run Python
  {
    const std::scoped_lock lock(messages.mutex);
    if (messages.waiting.size() == most) return;
    messages.waiting.push_back({level, std::string(text)});
  }
  // Fails where many wait already, which the next message, or the end, makes up for.
  Py_AddPendingCall(deliver_pending, &messages);
}

}  // namespace

void forward_log_to_python() {
  auto* const messages = new Messages;  // never freed: a pending call may still name it
  nb::module_::import_("atexit").attr("register")(nb::cpp_function([messages] {
    set_log_sink({});
    deliver(*messages);
  }));
  set_log_sink([messages](LogLevel level, std::string_view text) { keep(*messages, level, text); });
}

}  // namespace tenon::python
