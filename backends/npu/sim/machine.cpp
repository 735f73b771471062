#include "machine.hpp"

#include "npu/isa/integer_math.hpp"

#include <tenon/npu/isa/program.hpp>

#include <algorithm>
#include <bit>
#include <new>

namespace tenon::npu::sim {

using isa::ErrorCode;
namespace perf = isa::perf;

namespace {

constexpr std::uint32_t max_ring = 4096;

Stop command_error(ErrorCode code, std::uint32_t index, std::uint64_t address = 0) {
  return {code, engine_number(isa::Engine::all), 0, address, index, 0};
}

}  // namespace

Machine::Machine(const Options& options)
    : options_(options),
      caps_(options.caps()),
      memory_(options),
      faults_(options.seed),
      executor_(memory_, faults_, options, abort_),
      trace_(options),
      random_schedule_(options.random_schedule),
      seed_(options.seed),
      pace_begin_(std::chrono::steady_clock::now()) {
  for (const FaultPlan& plan : options.faults) faults_.arm(plan);
  for (auto& pc : pcs_) pc = 0xFFFFFFFF;
  for (auto& state : engine_states_) state = 0;
  for (auto& count : token_counts_) count = 0;
  thread_ = std::thread([this] { loop(); });
}

Machine::~Machine() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
    abort_ = true;
    attention_ = true;
  }
  work_.notify_all();
  thread_.join();
}

// ---- The host's side

std::uint32_t Machine::wait_irq(std::uint32_t mask, std::chrono::nanoseconds timeout) {
  Lock lock(mutex_);
  const auto pending = [&] { return state_.irq_status & state_.irq_mask & mask; };
  // Added to the time now, the longest of all waits would have ended long ago.
  timeout = std::min<std::chrono::nanoseconds>(timeout, std::chrono::years(1));
  changed_.wait_for(lock, timeout, [&] { return removed_ || pending() != 0; });
  return removed_ ? isa::gone : pending();
}

void Machine::count_sync() {
  const std::scoped_lock lock(mutex_);
  ++counters_[perf::syncs];
}

void Machine::on_device(const std::function<void()>& work) {
  Lock lock(mutex_);
  Job job{&work};
  jobs_.push_back(&job);
  attention_ = true;
  work_.notify_all();
  changed_.wait(lock, [&] { return job.done; });
  if (job.error) std::rethrow_exception(job.error);
}

void Machine::reset(int level) {
  Lock lock(mutex_);
  request_reset(lock, level);
  changed_.wait_until(lock, reset_end_, [&] { return removed_.load(); });
}

// What a reset of level 0 leaves as it is.
void Machine::clear_registers() {
  fence_ = 0;
  counters_ = {};
  latched_ = {};
  layers_.clear();
  latched_layer_ = {};
}

void Machine::clear_memory() {
  cleared_ = true;
  memory_.forget_all();
}

void Machine::request_reset(Lock& lock, int level) {
  reset_requested_ = true;
  reset_level_ = std::max(reset_level_, level);
  abort_ = true;
  attention_ = true;
  work_.notify_all();
  changed_.wait(lock, [&] { return !reset_requested_; });
}

// ---- The device's thread

bool Machine::has_work() const {
  const bool halted = isa::bits::halt.get(state_.control) != 0 && state_.steps == 0;
  return isa::bits::enable.get(state_.control) != 0 && !state_.fault && !removed_ && !halted &&
         state_.head != state_.tail;
}

void Machine::loop() {
  Lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [&] {
      return stop_ || reset_requested_ || !jobs_.empty() || state_.dma_pending || has_work();
    });
    if (stop_) return;
    if (reset_requested_) {
      do_reset();
      continue;
    }
    run_jobs(lock);
    if (has_work() && !reset_requested_) run_command(lock);
  }
}

