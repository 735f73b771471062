#pragma once

#include "grammar_program.hpp"

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace tenon::text {

/// Runs a grammar's program on a text. A state is the set of all places where the program may be, each with
/// the places to come back to. States and the steps between them are made when they are first needed, as the
/// subset construction does for regular expressions; from then on a step is a lookup.
class GrammarAutomaton {
 public:
  using State = std::uint32_t;
  static constexpr State none = ~State{0};

  explicit GrammarAutomaton(std::shared_ptr<const GrammarProgram> program);

  /// The state of the empty text, until states are forgotten.
  State start() const noexcept { return 0; }
  /// The state behind one more byte; none where the grammar does not allow it. Errors: limit_exceeded.
  State next(State state, unsigned char byte) {
    const std::vector<State>& steps = states_[state].steps;
    return !steps.empty() && steps[byte] != unknown ? steps[byte] : step(state, byte);
  }
  /// Whether the text may end, and whether a byte may follow.
  bool may_end(State state) const { return states_[state].may_end; }
  bool may_continue(State state) const { return states_[state].count > 0; }

  /// Where states have become many, forgets all but these, and renumbers them.
  void trim(std::initializer_list<State*> kept);
  /// Changes when states are forgotten.
  std::uint64_t generation() const noexcept { return generation_; }

 private:
  static constexpr State unknown = none - 1;
  /// Where to come back to, and then to which outer frame. Equal frames are one; number 0 is the text's end.
  struct Frame {
    std::uint32_t back = 0;
    std::uint32_t outer = 0;
  };
  /// Before an instruction that reads a byte.
  struct Place {
    std::uint32_t at = 0;
    std::uint32_t frame = 0;
    friend auto operator<=>(const Place&, const Place&) = default;
  };
  struct StateData {
    std::size_t first = 0;  // of its places, in places_
    std::size_t count = 0;
    bool may_end = false;
    std::vector<State> steps{};  // by byte; empty before the first
  };

  std::span<const Place> places_of(State state) const;
  State step(State state, unsigned char byte);
  /// Adds to `reached_` what a place leads to without reading a byte.
  void reach(Place place);
  /// The state of what was reached.
  State reached_state();
  std::uint32_t frame_number(Frame frame);

  std::shared_ptr<const GrammarProgram> program_;
  std::vector<Frame> frames_;
  std::unordered_map<std::uint64_t, std::uint32_t> frame_numbers_;
  std::vector<Place> places_;  // of all states, those of one in ascending order
  std::vector<StateData> states_;
  std::unordered_multimap<std::uint64_t, State> state_numbers_;  // by the hash of their places
  std::uint64_t generation_ = 0;
  std::size_t kept_states_, kept_frames_;  // more of them are trimmed
  std::size_t visits_ = 0;                 // of places, since states were forgotten last

  // The state that is being made.
  std::vector<Place> reached_, open_;
  std::unordered_set<std::uint64_t> visited_;
  bool has_reached_end_ = false;
};

}  // namespace tenon::text
