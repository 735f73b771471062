#include "schedule.hpp"

#include <algorithm>

namespace tenon::npu::sim {
namespace {

/// One step at a time: an engine begins its next instruction or does some more of the one it is at,
/// or one more is dispatched. Times follow the order drawn: each instruction begins when its engine
/// and its tokens allow, and transfers take the port in the order in which they end.
class RandomSchedule final : public Schedule {
 public:
  RandomSchedule(const isa::Caps& caps, Executor& executor, Faults& faults, Observer& observer,
                 std::uint32_t seed)
      : Schedule(caps, executor, faults, observer), random_(seed) {}

  RunTime run(std::span<const std::byte> program) override {
    start(program);
    free_.fill(0);
    arrivals_ = {};
    progress_ = {};
    port_free_ = 0;
    // Some runs favour one engine, some delay it.
    for (unsigned& weight : weights_) weight = 1U << 2 * (random_() % 4);
    std::uint64_t time = verify_cycles(caps_, program.size());
    std::uint32_t next = 0;
    for (;;) {
      std::array<unsigned, 4> weight{};
      for (const isa::Engine engine : engines) {
        const auto who = static_cast<std::size_t>(engine);
        if (progress_[who].left > 0 || can_begin(engine)) weight[who] = weights_[who];
      }
      const isa::Instruction instruction = decode_once(next);
      const isa::Engine target = isa::engine(instruction);
      const bool may_dispatch =
          target == isa::Engine::all ? drained() : unit(target).queue.size() < caps_.queue_depth;
      if (may_dispatch) weight[3] = weights_[3];
      const unsigned total = weight[0] + weight[1] + weight[2] + weight[3];
      if (total == 0) {
        for (const isa::Engine engine : engines) show(engine);
        observer_.stuck();
        throw Aborted{};
      }
      const std::size_t chosen = draw(weight, total);
      if (chosen < isa::engine_count) {
        step(static_cast<isa::Engine>(chosen));
        continue;
      }
      decoded_ = none;
      const std::uint32_t pc = next++;
      if (target != isa::Engine::all) {
        time += 1;
        arrivals_[static_cast<std::size_t>(target)].push_back(time);
        unit(target).queue.push_back({pc, instruction});
        show(target);
        continue;
      }
      time = std::max(time, *std::ranges::max_element(free_)) + 1;
      observer_.before(target, pc, isa::common(instruction).layer);
      const bool halted = drain_with(pc, instruction);
      observer_.ended({target, pc, isa::common(instruction).layer, isa::mnemonic(instruction),
                       time - 1, time - 1, time, 0},
                      instruction);
      if (halted) return {time, verify_cycles(caps_, program.size()) + next};
    }
  }

 private:
  struct Progress {
    Span span;
    std::uint64_t done = 0;
    std::uint64_t left = 0;  // pieces of the instruction at work; 0: none is
  };

  isa::Instruction decode_once(std::uint32_t pc) {
    if (decoded_ != pc) instruction_ = decode(pc);
    decoded_ = pc;
    return instruction_;
  }

  std::size_t draw(const std::array<unsigned, 4>& weight, unsigned total) {
    std::uint64_t at = random_() % total;
    std::size_t chosen = 0;
    while (at >= weight[chosen]) at -= weight[chosen++];
    return chosen;
  }

  void step(isa::Engine engine) {
    Progress& progress = progress_[static_cast<std::size_t>(engine)];
    if (progress.left == 0 && !begin_next(engine, progress)) return;
    const std::uint64_t count = some_of(progress.left);
    work(engine, {progress.done, count});
    progress.done += count;
    progress.left -= count;
    if (progress.left == 0) end(engine, progress.span);
  }

  // Whole instructions often, pieces of them as often: tokens that are missing show either way.
  std::uint64_t some_of(std::uint64_t left) {
    if (left == 1 || random_() % 2 == 0) return left;
    return 1 + random_() % left;
  }

  // False when its transfer will never end; the engine then stays busy.
  bool begin_next(isa::Engine engine, Progress& progress) {
    const auto who = static_cast<std::size_t>(engine);
    Span span;
    span.engine = engine;
    span.held = std::max(free_[who], arrivals_[who].front());
    arrivals_[who].pop_front();
    bool never_ends = false;
    const std::uint64_t given = begin(engine, never_ends);
    if (never_ends) return false;
    const isa::Instruction& instruction = unit(engine).current.instruction;
    span.pc = unit(engine).current.pc;
    span.layer = isa::common(instruction).layer;
    span.mnemonic = isa::mnemonic(instruction);
    span.begin = std::max(span.held, given);
    progress = {span, 0, pieces(engine)};
    return true;
  }

  void end(isa::Engine engine, Span span) {
    const auto who = static_cast<std::size_t>(engine);
    const isa::Instruction instruction = unit(engine).current.instruction;
    const isa::Transfer moved = isa::transfer(instruction);
    const std::uint64_t bytes = (moved.read_bursts + moved.write_bursts) * isa::burst_bytes;
    if (bytes > 0) {
      const std::uint64_t asked = span.begin + caps_.ddr_latency;
      const std::uint64_t served = std::max(asked, port_free_);
      span.ddr_stall = served - asked;
      port_free_ = served + (bytes * caps_.freq_khz + caps_.ddr_kbps - 1) / caps_.ddr_kbps;
      span.end = port_free_;
    } else {
      span.end = span.begin + isa::execute_cycles(caps_, instruction);
    }
    free_[who] = span.end;
    finish(engine, span.end);
    observer_.ended(span, instruction);
    show(engine);
  }

  std::mt19937_64 random_;
  std::array<unsigned, 4> weights_{};  // of the engines and of dispatching
  std::array<Progress, isa::engine_count> progress_;
  std::array<std::uint64_t, isa::engine_count> free_{};
  std::array<std::deque<std::uint64_t>, isa::engine_count> arrivals_;
  std::uint64_t port_free_ = 0;
  std::uint32_t decoded_ = none;
  isa::Instruction instruction_;
};

}  // namespace

std::unique_ptr<Schedule> make_random_schedule(const isa::Caps& caps, Executor& executor,
                                               Faults& faults, Observer& observer,
                                               std::uint32_t seed) {
  return std::make_unique<RandomSchedule>(caps, executor, faults, observer, seed);
}

}  // namespace tenon::npu::sim