void Machine::run_jobs(Lock& lock) {
  if (state_.dma_pending) host_dma(lock);
  while (!jobs_.empty()) {
    Job& job = *jobs_.front();
    jobs_.pop_front();
    lock.unlock();
    try {
      (*job.work)();
    } catch (...) {
      job.error = std::current_exception();
    }
    lock.lock();
    job.done = true;
    changed_.notify_all();
  }
}

void Machine::do_reset() {
  state_ = {};
  // At once with the rest: nobody sees a device that has been reset at another level.
  if (reset_level_ >= 1) clear_registers();
  if (reset_level_ >= 2) clear_memory();
  reset_level_ = 0;
  executor_.forget_written();
  memory_.forget_on_chip();
  for (auto& pc : pcs_) pc = 0xFFFFFFFF;
  for (auto& state : engine_states_) state = 0;
  for (auto& count : token_counts_) count = 0;
  abort_ = false;
  attention_ = !jobs_.empty();
  reset_requested_ = false;
  reset_end_ = std::chrono::steady_clock::now() + std::chrono::nanoseconds(options_.reset_ns);
  changed_.notify_all();
}

void Machine::run_command(Lock& lock) {
  // The host may write to cmdq_size while the command runs.
  const std::uint32_t index = state_.head, entries = state_.cmdq_size;
  const bool ring = std::has_single_bit(entries) && entries >= 2 && entries <= max_ring &&
                    state_.tail < entries && state_.cmdq_base % isa::Descriptor::size_bytes == 0;
  const std::uint64_t address =
      state_.cmdq_base + std::uint64_t{index} * isa::Descriptor::size_bytes;
  state_.busy = true;
  try {
    if (!ring) throw command_error(ErrorCode::bad_command, index, state_.cmdq_base);
    lock.unlock();
    if (!memory_.is_ddr(address, isa::Descriptor::size_bytes)) {
      throw command_error(ErrorCode::bus, index, address);
    }
    std::array<std::byte, isa::Descriptor::size_bytes> bytes;
    memory_.read(address, bytes.data(), bytes.size());
    bool clear = false;
    const auto command = isa::unpack<isa::Descriptor>(bytes.data(), &clear);
    if (!clear) throw command_error(ErrorCode::bad_command, index, address);
    execute(command, index);
    lock.lock();
    state_.head = (index + 1) % entries;
    if (state_.head == state_.tail) raise(isa::bits::irq_empty.mask());
  } catch (const Stop& stop) {
    if (!lock.owns_lock()) lock.lock();
    fail(stop);
  } catch (const Aborted&) {
    if (!lock.owns_lock()) lock.lock();
  } catch (const std::bad_alloc&) {
    if (!lock.owns_lock()) lock.lock();
    fail(command_error(ErrorCode::bus, index));
  }
  state_.busy = false;
  changed_.notify_all();
}

void Machine::execute(const isa::Descriptor& command, std::uint32_t index) {
  {
    const std::scoped_lock lock(mutex_);
    trace_.command(index, command.kind, now_);
  }
  const bool is_fence = command.kind == static_cast<std::uint32_t>(isa::Command::fence);
  if (!isa::is_value<isa::Command>(command.kind) ||
      (command.flags & ~(is_fence ? isa::fence_irq : 0)) != 0) {
    throw command_error(ErrorCode::bad_command, index);
  }
  before(isa::Engine::all, index, 0);
  advance(1);
  switch (static_cast<isa::Command>(command.kind)) {
    case isa::Command::nop:
      break;
    case isa::Command::run:
      run_program(command, index);
      break;
    case isa::Command::copy:
      copy(command, index);
      break;
    case isa::Command::fence: {
      if (command.arg0 > 0xFFFFFFFF) throw command_error(ErrorCode::bad_command, index);
      fence(static_cast<std::uint32_t>(command.arg0));
      const std::scoped_lock lock(mutex_);
      if ((command.flags & isa::fence_irq) != 0) raise(isa::bits::irq_fence.mask());
      break;
    }
    case isa::Command::timestamp: {
      if (command.arg0 % 8 != 0) throw command_error(ErrorCode::bad_command, index, command.arg0);
      if (!memory_.is_ddr(command.arg0, 8))
        throw command_error(ErrorCode::bus, index, command.arg0);
      std::uint64_t now = 0;
      {
        const std::scoped_lock lock(mutex_);
        now = now_;
      }
      memory_.write(command.arg0, &now, sizeof now);
      break;
    }
    case isa::Command::segment: {
      const bool good = isa::is_value<isa::Segment>(static_cast<std::uint32_t>(command.arg0)) &&
                        command.arg0 <= 0xFFFFFFFF && command.arg1 % isa::burst_bytes == 0 &&
                        command.arg1 + command.arg2 >= command.arg1;
      if (!good) throw command_error(ErrorCode::bad_command, index, command.arg1);
      const std::scoped_lock lock(mutex_);
      state_.segments[command.arg0] = {command.arg1, command.arg2};
      break;
    }
  }
}

