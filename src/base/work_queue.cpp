#include "base/work_queue.hpp"

#include "base/immortal.hpp"

#include <tenon/error.hpp>
#include <tenon/process_number.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace tenon {

namespace {
constexpr std::chrono::milliseconds interrupt_interval{1};
}

struct WorkQueue::State {
  struct Entry {
    Entry(Job&& todo, EventSource&& event) noexcept
        : job(std::move(todo)), ended(std::move(event)) {}
    Job job;
    EventSource ended;
  };

  std::uint32_t process = process_number();
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Entry> entries;
  bool is_working = false;
  bool stopping = false;
  std::thread thread;
  std::atomic<int> unfinished{0};  // jobs whose end nobody has been told yet: read after a fork()

  bool is_drained() const { return entries.empty() && !is_working; }

  void work() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return stopping || !entries.empty(); });
      if (entries.empty()) return;
      is_working = true;
      {
        Entry entry = std::move(entries.front());
        entries.pop_front();
        lock.unlock();
        finish(entry);
      }
      lock.lock();
      is_working = false;
      changed.notify_all();
    }
  }

  void finish(Entry& entry) noexcept {
    std::exception_ptr error;
    try {
      entry.job();
    } catch (...) {
      error = std::current_exception();
    }
    entry.job = {};  // what it holds goes before anybody is told that it has ended
    unfinished.fetch_sub(1, std::memory_order_release);
    error ? entry.ended.fail(std::move(error)) : entry.ended.set();
  }
};

WorkQueue::~WorkQueue() {
  if (state_ == nullptr) return;
  if (state_->process != process_number()) {
    // Its thread is not there, and may have held the mutex: nothing of it can be destroyed.
    immortal<std::shared_ptr<State>>(std::move(state_));
    return;
  }
  {
    const std::scoped_lock lock(state_->mutex);
    state_->stopping = true;
  }
  state_->changed.notify_all();
  if (state_->thread.get_id() == std::this_thread::get_id()) {
    state_->thread.detach();
  } else {
    state_->thread.join();
  }
}

void WorkQueue::check_process() {
  if (state_ == nullptr || state_->process == process_number()) return;
  if (state_->unfinished.load(std::memory_order_acquire) != 0) {
    throw Error(Errc::forked_process, owner_,
                "submitted work had not ended at fork(): make a new one");
  }
  immortal<std::shared_ptr<State>>(std::move(state_));
  state_.reset();
}

void WorkQueue::push(Job&& job, EventSource&& ended) {
  const std::scoped_lock lock(mutex_);
  check_process();
  if (state_ == nullptr) {
    auto state = std::make_shared<State>();
    try {
      state->thread = std::thread([state] { state->work(); });
    } catch (const std::system_error& error) {
      throw Error(Errc::out_of_memory, owner_,
                  std::string("no thread for submitted work: ") + error.what());
    }
    state_ = std::move(state);
  }
  {
    const std::scoped_lock jobs_lock(state_->mutex);
    state_->entries.emplace_back(std::move(job), std::move(ended));
    state_->unfinished.fetch_add(1, std::memory_order_relaxed);
  }
  state_->changed.notify_all();
}

void WorkQueue::drain(const Interrupt& interrupt, std::string_view where) {
  std::shared_ptr<State> state;
  {
    const std::scoped_lock lock(mutex_);
    check_process();
    state = state_;
  }
  if (state == nullptr || state->thread.get_id() == std::this_thread::get_id()) return;
  std::unique_lock lock(state->mutex);
  const auto is_drained = [&] { return state->is_drained(); };
  if (!interrupt.is_set()) {
    state->changed.wait(lock, is_drained);
    return;
  }
  // Nobody notifies the condition of a stop request.
  while (!state->changed.wait_for(lock, interrupt_interval, is_drained)) interrupt.check(where);
}

}  // namespace tenon
