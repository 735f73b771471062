#include "npu/isa/integer_math.hpp"
#include "schedule.hpp"

#include <numeric>
#include <optional>
#include <queue>

namespace tenon::npu::sim {
namespace {

constexpr std::uint64_t chunk_bytes = 256;  // of a transfer served at a time
constexpr std::uint32_t chunk_instructions = chunk_bytes / isa::instruction_bytes;

// Who uses the DDR port: the engines by their number, then the front end.
constexpr std::size_t front_end = isa::engine_count;

/// Time runs in ticks that divide both a cycle and the time of a byte at the port.
class TimeSchedule final : public Schedule {
 public:
  TimeSchedule(const isa::Caps& caps, Executor& executor, Faults& faults, Observer& observer)
      : Schedule(caps, executor, faults, observer) {
    const std::uint64_t common = std::gcd(caps.ddr_kbps, caps.freq_khz);
    cycle_ticks_ = caps.ddr_kbps / common;
    byte_ticks_ = caps.freq_khz / common;
  }

  RunTime run(std::span<const std::byte> program) override {
    start(program);
    events_ = {};
    port_ = {};
    transfers_ = {};
    timing_ = {};
    fetched_ = arrived_ = dispatched_ = 0;
    fetching_ = dispatching_ = halted_ = false;
    instruction_.reset();
    fe_active_since_ = fe_busy_ = sequence_ = 0;
    now_ = verify_cycles(caps_, program.size()) * cycle_ticks_;
    fe_busy_ = now_;

    advance_front_end();
    while (!halted_) {
      if (events_.empty()) {
        for (const isa::Engine engine : engines) show(engine);
        observer_.stuck();
        throw Aborted{};
      }
      const Event event = events_.top();
      events_.pop();
      now_ = event.tick;
      handle(event);
    }
    return {now_ / cycle_ticks_, fe_busy_ / cycle_ticks_};
  }

 private:
  enum class Kind : std::uint8_t { request, served, ended, dispatched };
  struct Event {
    std::uint64_t tick;
    std::uint64_t sequence;  // events of one tick happen in the order they were made
    Kind kind;
    std::size_t who;
    bool operator>(const Event& other) const noexcept {
      return tick != other.tick ? tick > other.tick : sequence > other.sequence;
    }
  };
  struct Transfer {
    std::uint64_t left = 0;
    std::uint64_t waited = 0;  // ticks in the queue of the port
    std::uint64_t asked = 0;   // tick of the request that is queued
  };
  struct Timing {
    std::uint64_t held = 0;
    std::uint64_t begin = 0;
  };

  void at(std::uint64_t tick, Kind kind, std::size_t who) {
    events_.push({tick, sequence_++, kind, who});
  }
  std::uint64_t cycles(std::uint64_t count) const noexcept { return count * cycle_ticks_; }
  std::uint64_t next_cycle(std::uint64_t tick) const noexcept {
    return round_up(tick, cycle_ticks_);
  }

  void handle(const Event& event) {
    switch (event.kind) {
      case Kind::request:
        request(event.who);
        break;
      case Kind::served:
        served(event.who);
        break;
      case Kind::ended:
        if (event.who == front_end) {
          fetch_arrived();
        } else {
          instruction_ended(static_cast<isa::Engine>(event.who));
        }
        break;
      case Kind::dispatched:
        instruction_dispatched();
        break;
    }
  }

  // ---- The port -----------------------------------------------------------------------------

  void transfer(std::size_t who, std::uint64_t bytes) {
    transfers_[who] = {bytes, 0, 0};
    at(now_ + cycles(caps_.ddr_latency), Kind::request, who);
  }

  void request(std::size_t who) {
    transfers_[who].asked = now_;
    port_.waiting.push_back(who);
    serve();
  }

  void serve() {
    if (port_.busy || port_.waiting.empty()) return;
    const std::size_t who = port_.waiting.front();
    port_.waiting.pop_front();
    Transfer& transfer = transfers_[who];
    transfer.waited += now_ - transfer.asked;
    const std::uint64_t bytes = std::min(transfer.left, chunk_bytes);
    transfer.left -= bytes;
    port_.busy = true;
    at(now_ + bytes * byte_ticks_, Kind::served, who);
  }

  void served(std::size_t who) {
    port_.busy = false;
    if (transfers_[who].left > 0) {
      transfers_[who].asked = now_;
      port_.waiting.push_back(who);
    } else {
      at(next_cycle(now_), Kind::ended, who);
    }
    serve();
  }

  // ---- The engines --------------------------------------------------------------------------

  void try_begin(isa::Engine engine) {
    show(engine);
    if (!can_begin(engine)) return;
    const auto who = static_cast<std::size_t>(engine);
    bool never_ends = false;
    begin(engine, never_ends);
    if (!never_ends) work(engine, {0, pieces(engine)});
    timing_[who].begin = now_;
    if (!never_ends) {
      const isa::Instruction& instruction = unit(engine).current.instruction;
      const isa::Transfer moved = isa::transfer(instruction);
      const std::uint64_t bytes = (moved.read_bursts + moved.write_bursts) * isa::burst_bytes;
      if (bytes > 0) {
        transfer(who, bytes);
      } else {
        transfers_[who] = {};
        at(now_ + cycles(isa::execute_cycles(caps_, instruction)), Kind::ended, who);
      }
    }
    advance_front_end();  // the queue has room
  }

