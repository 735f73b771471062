#pragma once

#include "bindings.hpp"

#include <tenon/interrupt.hpp>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <stop_token>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>

#include <sys/syscall.h>
#include <unistd.h>

namespace tenon::python {
namespace interruptible_detail {

constexpr std::chrono::milliseconds interval{50};  // from a signal to its handler at most

/// Objects whose last call was done sooner than a signal is looked for, of one thread. Addresses are only compared.
class BriefCalls {
 public:
  bool has(const void* object) const noexcept {
    return object != nullptr && place(object) == object;
  }
  void note(const void* object, std::chrono::steady_clock::duration time) noexcept {
    if (object == nullptr) return;
    const void*& at = objects_[index(object)];
    if (time < interval) {
      at = object;
    } else if (at == object) {
      at = nullptr;
    }
  }

 private:
  static constexpr std::size_t size = 64;
  static std::size_t index(const void* object) noexcept {
    return reinterpret_cast<std::uintptr_t>(object) / 16 % size;
  }
  const void* place(const void* object) const noexcept { return objects_[index(object)]; }

  std::array<const void*, size> objects_{};
};

/// Python calls handlers of signals on the main thread alone.
inline bool is_main_thread() noexcept { return ::syscall(SYS_gettid) == ::getpid(); }

/// A call on a thread of its own, and whoever waits for it.
template <class Result>
class OtherThread {
 public:
  template <class Work>
  explicit OtherThread(Work& work)
      : thread_([this, &work] {
          try {
            if constexpr (std::is_void_v<Result>) {
              work(Interrupt{stop_.get_token(), std::nullopt});
            } else {
              result_.emplace(work(Interrupt{stop_.get_token(), std::nullopt}));
            }
          } catch (...) {
            error_ = std::current_exception();
          }
          const std::scoped_lock lock(mutex_);
          has_ended_ = true;
          ended_.notify_all();
        }) {}

  /// Whether it ended by itself, and no handler of a signal raised an exception, which is then Python's current one.
  bool wait() {
    std::unique_lock lock(mutex_);
    while (!ended_.wait_for(lock, interval, [&] { return has_ended_; })) {
      lock.unlock();
      {
        const nb::gil_scoped_acquire gil;
        if (PyErr_CheckSignals() != 0) stop_.request_stop();
      }
      lock.lock();
      if (!stop_.stop_requested()) continue;
      ended_.wait(lock, [&] { return has_ended_; });
      return false;
    }
    return true;
  }
  Result result() {
    if (error_ != nullptr) std::rethrow_exception(error_);
    if constexpr (!std::is_void_v<Result>) return std::move(*result_);
  }

 private:
  using Kept = std::conditional_t<std::is_void_v<Result>, char, Result>;

  std::stop_source stop_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool has_ended_ = false;
  std::optional<Kept> result_;
  std::exception_ptr error_;
  std::jthread thread_;  // last: it ends before what it uses
};

}  // namespace interruptible_detail

/// Calls `work(interrupt)` without the interpreter's lock. On the main thread handlers of signals are called meanwhile;
/// where one raises an exception, as that of Ctrl-C does, the work is interrupted, and the exception is raised when it
/// has ended. The work is done on a thread of its own then, which costs some 30 microseconds. So of an `object` whose
/// last call took less than 50 ms the next one is done at once; null: none is.
template <class Work>
auto interruptible(const void* object, Work&& work) {
  using namespace interruptible_detail;
  using Result = std::invoke_result_t<Work&, const Interrupt&>;
  static thread_local constinit BriefCalls brief;
  const bool is_direct = !is_main_thread() || brief.has(object);
  struct Watch {
    const void* object;
    std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
    ~Watch() { brief.note(object, std::chrono::steady_clock::now() - begin); }
  } const watch{object};
  if (is_direct) {
    const nb::gil_scoped_release no_gil;
    return work(Interrupt());
  }
  std::optional<OtherThread<Result>> call;
  bool is_whole = false;
  {
    const nb::gil_scoped_release no_gil;
    try {
      call.emplace(work);
    } catch (const std::system_error&) {  // no more threads: signals wait
      return work(Interrupt());
    }
    is_whole = call->wait();
  }
  if (!is_whole) throw nb::python_error();
  return call->result();
}

}  // namespace tenon::python