void Machine::advance(std::uint64_t cycles) {
  const std::scoped_lock lock(mutex_);
  now_ += cycles;
  counters_[perf::cycles] += cycles;
}

void Machine::copy(const isa::Descriptor& command, std::uint32_t index) {
  const std::uint64_t to = command.arg0;
  const std::uint64_t from = command.arg1;
  const std::uint64_t size = command.arg2;
  if (!memory_.is_ddr(to, size)) throw command_error(ErrorCode::bus, index, to);
  if (!memory_.is_ddr(from, size)) throw command_error(ErrorCode::bus, index, from);
  if ((to < from ? from - to : to - from) < size) {
    throw command_error(ErrorCode::bad_command, index, to);
  }
  std::vector<std::byte> piece(std::min<std::uint64_t>(size, 1 << 20));
  for (std::uint64_t done = 0; done < size; done += piece.size()) {
    before(isa::Engine::all, index, 0);
    const std::uint64_t bytes = std::min<std::uint64_t>(piece.size(), size - done);
    memory_.read(from + done, piece.data(), bytes);
    memory_.write(to + done, piece.data(), bytes);
  }
  isa::Transfer moved;
  moved.read_bursts = moved.write_bursts = ceil_div(size, isa::burst_bytes);
  advance(isa::transfer_cycles(caps_, moved));
  const std::scoped_lock lock(mutex_);
  counters_[perf::ddr_read] += size;
  counters_[perf::ddr_write] += size;
}

