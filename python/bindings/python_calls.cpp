#include "bindings.hpp"

#include <tenon/error.hpp>

#include <atomic>

// A thread that asks for the lock of an interpreter that has ended is ended by Python, within the
// library's frames, which ends the process.

namespace tenon::python {
namespace {

std::atomic<bool> has_ended{false};
std::atomic<int> under_way{0};

}  // namespace

PythonCall::Counted::Counted() {
  ++under_way;  // before the look at `has_ended`, which is set before the look at this
  if (!has_ended) return;
  --under_way;
  under_way.notify_all();
  throw Error(Errc::call_order, "Python", "the interpreter is ending");
}

PythonCall::Counted::~Counted() {
  --under_way;
  under_way.notify_all();
}

void drop_python(const std::function<void()>& drop) noexcept {
  ++under_way;
  if (!has_ended) {
    const nb::gil_scoped_acquire lock;
    drop();
  }
  --under_way;
  under_way.notify_all();
}

void end_with_python_calls() {
  nb::module_::import_("atexit").attr("register")(nb::cpp_function([] {
    has_ended = true;
    const nb::gil_scoped_release no_gil;
    for (int calls = under_way; calls > 0; calls = under_way) under_way.wait(calls);
  }));
  // A forked process has none of the threads that call.
  nb::module_::import_("os").attr("register_at_fork")(nb::arg("after_in_child") =
                                                          nb::cpp_function([] { under_way = 0; }));
}

}  // namespace tenon::python
