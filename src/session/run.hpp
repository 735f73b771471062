// One run of a bound plan: its memory, its stages, and who watches.
#pragma once

#include "session/state.hpp"

#include <chrono>
#include <exception>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace tenon {

class Session::Run {
 public:
  /// Takes the inputs, ready or not, and settles in which memory everything is; Errc::bad_input,
  /// Errc::alias. What throws leaves `inputs` as it was.
  Run(std::shared_ptr<const sessions::BoundPlan> bound, const Shared& shared, State& state,
      std::vector<Buffer>& inputs, std::span<Buffer> given, Interrupt interrupt);
  /// Puts the handles of a failed run's inputs back where they were taken from, and poisons those
  /// whose own memory, not a copy's, was reused.
  void fail(std::vector<Buffer>& inputs, const std::exception_ptr& error);

  /// What the caller gets, filled when finish() returns.
  const std::vector<Buffer>& results() const& noexcept { return results_; }
  std::vector<Buffer> results() && noexcept { return std::move(results_); }

  /// Copies of all handles that the run has of its results' chunks.
  std::vector<MemChunk> handles_of_results() const;

  /// Waits for a buffer or an event, as long as the interrupt allows.
  template <class Work>
  void await(const Work& work) const {
    if (!interrupt_.is_set()) return work.wait();
    while (!work.wait_for(std::chrono::milliseconds(1))) interrupt_.check("forward");
  }
  /// Waits for the inputs, and puts everything in its place.
  void begin();
  void run_all() { run_stages(bound_->stages, 0); }
  /// All of it.
  void run();
  /// Starts copies of inputs that lie in CPU memory to the devices that read them. `copied` keeps
  /// the callers' handles of these, for a call that fails.
  void start_input_copies(std::vector<Buffer>& copied);
  /// Copies outputs to where the results are.
  void finish();

  /// Whether no other run has begun in its activation memory since it did.
  bool has_its_memory() const noexcept { return state_.activations->is_last(number_); }

  // Step by step, on plans where every step is a stage.
  std::size_t position() const noexcept { return position_; }
  std::size_t stage_count() const noexcept { return bound_->stages.size(); }
  const Step& step(std::size_t stage) const noexcept {
    return bound_->stages[stage].stage->steps.front();
  }
  void run_next() { run_stages({&bound_->stages[position_++], 1}, 0); }
  /// A copy of what a step has just made.
  Buffer output_of(std::size_t stage);

 private:
  /// Where an input, an output or the slab begins in a memory.
  struct Spot {
    const MemChunk* chunk = nullptr;  ///< null or empty: no memory
    std::int64_t offset = 0;

    MemPtr begin() const { return chunk != nullptr && *chunk ? chunk->begin() + offset : MemPtr(); }
  };
  /// One memory of the run.
  struct Space {
    Spot slab;
    std::vector<Spot> inputs, outputs;
    std::vector<MemPtr> input_begins, output_begins;

    const Spot& operator[](const sessions::StorageKey& key) const;
  };

  void take_inputs(std::vector<Buffer>& inputs);
  void give_back(std::vector<Buffer>& inputs) noexcept;
  /// The caller's buffer of an input.
  const Buffer& callers(std::size_t input) const {
    return replaced_[input].has_data() ? replaced_[input] : inputs_[input];
  }
  Buffer own_memory(const Buffer& input, bool is_updated) const;
  void check_given(std::span<const Buffer> given) const;
  void take_outputs(std::span<Buffer> given);
  Buffer result_of(std::size_t output) const;
  void lay_out();
  std::size_t memory_of(const Buffer& buffer) const;
  /// Of the memories of devices, as MemoryWatch says.
  std::vector<std::uint64_t> memory_epochs() const;
  /// Errc::device_error where somebody has reset a device since the run was made.
  void check_memories() const;

  void run_stages(std::span<const sessions::BoundStage> stages, int depth);
  /// Whether a loop begins another iteration.
  bool goes_on(const Step& loop);
  void run_stage(const sessions::BoundStage& stage, int depth);
  void compute(const sessions::BoundStage& stage, std::chrono::nanoseconds& device_time);
  struct StageTimes {
    Trace::Clock::time_point begin{}, end{};
    std::chrono::nanoseconds copies{}, device{};
  };
  void run_watched(const sessions::BoundStage& stage, int depth);
  std::chrono::nanoseconds bring_in_timed(const sessions::Stage& stage, int depth);
  void note_times(const sessions::Stage& stage, std::span<const std::string> values,
                  const StageTimes& times);
  void copy(const sessions::StorageKey& key, const ByteRange& range, std::size_t from,
            std::size_t to);
  sessions::Residency::Copy copier();

  Buffer buffer_of(const Operand& operand, std::size_t memory) const;
  std::vector<Buffer> inputs_of(const sessions::Stage& stage) const;
  std::vector<Buffer> outputs_of(const sessions::Stage& stage) const;
  void check_dumps() const;
  void check_dumps(std::span<const sessions::BoundStage> stages) const;
  void dump(const sessions::BoundStage& stage) const;

  std::shared_ptr<const sessions::BoundPlan> bound_;
  const sessions::Plan& plan_;
  const Shared& shared_;
  State& state_;
  std::vector<Buffer> inputs_, outputs_;
  std::vector<Buffer> replaced_;  // by input: the caller's, where the run works on a copy
  std::vector<std::uint64_t> epochs_;
  std::vector<std::size_t> input_homes_, output_homes_;
  std::vector<Buffer> results_;
  std::vector<Space> spaces_;  // by memory
  std::vector<std::byte*> input_bytes_, output_bytes_;
  HostFrame host_;
  std::vector<StepMark> marks_;       // of the last stage, where a profile is kept
  std::vector<DeviceFrame> devices_;  // by memory - 1
  sessions::Residency residency_;
  std::size_t position_ = 0;
  bool has_begun_ = false;
  bool has_ended_ = false;    // results are copied to where they go
  std::uint64_t number_ = 0;  // of those in its activation memory
  Interrupt interrupt_;       // of the session, when the call was made
};

}  // namespace tenon