void Machine::run_program(const isa::Descriptor& command, std::uint32_t index) {
  Segments segments;
  bool random = false;
  std::uint32_t seed = 0;
  {
    const std::scoped_lock lock(mutex_);
    segments = state_.segments;
    random = random_schedule_;
    seed = seed_;
    program_begin_ = now_;
    // Time that passed without work is not made up for.
    pace_begin_ = std::max(pace_begin_, std::chrono::steady_clock::now() - paced_time(now_));
  }
  const Window& window = segments[static_cast<std::size_t>(isa::Segment::instr)];
  const std::uint64_t size = command.arg1;
  const std::uint64_t at = window.base + command.arg0;
  if (command.arg0 % isa::burst_bytes != 0) throw command_error(ErrorCode::bad_command, index, at);
  if (command.arg0 > window.size || size > window.size - command.arg0) {
    throw command_error(ErrorCode::seg_limit, index, at);
  }
  if (!memory_.is_ddr(at, size)) throw command_error(ErrorCode::bus, index, at);
  const auto refuse = [&](bool wrong, ErrorCode code) {
    if (wrong) throw command_error(code, index, at);
  };
  constexpr std::uint64_t header_bytes = isa::ProgramHeader::size_bytes;
  refuse(size < header_bytes, ErrorCode::bad_program);
  std::vector<std::byte> program(header_bytes);
  memory_.read(at, program.data(), header_bytes);
  bool clear = false;
  const auto header = isa::unpack<isa::ProgramHeader>(program.data(), &clear);
  refuse(header.magic != isa::program_magic, ErrorCode::bad_program);
  refuse(faults_.strikes(FaultKind::crc) ||
             header.header_crc != isa::crc32c(std::span(program).first(header_bytes - 4)),
         ErrorCode::crc);
  refuse(!clear || header.version >> 16 != isa::version_major ||
             (header.version & 0xFFFF) > isa::version_minor || header.count == 0 ||
             header.count > isa::max_instructions || header.layers > 65536 ||
             size != header_bytes + std::uint64_t{header.count} * isa::instruction_bytes ||
             header.ocm_bytes > caps_.ocm_bytes || header.acc_bytes > caps_.acc_bytes,
         ErrorCode::bad_program);
  program.resize(size);  // not before its header says that this is its size
  memory_.read(at + header_bytes, program.data() + header_bytes, size - header_bytes);
  const auto bytes = std::span<const std::byte>(program);
  refuse(header.body_crc != isa::crc32c(bytes.subspan(header_bytes)), ErrorCode::crc);
  const isa::Decoded last = isa::try_decode(isa::word_at(bytes, header.count - 1));
  refuse(!last.legal || !std::holds_alternative<isa::Halt>(last.instruction),
         ErrorCode::bad_program);

  {
    const std::scoped_lock lock(mutex_);
    layers_.assign(header.layers, {});
    counters_[perf::fetch_bytes] += 2 * size;
  }
  executor_.start_program(segments);
  const auto schedule = random ? make_random_schedule(caps_, executor_, faults_, *this, seed)
                               : make_time_schedule(caps_, executor_, faults_, *this);
  const auto close = [&](std::uint64_t end) {
    const std::scoped_lock lock(mutex_);
    now_ = std::max(now_, program_begin_ + end);
    counters_[perf::cycles] += now_ - program_begin_;
    trace_.program_ended(bytes, program_begin_, now_);
  };
  try {
    const RunTime time = schedule->run(bytes);
    close(time.cycles);
    const std::scoped_lock lock(mutex_);
    counters_[perf::fe_busy] += time.fe_busy;
    ++counters_[perf::programs];
  } catch (...) {
    close(0);
    throw;
  }
  if (faults_.strikes(FaultKind::flip_weight)) flip(FaultKind::flip_weight, isa::Segment::weight);
  if (faults_.strikes(FaultKind::flip_instr)) flip(FaultKind::flip_instr, isa::Segment::instr);
}

void Machine::flip(FaultKind, isa::Segment segment) {
  const std::scoped_lock lock(mutex_);
  const Window& window = state_.segments[static_cast<std::size_t>(segment)];
  if (window.size == 0 || !memory_.is_ddr(window.base, window.size)) return;
  const std::uint64_t at = window.base + faults_.pick(window.size);
  std::byte value{};
  memory_.read(at, &value, 1);
  value ^= static_cast<std::byte>(1U << faults_.pick(8));
  memory_.write(at, &value, 1);
}

/// How long so many cycles take by the device's clock.
std::chrono::nanoseconds Machine::paced_time(std::uint64_t cycles) const {
  return std::chrono::nanoseconds(
      static_cast<std::int64_t>(static_cast<double>(cycles) * 1e6 / caps_.freq_khz));
}

// ---- What a run tells

void Machine::before(isa::Engine, std::uint32_t, std::uint16_t) {
  if (!attention_) return;
  Lock lock(mutex_);
  for (;;) {
    if (abort_ || removed_) throw Aborted{};
    run_jobs(lock);
    if (abort_) throw Aborted{};
    const bool halt = isa::bits::halt.get(state_.control) != 0;
    if (!halt || state_.steps > 0) {
      if (halt) --state_.steps;
      state_.halted = false;
      attention_ = halt || !jobs_.empty() || state_.dma_pending;
      return;
    }
    state_.halted = true;
    changed_.notify_all();
    work_.wait(lock, [&] {
      return abort_ || !jobs_.empty() || state_.dma_pending || state_.steps > 0 ||
             isa::bits::halt.get(state_.control) == 0;
    });
  }
}

