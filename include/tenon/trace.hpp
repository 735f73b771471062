#pragma once

#include <chrono>
#include <cstddef>
#include <iosfwd>
#include <map>
#include <memory>
#include <string>

namespace tenon {

/// Events of a session and its backends on one time line, written as Chrome trace events, which
/// Perfetto and chrome://tracing read. Thread-safe.
class Trace {
 public:
  using Clock = std::chrono::steady_clock;
  using Facts = std::map<std::string, std::string>;

  Trace();
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  /// Adds an event from `begin` to `end`. Events of one `track` (a backend, an engine of a device,
  /// a thread) are shown in one row.
  void add(const std::string& track, std::string name, Clock::time_point begin,
           Clock::time_point end, Facts facts = {});

  std::size_t size() const;
  /// Writes one JSON object; times are in microseconds since the trace was constructed.
  void write(std::ostream& out) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tenon
