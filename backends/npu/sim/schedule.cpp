#include "schedule.hpp"

#include "npu/isa/integer_math.hpp"

#include <tenon/npu/isa/program.hpp>

#include <algorithm>
#include <utility>

namespace tenon::npu::sim {
namespace {

constexpr std::size_t max_tokens = 255;

}  // namespace

std::uint64_t verify_cycles(const isa::Caps& caps, std::uint64_t bytes) {
  isa::Transfer transfer;
  transfer.read_bursts = ceil_div(bytes, 64U);
  return isa::transfer_cycles(caps, transfer);
}

void Schedule::start(std::span<const std::byte> program) {
  program_ = program;
  count_ = isa::unpack<isa::ProgramHeader>(program.data()).count;
  units_ = {};
  for (const isa::Engine engine : engines) show(engine);
  show_tokens();
}

isa::Instruction Schedule::decode(std::uint32_t pc) {
  const isa::Decoded decoded = isa::try_decode(isa::word_at(program_, pc));
  const std::uint16_t layer = isa::common(decoded.instruction).layer;
  const bool halts = std::holds_alternative<isa::Halt>(decoded.instruction);
  if (!decoded.legal || halts != (pc + 1 == count_) || faults_.strikes(FaultKind::illegal, layer)) {
    throw Stop{isa::ErrorCode::illegal, engine_number(isa::Engine::all), layer, 0, pc, 0};
  }
  return decoded.instruction;
}

bool Schedule::can_begin(isa::Engine engine) {
  const Unit& u = unit(engine);
  if (u.busy || u.queue.empty()) return false;
  const isa::Deps& deps = isa::common(u.queue.front().instruction).deps;
  return (!deps.pop_prev || !u.from_prev.empty()) && (!deps.pop_next || !u.from_next.empty());
}

std::uint64_t Schedule::begin(isa::Engine engine, bool& never_ends) {
  Unit& u = unit(engine);
  const isa::Common& common = isa::common(u.queue.front().instruction);
  observer_.before(engine, u.queue.front().pc, common.layer);
  if (faults_.strikes(FaultKind::removed, common.layer)) {
    throw Stop{isa::ErrorCode::none, engine_number(engine), common.layer, 0, u.queue.front().pc, 0};
  }
  std::uint64_t time = 0;
  const auto take = [&](bool wanted, std::deque<Token>& tokens) {
    if (!wanted) return;
    time = std::max(time, tokens.front().time);
    executor_.take_token(engine, tokens.front().clock);
    tokens.pop_front();
  };
  take(common.deps.pop_prev, u.from_prev);
  take(common.deps.pop_next, u.from_next);
  u.current = std::move(u.queue.front());
  u.queue.pop_front();
  u.busy = true;
  show_tokens();
  const Executor::Outcome outcome = executor_.begin(u.current.pc, u.current.instruction);
  u.clock = outcome.clock;
  never_ends = outcome.never_ends;
  observer_.moved(engine, never_ends ? isa::EngineState::wait_ddr : isa::EngineState::busy,
                  u.current.pc, u.queue.size());
  return time;
}

std::uint64_t Schedule::pieces(isa::Engine engine) {
  return executor_.pieces(unit(engine).current.instruction);
}

void Schedule::work(isa::Engine engine, Part part) {
  const Item& item = unit(engine).current;
  executor_.work(item.pc, item.instruction, part);
}

void Schedule::give(isa::Engine to, bool from_prev, const Token& token, std::uint32_t pc,
                    std::uint16_t layer) {
  if (faults_.strikes(FaultKind::hang, layer)) return;
  std::deque<Token>& tokens = from_prev ? unit(to).from_prev : unit(to).from_next;
  if (tokens.size() == max_tokens) {
    throw Stop{isa::ErrorCode::token, engine_number(to), layer, 0, pc, 0};
  }
  tokens.push_back(token);
}

void Schedule::finish(isa::Engine engine, std::uint64_t time) {
  Unit& u = unit(engine);
  const isa::Common& common = isa::common(u.current.instruction);
  const Token token{u.clock, time};
  if (common.deps.push_prev) {
    give(isa::previous(engine), false, token, u.current.pc, common.layer);
  }
  if (common.deps.push_next) give(isa::next(engine), true, token, u.current.pc, common.layer);
  u.busy = false;
  u.current.pc = none;
  show_tokens();
}

bool Schedule::drained() const {
  return std::ranges::all_of(units_, [](const Unit& u) { return !u.busy && u.queue.empty(); });
}

bool Schedule::drain_with(std::uint32_t pc, const isa::Instruction& instruction) {
  executor_.drained();
  if (const auto* const fence = std::get_if<isa::Fence>(&instruction)) {
    observer_.fence(fence->value);
  }
  if (!std::holds_alternative<isa::Halt>(instruction)) return false;
  for (const isa::Engine engine : engines) {
    if (!unit(engine).from_prev.empty() || !unit(engine).from_next.empty()) {
      throw Stop{
          isa::ErrorCode::token, engine_number(engine), isa::common(instruction).layer, 0, pc, 0};
    }
  }
  return true;
}

void Schedule::show(isa::Engine engine) {
  const Unit& u = unit(engine);
  if (u.busy) return;  // begin() has shown what it does
  isa::EngineState state = isa::EngineState::idle;
  std::uint32_t pc = none;
  if (!u.queue.empty()) {
    const isa::Deps& deps = isa::common(u.queue.front().instruction).deps;
    state = deps.pop_prev && u.from_prev.empty()   ? isa::EngineState::wait_prev
            : deps.pop_next && u.from_next.empty() ? isa::EngineState::wait_next
                                                   : isa::EngineState::busy;
    pc = u.queue.front().pc;
  }
  observer_.moved(engine, state, pc, u.queue.size());
}

void Schedule::show_tokens() {
  const std::size_t counts[6] = {units_[0].from_prev.size(), units_[1].from_prev.size(),
                                 units_[2].from_prev.size(), units_[0].from_next.size(),
                                 units_[1].from_next.size(), units_[2].from_next.size()};
  observer_.tokens(counts);
}

}  // namespace tenon::npu::sim
