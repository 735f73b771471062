#include "bindings.hpp"

#include <tenon/error.hpp>

#include <atomic>
#include <chrono>
#include <thread>

// A thread that asks for the lock of an interpreter that has ended is ended by Python, within the
// library's frames, which ends the process.

namespace tenon::python {
namespace {

std::atomic<bool> has_ended{false};
std::atomic<int> under_way{0};
thread_local int own_calls = 0;  ///< of those, this thread's, one within the other

void end_call() noexcept {
  --own_calls;
  --under_way;
}

/// Whether there are none any more; false where a signal's handler has raised an exception.
bool wait_for_calls() {
  constexpr std::chrono::milliseconds interval{50};
  while (under_way > 0) {
    {
      const nb::gil_scoped_release no_gil;
      std::this_thread::sleep_for(interval);
    }
    if (PyErr_CheckSignals() != 0) return false;
  }
  return true;
}

}  // namespace

PythonCall::Counted::Counted() {
  ++under_way;  // before the look at `has_ended`, which is set before the look at this
  ++own_calls;
  if (!has_ended || own_calls > 1) return;  // what is under way may call Python again
  end_call();
  throw Error(Errc::call_order, "Python", "the interpreter is ending");
}

PythonCall::Counted::~Counted() { end_call(); }

void drop_python(const std::function<void()>& drop) noexcept {
  ++under_way;
  ++own_calls;
  if (!has_ended || own_calls > 1) {
    const nb::gil_scoped_acquire lock;
    drop();
  }
  end_call();
}

void end_with_python_calls() {
  nb::module_::import_("atexit").attr("register")(nb::cpp_function([] {
    has_ended = true;
    if (!wait_for_calls()) throw nb::python_error();
  }));
  // A forked process has none of the threads that call but the one that forked.
  nb::module_::import_("os").attr("register_at_fork")(
      nb::arg("after_in_child") = nb::cpp_function([] { under_way = own_calls; }));
}

}  // namespace tenon::python
