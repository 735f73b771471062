#include "dependencies.hpp"

#include <algorithm>
#include <array>
#include <map>

#include <npu/isa/integer_math.hpp>

namespace tenon::npu {
namespace {

using isa::Engine;
using Index = std::int64_t;  // of an instruction; -1: none
using PerEngine = std::array<Index, isa::engine_count>;
constexpr PerEngine nobody{-1, -1, -1};

/// The last read and the last write of each byte of a memory, per engine.
class History {
 public:
  /// Records an access of [begin, end) and raises `needs` to the instructions that it must wait
  /// for.
  void access(std::uint64_t begin, std::uint64_t end, bool writes, std::size_t engine, Index index,
              PerEngine& needs) {
    if (begin >= end) return;
    split(begin);
    split(end);
    std::uint64_t at = begin;
    auto it = ranges_.lower_bound(begin);
    while (at < end) {
      if (it == ranges_.end() || it->first > at) {
        const std::uint64_t stop = it == ranges_.end() ? end : std::min(end, it->first);
        it = ranges_.emplace_hint(it, at, Range{stop, nobody, nobody});
      }
      Range& range = it->second;
      for (std::size_t other = 0; other < isa::engine_count; ++other) {
        if (other == engine) continue;
        needs[other] = std::max(needs[other], range.written[other]);
        if (writes) needs[other] = std::max(needs[other], range.read[other]);
      }
      if (writes) {
        // Later accesses are ordered after this one, and so after all before it.
        range.written = nobody;
        range.read = nobody;
      }
      (writes ? range.written : range.read)[engine] = index;
      at = range.end;
      ++it;
    }
  }

 private:
  struct Range {
    std::uint64_t end;
    PerEngine written, read;
  };

  void split(std::uint64_t at) {
    auto it = ranges_.upper_bound(at);
    if (it == ranges_.begin()) return;
    --it;
    if (it->first == at || it->second.end <= at) return;
    Range tail = it->second;
    it->second.end = at;
    ranges_.emplace(at, tail);
  }

  std::map<std::uint64_t, Range> ranges_;
};

}  // namespace

void set_tokens(std::vector<isa::Instruction>& instructions) {
  std::array<History, 5> memories;
  // Per instruction: the newest instruction of each engine that is known to have ended when this
  // one has.
  std::vector<PerEngine> ended(instructions.size(), nobody);
  PerEngine newest = nobody;
  for (std::size_t i = 0; i < instructions.size(); ++i) {
    const Engine engine = isa::engine(instructions[i]);
    const auto own = static_cast<std::size_t>(engine);
    isa::Common& common = isa::common(instructions[i]);
    common.deps = {};
    PerEngine needs = nobody;
    for_each_access(instructions[i],
                    [&](Space space, std::uint64_t begin, std::uint64_t end, bool writes) {
                      // Devices track hazards by line: two engines that access one line are
                      // ordered, even where they access different bytes.
                      if (space != Space::acc) {
                        begin = begin / isa::line_bytes * isa::line_bytes;
                        end = round_up(end, isa::line_bytes);
                      }
                      memories[static_cast<std::size_t>(space)].access(
                          begin, end, writes, own, static_cast<Index>(i), needs);
                    });
    PerEngine known = newest[own] < 0 ? nobody : ended[static_cast<std::size_t>(newest[own])];
    const auto learn = [&](Index from) {
      const PerEngine& more = ended[static_cast<std::size_t>(from)];
      for (std::size_t e = 0; e < known.size(); ++e) known[e] = std::max(known[e], more[e]);
    };
    // The later of the two may already have waited for the earlier one.
    std::array<Engine, 2> others{isa::previous(engine), isa::next(engine)};
    const auto need = [&](Engine e) { return needs[static_cast<std::size_t>(e)]; };
    if (need(others[1]) > need(others[0])) std::swap(others[0], others[1]);
    for (const Engine other : others) {
      if (need(other) <= known[static_cast<std::size_t>(other)]) continue;
      isa::Deps& giver = isa::common(instructions[static_cast<std::size_t>(need(other))]).deps;
      if (other == isa::previous(engine)) {
        common.deps.pop_prev = true;
        giver.push_next = true;
      } else {
        common.deps.pop_next = true;
        giver.push_prev = true;
      }
      learn(need(other));
    }
    known[own] = static_cast<Index>(i);
    ended[i] = known;
    newest[own] = static_cast<Index>(i);
  }
}

}  // namespace tenon::npu
