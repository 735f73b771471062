#include <tenon/error.hpp>
#include <tenon/event.hpp>
#include <tenon/fork_aware_mutex.hpp>
#include <tenon/process_number.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace tenon {

namespace {
constexpr std::chrono::microseconds poll_interval{50};
}

struct Event::State {
  std::uint32_t process = process_number();
  std::atomic<bool> is_ready{false};
  std::exception_ptr error;       // written before is_ready
  ForkAwareMutex mutex{"Event"};  // of `followers`
  std::vector<std::function<void()>> followers;

  /// In the child of a fork() the thread that does the work is not there.
  void check_process() const {
    if (process == process_number() || is_ready.load(std::memory_order_acquire)) return;
    throw Error(Errc::forked_process, "Event", "the work belongs to the parent process");
  }
};

bool Event::is_ready() const noexcept {
  return state_ == nullptr || state_->is_ready.load(std::memory_order_acquire);
}

std::exception_ptr Event::error() const noexcept {
  return state_ != nullptr && is_ready() ? state_->error : nullptr;
}

void Event::wait_until_ready() const {
  if (is_ready()) return;
  state_->check_process();
  state_->is_ready.wait(false, std::memory_order_acquire);
}

void Event::wait() const {
  wait_until_ready();
  if (const std::exception_ptr failure = error()) std::rethrow_exception(failure);
}

bool Event::wait_for(std::chrono::nanoseconds timeout) const {
  if (!is_ready()) {
    state_->check_process();
    // An atomic has no wait with a timeout; a condition variable cannot be destroyed in the child
    // of a fork().
    const auto begin = std::chrono::steady_clock::now();
    while (!is_ready()) {
      const std::chrono::nanoseconds left = timeout - (std::chrono::steady_clock::now() - begin);
      if (left <= left.zero()) return false;
      std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(left, poll_interval));
    }
  }
  if (const std::exception_ptr failure = error()) std::rethrow_exception(failure);
  return true;
}

void Event::then(std::function<void()> function) const {
  if (!is_ready()) {
    state_->check_process();
    const std::scoped_lock lock(state_->mutex);
    if (!is_ready()) {
      state_->followers.push_back(std::move(function));
      return;
    }
  }
  function();
}

EventSource::EventSource() : state_(std::make_shared<Event::State>()) {}

EventSource::~EventSource() {
  if (state_ == nullptr || state_->is_ready.load(std::memory_order_acquire)) return;
  try {
    throw Error(Errc::cancelled, "Event", "the work was given up");
  } catch (...) {
    end(std::current_exception());
  }
}

EventSource& EventSource::operator=(EventSource&& other) noexcept {
  EventSource ended(std::move(*this));
  state_ = std::move(other.state_);
  return *this;
}

void EventSource::set() noexcept { end(nullptr); }
void EventSource::fail(std::exception_ptr error) noexcept { end(std::move(error)); }

void EventSource::end(std::exception_ptr error) noexcept {
  if (state_ == nullptr || state_->process != process_number()) return;
  std::vector<std::function<void()>> followers;
  {
    const std::scoped_lock lock(state_->mutex);
    if (state_->is_ready.load(std::memory_order_relaxed)) return;
    state_->error = std::move(error);
    state_->is_ready.store(true, std::memory_order_release);
    followers.swap(state_->followers);
  }
  state_->is_ready.notify_all();
  for (const auto& follower : followers) follower();
}

}  // namespace tenon