  void instruction_ended(isa::Engine engine) {
    const auto who = static_cast<std::size_t>(engine);
    Unit& u = unit(engine);
    Span span;
    span.engine = engine;
    span.pc = u.current.pc;
    span.layer = isa::common(u.current.instruction).layer;
    span.mnemonic = isa::mnemonic(u.current.instruction);
    span.held = timing_[who].held / cycle_ticks_;
    span.begin = timing_[who].begin / cycle_ticks_;
    span.end = now_ / cycle_ticks_;
    span.ddr_stall = transfers_[who].waited / cycle_ticks_;
    const isa::Instruction instruction = u.current.instruction;
    finish(engine, now_);
    observer_.ended(span, instruction);
    timing_[who].held = now_;
    for (const isa::Engine each : engines) try_begin(each);
    advance_front_end();  // it may wait for the drain
  }

  // ---- The front end ------------------------------------------------------------------------

  void advance_front_end() {
    const bool was_active = fetching_ || dispatching_;
    // At most two chunks are on their way or not wholly dispatched.
    if (!fetching_ && fetched_ < count() &&
        fetched_ < (dispatched_ / chunk_instructions + 2) * chunk_instructions) {
      const std::uint32_t wanted = std::min(chunk_instructions, count() - fetched_);
      fetched_ += wanted;
      fetching_ = true;
      const std::uint64_t bytes = std::uint64_t{wanted} * isa::instruction_bytes;
      transfer(front_end, round_up(bytes, isa::burst_bytes));
    }
    if (!dispatching_ && dispatched_ < arrived_ && may_dispatch()) {
      dispatching_ = true;
      at(now_ + cycles(1), Kind::dispatched, front_end);
    }
    note_activity(was_active);
  }

  bool may_dispatch() {
    if (!instruction_) instruction_ = decode(dispatched_);
    const isa::Engine engine = isa::engine(*instruction_);
    if (engine == isa::Engine::all) return drained();
    return unit(engine).queue.size() < caps_.queue_depth;
  }

  void fetch_arrived() {
    fetching_ = false;
    arrived_ = fetched_;
    note_activity(true);
    advance_front_end();
  }

  void instruction_dispatched() {
    dispatching_ = false;
    const std::uint32_t pc = dispatched_++;
    const isa::Instruction instruction = *instruction_;
    instruction_.reset();
    note_activity(true);
    const isa::Engine engine = isa::engine(instruction);
    if (engine == isa::Engine::all) {
      observer_.before(engine, pc, isa::common(instruction).layer);
      halted_ = drain_with(pc, instruction);
      Span span{engine,
                pc,
                isa::common(instruction).layer,
                isa::mnemonic(instruction),
                now_ / cycle_ticks_ - 1,
                now_ / cycle_ticks_ - 1,
                now_ / cycle_ticks_,
                0};
      observer_.ended(span, instruction);
    } else {
      Unit& u = unit(engine);
      if (!u.busy && u.queue.empty()) timing_[static_cast<std::size_t>(engine)].held = now_;
      u.queue.push_back({pc, instruction});
      try_begin(engine);
    }
    if (!halted_) advance_front_end();
  }

  /// Counts the time in which a fetch or a dispatch is under way.
  void note_activity(bool was_active) {
    const bool active = fetching_ || dispatching_;
    if (was_active && !active) fe_busy_ += now_ - fe_active_since_;
    if (!was_active && active) fe_active_since_ = now_;
  }

  std::uint64_t cycle_ticks_;
  std::uint64_t byte_ticks_;
  std::uint64_t now_ = 0;
  std::uint64_t sequence_ = 0;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  struct Port {
    bool busy = false;
    std::deque<std::size_t> waiting;
  } port_;
  std::array<Transfer, isa::engine_count + 1> transfers_{};
  std::array<Timing, isa::engine_count> timing_{};

  std::uint32_t fetched_ = 0;     // instructions asked for
  std::uint32_t arrived_ = 0;     // instructions there
  std::uint32_t dispatched_ = 0;  // instructions given to their engines
  bool fetching_ = false;
  bool dispatching_ = false;
  bool halted_ = false;
  std::optional<isa::Instruction> instruction_;  // decoded, not dispatched
  std::uint64_t fe_active_since_ = 0;
  std::uint64_t fe_busy_ = 0;
};

}  // namespace

std::unique_ptr<Schedule> make_time_schedule(const isa::Caps& caps, Executor& executor,
                                             Faults& faults, Observer& observer) {
  return std::make_unique<TimeSchedule>(caps, executor, faults, observer);
}

}  // namespace tenon::npu::sim
