#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>

namespace tenon {

/// Something that happens once: work that ends, well or with an error. A handle: copies share the
/// event. Thread-safe.
class Event {
 public:
  Event() noexcept = default;  ///< of work that has ended well

  /// Whether the work has ended, well or not: wait() will not block.
  bool is_ready() const noexcept;
  /// Blocks until the work has ended. In the child of a fork(), work that had not ended then never
  /// will: Errc::forked_process.
  void wait_until_ready() const;
  /// The same, and throws the error of the work.
  void wait() const;
  /// As wait(), with a timeout; returns whether the work has ended.
  bool wait_for(std::chrono::nanoseconds timeout) const;
  /// The error of the work; null before its end and where there is none.
  std::exception_ptr error() const noexcept;

  /// Calls `function` when the work has ended: at once where it has, otherwise on the thread that
  /// ends it. It must not throw.
  void then(std::function<void()> function) const;

 private:
  friend class EventSource;
  struct State;
  explicit Event(std::shared_ptr<State> state) noexcept : state_(std::move(state)) {}

  std::shared_ptr<State> state_;  // null: ended well
};

/// Makes an event happen: held by whoever does the work. Destroyed before that, it fails the event
/// with Errc::cancelled. One thread at a time.
class EventSource {
 public:
  EventSource();
  ~EventSource();
  EventSource(EventSource&& other) noexcept = default;
  EventSource& operator=(EventSource&& other) noexcept;

  Event event() const { return Event(state_); }
  /// The work has ended: well, or with `error`. The first call decides; later ones do nothing.
  void set() noexcept;
  void fail(std::exception_ptr error) noexcept;

 private:
  void end(std::exception_ptr error) noexcept;
  std::shared_ptr<Event::State> state_;
};

}  // namespace tenon
