#pragma once

#include <chrono>
#include <cstddef>
#include <iosfwd>
#include <map>
#include <memory>
#include <string>

namespace tenon {

/// What happened when, from a session and its backends on one time line; written as Chrome trace
/// events, which Perfetto and chrome://tracing read. Thread-safe.
class Trace {
 public:
  using Clock = std::chrono::steady_clock;
  using Facts = std::map<std::string, std::string>;

  Trace();
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  /// Something that took time. Events of one `track` stand in one row: a backend, an engine of a
  /// device, a thread.
  void add(const std::string& track, std::string name, Clock::time_point begin,
           Clock::time_point end, Facts facts = {});

  std::size_t size() const;
  /// One JSON object; times in microseconds since the trace was made.
  void write(std::ostream& out) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tenon
