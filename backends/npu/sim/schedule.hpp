#pragma once

#include "executor.hpp"
#include "npu/isa/cycles.hpp"

#include <tenon/npu/isa/caps.hpp>
#include <tenon/npu/isa/instruction.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <span>
#include <string_view>
#include <vector>

namespace tenon::npu::sim {

/// One instruction's time on its engine, in cycles since the program began.
struct Span {
  isa::Engine engine = isa::Engine::all;
  std::uint32_t pc = 0;
  std::uint16_t layer = 0;
  std::string_view mnemonic;
  std::uint64_t held = 0;   ///< the engine was free and this was next
  std::uint64_t begin = 0;  ///< its tokens had arrived
  std::uint64_t end = 0;
  std::uint64_t ddr_stall = 0;  ///< cycles lost to other transfers at the DDR port
};

/// Callbacks of a program's execution. Called on the device's thread; each may throw Stop or
/// Aborted, which end the run.
class Observer {
 public:
  virtual ~Observer() = default;
  /// Before an instruction begins: halt, steps, reset and removal act here.
  virtual void before(isa::Engine engine, std::uint32_t pc, std::uint16_t layer) = 0;
  virtual void ended(const Span& span, const isa::Instruction& instruction) = 0;
  virtual void fence(std::uint32_t value) = 0;
  /// The state in the debug registers has changed.
  virtual void moved(isa::Engine engine, isa::EngineState state, std::uint32_t pc,
                     std::size_t queued) = 0;
  virtual void tokens(std::span<const std::size_t, 6> counts) = 0;
  /// Deadlock. Returns only by throwing Aborted.
  virtual void stuck() = 0;
};

/// Totals of a run that ended with HALT.
struct RunTime {
  std::uint64_t cycles = 0;
  std::uint64_t fe_busy = 0;
};

/// Executes programs: fetch, queues, tokens. Two subclasses order the work.
class Schedule {
 public:
  Schedule(const isa::Caps& caps, Executor& executor, Faults& faults, Observer& observer)
      : caps_(caps), executor_(executor), faults_(faults), observer_(observer) {}
  virtual ~Schedule() = default;
  Schedule(const Schedule&) = delete;
  Schedule& operator=(const Schedule&) = delete;

  /// Runs the instructions of an assembled program whose header has been verified.
  virtual RunTime run(std::span<const std::byte> program) = 0;

 protected:
  static constexpr std::uint32_t none = 0xFFFFFFFF;
  struct Item {
    std::uint32_t pc = none;
    isa::Instruction instruction;
  };
  struct Token {
    Clock clock;
    std::uint64_t time;  // when it was given
  };
  struct Unit {
    std::deque<Item> queue;
    Item current;
    bool busy = false;
    Clock clock{};  // what the current instruction's tokens carry
    std::deque<Token> from_prev;
    std::deque<Token> from_next;
  };
  using Units = std::array<Unit, isa::engine_count>;

  Unit& unit(isa::Engine engine) { return units_[static_cast<std::size_t>(engine)]; }
  static constexpr isa::Engine engines[] = {isa::Engine::ld, isa::Engine::ex, isa::Engine::st};

  void start(std::span<const std::byte> program);
  std::uint32_t count() const noexcept { return count_; }
  /// Instruction `pc`, or Stop when it is illegal.
  isa::Instruction decode(std::uint32_t pc);
  /// Whether the engine is free and all tokens of the first instruction in its queue have arrived.
  bool can_begin(isa::Engine engine);
  /// Takes the first instruction of the queue and its tokens. Returns the time at which the last
  /// token was given.
  std::uint64_t begin(isa::Engine engine, bool& never_ends);
  /// The current instruction's work, and doing some of it.
  std::uint64_t pieces(isa::Engine engine);
  void work(isa::Engine engine, Part part);
  /// Gives the tokens of the current instruction and frees the engine.
  void finish(isa::Engine engine, std::uint64_t time);
  bool drained() const;
  /// Executes a Barrier, Fence or Halt after everything before it has ended; returns whether it was
  /// Halt.
  bool drain_with(std::uint32_t pc, const isa::Instruction& instruction);
  void show(isa::Engine engine);

  const isa::Caps caps_;
  Executor& executor_;
  Faults& faults_;
  Observer& observer_;
  Units units_;

 private:
  void give(isa::Engine to, bool from_prev, const Token& token, std::uint32_t pc,
            std::uint16_t layer);
  void show_tokens();

  std::span<const std::byte> program_;
  std::uint32_t count_ = 0;
};

/// Cycles of a program's verification: one transfer of all its bytes.
std::uint64_t verify_cycles(const isa::Caps& caps, std::uint64_t bytes);

/// Event by event in the order of simulated time.
std::unique_ptr<Schedule> make_time_schedule(const isa::Caps& caps, Executor& executor,
                                             Faults& faults, Observer& observer);
/// Any order that queues and tokens allow, drawn from a seed: the instructions of several engines
/// are interleaved, a few beats, pixels or lines of each at a time. Times follow the order in which
/// they end.
std::unique_ptr<Schedule> make_random_schedule(const isa::Caps& caps, Executor& executor,
                                               Faults& faults, Observer& observer,
                                               std::uint32_t seed);

}  // namespace tenon::npu::sim
