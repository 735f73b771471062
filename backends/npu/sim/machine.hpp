#pragma once

#include "counters.hpp"
#include "executor.hpp"
#include "memory.hpp"
#include "options.hpp"
#include "schedule.hpp"
#include "trace.hpp"

#include <tenon/npu/isa/structures.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tenon::npu::sim {

/// The device behind its registers: a thread that works the command ring, and the state that the
/// host sees of it. Calls of the host come from any thread.
class Machine final : private Observer {
 public:
  explicit Machine(const Options& options);
  ~Machine() override;

  std::uint32_t read_register(std::uint32_t offset);
  void write_register(std::uint32_t offset, std::uint32_t value);
  std::uint32_t read_simctl(std::uint32_t offset);
  void write_simctl(std::uint32_t offset, std::uint32_t value);

  std::uint32_t wait_irq(std::uint32_t mask, std::chrono::nanoseconds timeout);
  void count_sync();
  bool is_traced() const noexcept { return trace_.wants_registers(); }
  /// Notes in the trace what the host wrote to memory, or read.
  void note_memory(bool write, std::uint64_t address, const void* bytes, std::uint64_t size);
  /// Device::reset(): returns when the reset is complete.
  void reset(int level);

  bool is_removed() const noexcept { return removed_; }
  /// Whether the contents of DDR have been lost since the device was opened.
  bool memory_was_cleared() const noexcept { return cleared_; }
  Memory& memory() noexcept { return memory_; }
  /// Runs `job` on the device's thread between two instructions, and waits for it; throws what it
  /// throws.
  void on_device(const std::function<void()>& job);
  /// For on_device(): OCM was written from outside.
  void mark_ocm_written(std::uint64_t offset, std::uint64_t size) {
    executor_.mark_ocm_written(offset, size);
  }

 private:
  struct Job {
    const std::function<void()>* work;
    bool done = false;
    std::exception_ptr error{};
  };
  struct State {  // what a reset clears
    std::uint32_t control = 0;
    std::uint32_t irq_status = 0;
    std::uint32_t irq_mask = 0;
    Stop error;
    std::uint64_t cmdq_base = 0;
    std::uint32_t cmdq_size = 0;
    std::uint32_t head = 0;
    std::uint32_t tail = 0;
    std::uint64_t dma_src = 0;
    std::uint64_t dma_dst = 0;
    std::uint32_t dma_len = 0;
    std::uint32_t dma_status = 0;
    bool dma_pending = false;
    bool dma_irq = false;
    Segments segments{};
    std::uint32_t layer_select = 0;
    bool busy = false;
    bool halted = false;
    bool stuck = false;
    bool fault = false;
    std::uint32_t steps = 0;  // instructions that may begin although halted
  };
  using Lock = std::unique_lock<std::mutex>;

  // The device's thread.
  void loop();
  bool has_work() const;
  void run_jobs(Lock& lock);
  void run_command(Lock& lock);
  void execute(const isa::Descriptor& command, std::uint32_t index);
  void run_program(const isa::Descriptor& command, std::uint32_t index);
  void copy(const isa::Descriptor& command, std::uint32_t index);
  void advance(std::uint64_t cycles);
  void host_dma(Lock& lock);
  void copy_for_host(std::uint64_t to, std::uint64_t from, std::uint64_t size);
  bool is_on_chip(std::uint64_t address, std::uint64_t size);
  void do_reset();
  void fail(const Stop& stop);
  void remove();
  void raise(std::uint32_t bit);
  void flip(FaultKind kind, isa::Segment segment);
  std::chrono::nanoseconds paced_time(std::uint64_t cycles) const;

  // Observer.
  void before(isa::Engine engine, std::uint32_t pc, std::uint16_t layer) override;
  void ended(const Span& span, const isa::Instruction& instruction) override;
  void fence(std::uint32_t value) override;
  void moved(isa::Engine engine, isa::EngineState state, std::uint32_t pc,
             std::size_t queued) override;
  void tokens(std::span<const std::size_t, 6> counts) override;
  void stuck() override;

  // Registers, under the mutex.
  std::uint32_t value_of(std::uint32_t offset) const;
  std::uint32_t status() const;
  void set(std::uint32_t offset, std::uint32_t value, Lock& lock);
  void set_control(std::uint32_t value, Lock& lock);
  void set_dma(std::uint32_t offset, std::uint32_t value);
  void set_segment(std::uint32_t offset, std::uint32_t value);
  void bad_register(std::uint32_t offset);
  void latch();
  void arm_fault();
  /// Returns when what ran has ended; the reset may take longer than that.
  void request_reset(Lock& lock, int level);
  void clear_registers();
  void clear_memory();
  bool is_resetting() const { return std::chrono::steady_clock::now() < reset_end_; }
  std::uint32_t value_in_reset(std::uint32_t offset) const;

  const Options options_;
  const isa::Caps caps_;
  Memory memory_;
  Faults faults_;
  std::atomic<bool> abort_ = false;  // ends the program that runs
  std::atomic<bool> removed_ = false;
  std::atomic<bool> cleared_ = false;
  std::atomic<bool> attention_ = false;  // something waits for a gap between two instructions
  Executor executor_;
  Trace trace_;

  std::mutex mutex_;
  std::condition_variable work_;     // for the device's thread
  std::condition_variable changed_;  // for the host
  State state_;
  std::uint32_t fence_ = 0;
  Counters counters_;
  Counters latched_;
  std::vector<LayerCounters> layers_;
  LayerCounters latched_layer_;
  std::uint64_t now_ = 0;
  std::uint32_t host_dmas_ = 0;
  std::uint64_t program_begin_ = 0;  // now_ when the running program began
  std::deque<Job*> jobs_;
  bool reset_requested_ = false;
  int reset_level_ = 0;  // of those that are requested, the highest
  std::chrono::steady_clock::time_point reset_end_;
  bool stop_ = false;
  bool random_schedule_;
  std::uint32_t seed_;
  FaultPlan plan_;  // what the fault registers of simctl describe
  std::uint32_t plan_layer_ = 0xFFFFFFFF;
  std::chrono::steady_clock::time_point pace_begin_;  // when cycle 0 was, less the time at rest

  // Debug registers, written by the device's thread at every step.
  std::array<std::atomic<std::uint32_t>, isa::engine_count> pcs_;
  std::array<std::atomic<std::uint32_t>, isa::engine_count> engine_states_;
  std::array<std::atomic<std::uint32_t>, 2> token_counts_;

  std::thread thread_;  // last: begins when everything else is there
};

}  // namespace tenon::npu::sim
