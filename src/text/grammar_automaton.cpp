#include "grammar_automaton.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <iterator>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tenon::text {
namespace {

using Op = GrammarProgram::Op;

// What is kept between two tokens, and the most that one of them may need: a state's steps take 1 KiB.
constexpr std::size_t max_kept_states = 4096, max_states = 65536;
constexpr std::size_t max_kept_frames = 65536, max_frames = 1 << 20;
constexpr std::size_t max_places = 65536;  // of one state
// Places that making states led to, of all states: they bound the work and the memory of many large states.
constexpr std::size_t max_kept_visits = 1 << 20, max_visits = 1 << 22;

std::uint64_t key(std::uint32_t high, std::uint32_t low) {
  return (std::uint64_t{high} << 32) | low;
}

[[noreturn]] void refuse_size() {
  throw Error(Errc::limit_exceeded, "grammar",
              "the text can be read in too many ways at once: the grammar is too ambiguous");
}

}  // namespace

GrammarAutomaton::GrammarAutomaton(std::shared_ptr<const GrammarProgram> program)
    : program_(std::move(program)),
      frames_(1),
      kept_states_(max_kept_states),
      kept_frames_(max_kept_frames) {
  reach({program_->start, 0});
  reached_state();
}

std::span<const GrammarAutomaton::Place> GrammarAutomaton::places_of(State state) const {
  return std::span(places_).subspan(states_[state].first, states_[state].count);
}

GrammarAutomaton::State GrammarAutomaton::step(State state, unsigned char byte) {
  reached_.clear();
  visited_.clear();
  has_reached_end_ = false;
  for (const Place& place : places_of(state)) {
    if (program_->reads(place.at, byte)) reach({place.at + 1, place.frame});
  }
  const State result = reached_.empty() && !has_reached_end_ ? none : reached_state();
  std::vector<State>& steps = states_[state].steps;
  if (steps.empty()) steps.assign(256, unknown);
  return steps[byte] = result;
}

void GrammarAutomaton::reach(Place place) {
  open_.assign(1, place);
  while (!open_.empty()) {
    const auto [at, frame] = open_.back();
    open_.pop_back();
    if (!visited_.insert(key(at, frame)).second) continue;
    if (visited_.size() > max_places || ++visits_ > max_visits) refuse_size();
    const auto& [op, a, b] = program_->code[at];
    switch (op) {
      case Op::bytes:
        reached_.push_back({at, frame});
        break;
      case Op::call:
        open_.push_back({a, frame_number({at + 1, frame})});
        break;
      case Op::split:
        open_.push_back({a, frame});
        open_.push_back({b, frame});
        break;
      case Op::jump:
        open_.push_back({a, frame});
        break;
      case Op::end:
        if (frame == 0) {
          has_reached_end_ = true;
        } else {
          open_.push_back({frames_[frame].back, frames_[frame].outer});
        }
        break;
    }
  }
}

GrammarAutomaton::State GrammarAutomaton::reached_state() {
  std::ranges::sort(reached_);
  const std::uint64_t hash =
      XXH3_64bits_withSeed(reached_.data(), reached_.size() * sizeof(Place), has_reached_end_);
  const auto [first, last] = state_numbers_.equal_range(hash);
  const auto known = std::find_if(first, last, [&](const auto& entry) {
    return states_[entry.second].may_end == has_reached_end_ &&
           std::ranges::equal(places_of(entry.second), reached_);
  });
  if (known != last) return known->second;
  if (states_.size() == max_states) refuse_size();
  const auto number = static_cast<State>(states_.size());
  const std::size_t begin = places_.size();
  places_.insert(places_.end(), reached_.begin(), reached_.end());
  states_.push_back({begin, reached_.size(), has_reached_end_});
  state_numbers_.emplace(hash, number);
  return number;
}

std::uint32_t GrammarAutomaton::frame_number(Frame frame) {
  const std::uint64_t name = key(frame.back, frame.outer);
  const auto known = frame_numbers_.find(name);
  if (known != frame_numbers_.end()) return known->second;
  if (frames_.size() == max_frames) refuse_size();
  const auto number = static_cast<std::uint32_t>(frames_.size());
  frames_.push_back(frame);
  frame_numbers_.emplace(name, number);
  return number;
}

void GrammarAutomaton::trim(std::initializer_list<State*> kept) {
  if (states_.size() <= kept_states_ && frames_.size() <= kept_frames_ &&
      visits_ <= max_kept_visits)
    return;
  GrammarAutomaton fresh(program_);
  fresh.generation_ = generation_ + 1;
  std::unordered_map<std::uint32_t, std::uint32_t> numbers{{0, 0}};  // of the frames in `fresh`
  std::vector<std::uint32_t> chain;
  std::vector<State> renumbered;
  for (const State* const state : kept) {
    fresh.reached_.clear();
    fresh.has_reached_end_ = states_[*state].may_end;
    for (const Place& place : places_of(*state)) {
      for (std::uint32_t frame = place.frame; !numbers.contains(frame);
           frame = frames_[frame].outer) {
        chain.push_back(frame);
      }
      for (; !chain.empty(); chain.pop_back()) {
        const auto [back, outer] = frames_[chain.back()];
        numbers[chain.back()] = fresh.frame_number({back, numbers.at(outer)});
      }
      fresh.reached_.push_back({place.at, numbers.at(place.frame)});
    }
    renumbered.push_back(fresh.reached_state());
  }
  // Of a text that is nested deep much has to be kept.
  fresh.kept_states_ = std::max(max_kept_states, 2 * fresh.states_.size());
  fresh.kept_frames_ = std::max(max_kept_frames, 2 * fresh.frames_.size());
  *this = std::move(fresh);
  std::size_t i = 0;
  for (State* const state : kept) *state = renumbered[i++];
}

}  // namespace tenon::text
