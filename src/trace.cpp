#include <tenon/trace.hpp>

#include <algorithm>
#include <mutex>
#include <ostream>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace tenon {

struct Trace::State {
  struct Event {
    std::size_t track;
    std::string name;
    Clock::time_point begin, end;
    Facts facts;
  };
  const Clock::time_point origin = Clock::now();
  std::mutex mutex;
  std::vector<std::string> tracks;
  std::vector<Event> events;
};

Trace::Trace() : state_(std::make_unique<State>()) {}
Trace::~Trace() = default;

void Trace::add(const std::string& track, std::string name, Clock::time_point begin,
                Clock::time_point end, Facts facts) {
  const std::scoped_lock lock(state_->mutex);
  auto& tracks = state_->tracks;
  const auto found = std::ranges::find(tracks, track);
  const auto number = static_cast<std::size_t>(found - tracks.begin());
  if (found == tracks.end()) tracks.push_back(track);
  state_->events.push_back({number, std::move(name), begin, end, std::move(facts)});
}

std::size_t Trace::size() const {
  const std::scoped_lock lock(state_->mutex);
  return state_->events.size();
}

void Trace::write(std::ostream& out) const {
  using Micros = std::chrono::duration<double, std::micro>;
  const std::scoped_lock lock(state_->mutex);
  nlohmann::json events = nlohmann::json::array();
  for (std::size_t i = 0; i < state_->tracks.size(); ++i) {
    events.push_back({{"ph", "M"},
                      {"name", "thread_name"},
                      {"pid", 1},
                      {"tid", i + 1},
                      {"args", {{"name", state_->tracks[i]}}}});
  }
  for (const State::Event& event : state_->events) {
    events.push_back({{"ph", "X"},
                      {"name", event.name},
                      {"pid", 1},
                      {"tid", event.track + 1},
                      {"ts", Micros(event.begin - state_->origin).count()},
                      {"dur", Micros(event.end - event.begin).count()},
                      {"args", event.facts}});
  }
  // Names may come from files: whatever is no UTF-8 is replaced.
  out << nlohmann::json({{"traceEvents", std::move(events)}, {"displayTimeUnit", "ns"}})
             .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)
      << '\n';
}

}  // namespace tenon