void Machine::ended(const Span& span, const isa::Instruction& instruction) {
  Lock lock(mutex_);
  now_ = std::max(now_, program_begin_ + span.end);
  ++counters_[perf::instructions];
  if (trace_.wants_spans()) trace_.span(span);
  if (span.engine == isa::Engine::all) return;
  const std::uint32_t column = 8 * static_cast<std::uint32_t>(span.engine);
  const std::uint64_t busy = span.end - span.begin;
  const isa::Transfer moved = isa::transfer(instruction);
  const isa::ArrayTraffic traffic = isa::array_traffic(caps_, instruction);
  const std::uint64_t macs = isa::macs(instruction);
  counters_[perf::ld_busy + column] += busy;
  counters_[perf::ld_token_stall + column] += span.begin - span.held;
  if (span.engine == isa::Engine::ld) counters_[perf::ld_ddr_stall] += span.ddr_stall;
  if (span.engine == isa::Engine::st) counters_[perf::st_ddr_stall] += span.ddr_stall;
  counters_[perf::macs] += macs;
  counters_[perf::ddr_read] += moved.read_bytes;
  counters_[perf::ddr_write] += moved.write_bytes;
  counters_[perf::input_reads] += traffic.input_reads;
  counters_[perf::weight_reads] += traffic.weight_reads;
  counters_[perf::output_writes] += traffic.output_writes;
  if (span.layer < layers_.size()) {
    LayerCounters& layer = layers_[span.layer];
    const bool first = layer[perf::layer_end] == 0;
    layer[perf::layer_begin] = first ? span.begin : std::min(layer[perf::layer_begin], span.begin);
    layer[perf::layer_end] = std::max(layer[perf::layer_end], span.end);
    layer[perf::layer_ld_busy + column] += busy;
    layer[perf::layer_ddr_read] += moved.read_bytes;
    layer[perf::layer_ddr_write] += moved.write_bytes;
    layer[perf::layer_macs] += macs;
  }
  if (options_.paced) {
    const auto due = pace_begin_ + paced_time(now_);
    while (!abort_ && std::chrono::steady_clock::now() < due) {
      work_.wait_until(lock, due, [&] { return abort_ || !jobs_.empty() || state_.dma_pending; });
      if (!abort_) run_jobs(lock);  // the host's accesses do not wait for an instruction's end
    }
  }
}

void Machine::fence(std::uint32_t value) {
  const std::scoped_lock lock(mutex_);
  fence_ = std::max(fence_, value);
  changed_.notify_all();
}

void Machine::moved(isa::Engine engine, isa::EngineState state, std::uint32_t pc,
                    std::size_t queued) {
  const auto who = static_cast<std::size_t>(engine);
  pcs_[who].store(pc, std::memory_order_relaxed);
  engine_states_[who].store(isa::bits::engine_state.put(static_cast<std::uint32_t>(state)) |
                                isa::bits::engine_queue.put(static_cast<std::uint32_t>(queued)),
                            std::memory_order_relaxed);
}

void Machine::tokens(std::span<const std::size_t, 6> counts) {
  for (std::size_t side = 0; side < 2; ++side) {
    const auto* const three = &counts[3 * side];
    token_counts_[side].store(static_cast<std::uint32_t>(three[0] | three[1] << 8 | three[2] << 16),
                              std::memory_order_relaxed);
  }
}

void Machine::stuck() {
  Lock lock(mutex_);
  state_.stuck = true;
  changed_.notify_all();
  for (;;) {
    work_.wait(lock, [&] { return abort_ || !jobs_.empty() || state_.dma_pending; });
    if (abort_) throw Aborted{};
    run_jobs(lock);
  }
}

}  // namespace tenon::npu::sim
