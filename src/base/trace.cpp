#include "base/json_writer.hpp"

#include <tenon/fork_locked_mutex.hpp>
#include <tenon/memory_errors.hpp>
#include <tenon/trace.hpp>

#include <algorithm>
#include <mutex>
#include <ostream>
#include <utility>
#include <vector>

namespace tenon {

struct Trace::State {
  struct Event {
    std::size_t track;
    std::string name;
    Clock::time_point begin, end;
    Facts facts;
  };
  struct Content {
    std::vector<std::string> tracks;
    std::vector<Event> events;
  };
  const Clock::time_point origin = Clock::now();
  ForkLockedMutex mutex;
  Content content;
};

Trace::Trace() : state_(std::make_unique<State>()) {}
Trace::~Trace() = default;

void Trace::add(const std::string& track, std::string name, Clock::time_point begin,
                Clock::time_point end, Facts facts) {
  const std::scoped_lock lock(state_->mutex);
  auto& [tracks, events] = state_->content;
  const auto found = std::ranges::find(tracks, track);
  const auto number = static_cast<std::size_t>(found - tracks.begin());
  if (found == tracks.end()) tracks.push_back(track);
  events.push_back({number, std::move(name), begin, end, std::move(facts)});
}

std::size_t Trace::size() const {
  const std::scoped_lock lock(state_->mutex);
  return state_->content.events.size();
}

void Trace::write(std::ostream& out) const {
  using Micros = std::chrono::duration<double, std::micro>;
  const std::string text = with_memory_errors("Trace::write", [&] {
    const auto [tracks, events] = [&] {
      const std::scoped_lock lock(state_->mutex);
      return state_->content;
    }();
    JsonWriter json;  // names may come from files: whatever is no UTF-8 is replaced
    const auto begin_event = [&](const char* kind, std::size_t track) {
      json.begin_object().member("ph", kind).member("pid", 1).member("tid", track + 1);
    };
    json.begin_object().member("displayTimeUnit", "ns").key("traceEvents").begin_array();
    for (std::size_t i = 0; i < tracks.size(); ++i) {
      begin_event("M", i);
      json.member("name", "thread_name").key("args");
      json.begin_object().member("name", tracks[i]).end_object().end_object();
    }
    for (const State::Event& event : events) {
      begin_event("X", event.track);
      json.member("name", event.name);
      json.member("ts", Micros(event.begin - state_->origin).count());
      json.member("dur", Micros(event.end - event.begin).count());
      json.key("args").begin_object();
      for (const auto& [name, fact] : event.facts) json.member(name, fact);
      json.end_object().end_object();
    }
    json.end_array().end_object();
    return json.take();
  });
  out << text << '\n';
}

}  // namespace tenon
